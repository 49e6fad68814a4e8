"""A bundle's folder whose name has what options of emulators and engines take apart."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from edgepack.runners import node, qemu_system, qemu_user, wasmtime
from edgepack.runners.base import host_os

pytestmark = pytest.mark.skipif(host_os() == "windows", reason="the tools are scripts")

NAME = '-a::b,c=d;e\'s "$(touch hacked)" `id` %s \\ \n é'


@dataclass(frozen=True)
class Device:
    os: str
    arch: str
    runner: dict[str, Any] = field(default_factory=dict)
    name: str = "board"
    libc: str = "musl"
    bare_metal: bool = False


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """A program that prints what it was called with, and from where."""
    path = tmp_path / "tool"
    path.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        "print('v99.0.0' if '--version' in sys.argv else json.dumps([os.getcwd(), *sys.argv[1:]]))\n"
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / NAME
    (root / "bin").mkdir(parents=True)
    return root


def told(runner: Any, device: Device, folder: Path) -> list[str]:
    argv = [folder / "bin" / "it", "verify", folder / "test", "--variant", NAME]
    done = runner.run(device, argv, timeout=30, cwd=folder)
    words: list[str] = json.loads(done.stdout)
    return words


def test_wasmtime_shows_the_bundles_folder_and_no_other(tool: Path, folder: Path) -> None:
    """Its option splits HOST::GUEST."""
    device = Device("wasi", "wasm32", {"name": "wasmtime", "program": str(tool)})
    where, *words = told(wasmtime, device, folder)
    assert where == str(folder)
    assert words[:5] == ["run", "--dir", ".::.", "--argv0", "bin/it"]
    assert words[5:] == [str(folder / "bin" / "it"), "verify", "test", "--variant", NAME]


def test_node_gets_the_folder_as_one_argument(tool: Path, folder: Path) -> None:
    device = Device("wasi", "wasm32", {"name": "node", "program": str(tool)})
    _, *words = told(node, device, folder)
    assert words[-6:] == [str(folder), "bin/it", "verify", "test", "--variant", NAME]


def test_qemu_gets_the_program_by_its_whole_path(tool: Path, folder: Path) -> None:
    device = Device("linux", "aarch64", {"name": "qemu", "program": str(tool)})
    _, *words = told(qemu_user, device, folder)
    assert words == [str(folder / "bin" / "it"), "verify", str(folder / "test"), "--variant", NAME]


def test_commas_in_the_arguments_of_firmware_are_no_options(
    tool: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qemu_system, "_about", lambda _: ("9", {"mps2-an386"}))
    settings = {"name": "qemu-system", "program": str(tool), "options": {"machine": "mps2-an386"}}
    device = Device("none", next(iter(qemu_system.EMULATORS)), settings, bare_metal=True)
    _, *words = told(qemu_system, device, folder)
    assert words[words.index("-kernel") + 1] == str(folder / "bin" / "it")
    (option,) = (word for word in words if word.startswith("enable=on"))
    assert option.replace(",,", "").split(",arg=")[1:] == ["it", "verify", "--variant", NAME.replace(",", "")]
