"""Where a bundle's program can run: what is here, what is missing, and what happens when it goes wrong."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from edgepack.errors import ConfigError, ToolchainError
from edgepack.runners import native, qemu_user, select_runner
from edgepack.runners.base import Availability, arch_of, host_os

LINUX = pytest.mark.skipif(host_os() != "linux", reason="qemu-user runs on Linux")


@dataclass(frozen=True)
class Device:
    name: str = "board"
    arch: str = arch_of(os.uname().machine) if hasattr(os, "uname") else "x86_64"
    os: str = host_os()
    libc: str = "glibc"
    runner: dict[str, Any] = field(default_factory=lambda: {"name": "native"})


BOARD = Device(arch="riscv64", runner={"name": "qemu"})


def test_native_is_available_for_this_kind_of_machine_only() -> None:
    assert native.available(Device()).ok
    ok, _, hint = native.available(Device(arch="riscv64"))
    assert not ok
    assert "riscv64" in hint


@pytest.mark.parametrize(
    ("machine", "arch"),
    [
        ("AMD64", "x86_64"),
        ("arm64", "aarch64"),
        ("armv7l", "arm"),
        ("riscv64", "riscv64"),
        ("s390x", "s390x"),
    ],
)
def test_architectures_have_one_name(machine: str, arch: str) -> None:
    assert arch_of(machine) == arch


@LINUX
def test_this_machine_is_preferred_to_an_emulator() -> None:
    assert select_runner(Device(runner={"name": "qemu"})).name == "native"
    with pytest.raises(ConfigError):
        select_runner(Device(), "nowhere")


@LINUX
def test_a_missing_emulator_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qemu_user, "find_program", lambda name: None)
    assert qemu_user.available(BOARD).hint.startswith("qemu-riscv64 was not found: apt-get install qemu-user")
    with pytest.raises(ToolchainError, match="The runner qemu cannot run programs of board") as caught:
        select_runner(BOARD)
    assert "apt-get install qemu-user" in caught.value.hint


@LINUX
def test_a_missing_libc_is_named_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = _fake_qemu(tmp_path, monkeypatch)
    guest = qemu_user._Guest("riscv64", "lib/ld.so", str(tmp_path / "sysroot"), "libc6-riscv64-cross")
    monkeypatch.setitem(qemu_user._GUESTS, "riscv64", guest)
    ok, where, hint = qemu_user.available(BOARD)
    assert not ok
    assert str(fake) in where
    assert "apt-get install libc6-riscv64-cross" in hint
    assert "zig cannot run" in hint
    assert qemu_user.available(Device(arch="riscv64", libc="musl")).ok  # its programs are static


@LINUX
def test_runs_with_sysroot_cpu_and_environment_of_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = _fake_qemu(tmp_path, monkeypatch)
    sysroot = tmp_path / "sys root"
    loader = sysroot / qemu_user._GUESTS["riscv64"].loader
    loader.parent.mkdir(parents=True)
    loader.write_text("")
    settings = {
        "name": "qemu",
        "sysroot": str(sysroot),
        "cpu": "rv64",
        "environment": {"EDGEPACK_TEST": "on"},
    }
    device = Device(arch="riscv64", runner=settings)
    assert qemu_user.available(device) == Availability(True, f"{fake} 9.9, libc of {sysroot}", "")
    done = qemu_user.run(device, [tmp_path / "prög ram", "info"], timeout=20, cwd=tmp_path)
    assert done.stdout.splitlines() == [
        "-L",
        str(sysroot),
        "-cpu",
        "rv64",
        str(tmp_path / "prög ram"),
        "info",
        "on",
    ]


@LINUX
@pytest.mark.parametrize(
    ("listed", "shown"),
    [("rv64 rv99 max", "rv99,v=true"), ("rv64 max", "max"), ("rv64", "rv99,v=true")],
    ids=["known", "too new", "too new, and no max"],
)
def test_a_cpu_that_this_qemu_does_not_know_is_replaced_by_all_it_has(
    listed: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = _fake_qemu(tmp_path, monkeypatch, listed)
    device = Device(arch="riscv64", libc="musl", runner={"name": "qemu", "cpu": "rv99,v=true"})
    note = " (as max: it does not know rv99,v=true)" if shown == "max" else ""
    assert qemu_user.available(device).where == f"{fake} 9.9{note}"
    done = qemu_user.run(device, [tmp_path / "program"], timeout=20, cwd=tmp_path)
    assert done.stdout.splitlines()[:2] == ["-cpu", shown]


def _fake_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpus: str = "") -> Path:
    """A qemu-riscv64 on PATH that knows ``cpus`` and prints its arguments."""
    folder = tmp_path / "path"
    folder.mkdir()
    fake = folder / "qemu-riscv64"
    fake.write_text(
        '#!/bin/sh\nif [ "$1" = --version ]; then echo "qemu-riscv64 version 9.9 (Debian)"; exit; fi\n'
        f'if [ "$2" = help ]; then echo "{cpus}"; exit; fi\n'
        'for a in "$@"; do echo "$a"; done; echo "$EDGEPACK_TEST"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    qemu_user._version.cache_clear()
    qemu_user._cpus.cache_clear()
    assert shutil.which("qemu-riscv64") == str(fake)
    return fake
