"""What a bundle of somebody else cannot make a runner do, and what its user can."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from edgepack.api import Bundle
from edgepack.bundle.manifest import DeviceRecord, load_manifest
from edgepack.config.device import DEVICES
from edgepack.errors import ConfigError, EdgepackError
from edgepack.runners.base import host_os, setting
from edgepack.runners.recorded import device_of
from edgepack.runners.verify import verify
from tests.support.manifest import example, seal

pytestmark = pytest.mark.skipif(host_os() == "windows", reason="the programs are shell scripts")

#: By runner: a device whose programs it would run.
KINDS = {
    "adb": ("aarch64", "android", "bionic"),
    "chromium": ("wasm32", "wasi", "wasi"),
    "native": ("x86_64", "windows", "mingw"),
    "node": ("wasm32", "wasi", "wasi"),
    "qemu": ("aarch64", "linux", "musl"),
    "qemu-system": ("arm", "none", "newlib"),
    "ssh": ("x86_64", "linux", "glibc"),
    "wasmtime": ("wasm32", "wasi", "wasi"),
    "wine": ("x86_64", "windows", "mingw"),
}


def bundle(root: Path, device: dict[str, Any], program: str = "exit 1") -> Path:
    """A bundle whose program is a script, as somebody else may have written it."""
    manifest = json.loads(example().to_json())
    manifest["artifacts"] = [{"kind": "program", "path": "bin/net", "nbytes": 1}]
    manifest["device"] |= device
    for name in ("bin", "test"):
        (root / name).mkdir(parents=True)
    (root / "bin" / "net").write_text(f"#!/bin/sh\n{program}\n")
    (root / "bin" / "net").chmod(0o755)
    (root / "manifest.json").write_text(json.dumps(manifest))
    seal(root)
    return root


@pytest.mark.parametrize("runner", KINDS)
def test_no_program_of_the_manifests_choice_is_started(
    runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = tmp_path / "evil"
    evil.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/ran\n')
    evil.chmod(0o755)
    arch, system, libc = KINDS[runner]
    settings = {
        "name": runner,
        "program": str(evil),
        "options": {"host": "evil", "serial": "evil", "machine": "mps2-an386", "flags": "--no-sandbox"},
    }
    root = bundle(tmp_path / "bundle", {"arch": arch, "os": system, "libc": libc, "runner": settings})
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(EdgepackError):
        Bundle(root).verify()
    with pytest.raises(EdgepackError):
        Bundle(root).bench()
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(host_os() != "linux", reason="the device is this machine")
def test_no_environment_of_the_manifests_choice_reaches_the_program(
    small_bundle: Bundle, tmp_path: Path
) -> None:
    kind = small_bundle.manifest.device
    settings = {"name": "native", "environment": {"LD_PRELOAD": "evil.so"}}
    device = {"arch": kind.arch, "os": kind.os, "libc": kind.libc, "runner": settings}
    root = bundle(tmp_path / "bundle", device, f'echo "[$LD_PRELOAD]" >{tmp_path}/seen')
    with pytest.raises(EdgepackError, match="no result"):
        Bundle(root).verify()
    assert (tmp_path / "seen").read_text() == "[]\n"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("cpu", cpu) for cpu in ("-plugin", "max -plugin x", "max,a=b;c", "max\n", "max,,a", "a" * 300)),
        *(("machine", machine) for machine in ("mps2-an386,dumpdtb=x", "-bios", "a b", "mps2-an386\n")),
        *(("timeout", seconds) for seconds in (0, -1, 10**9, 1.5, "10 s", float("1e300"))),
    ],
)
def test_what_an_emulator_is_told_is_checked(field: str, value: Any, tmp_path: Path) -> None:
    root = bundle(tmp_path / "bundle", {"runner": {"name": "qemu", field: value}})
    with pytest.raises(ConfigError, match=rf"field device\.runner\.{field}"):
        load_manifest(root)


def _record(of: str, **changes: Any) -> DeviceRecord:
    known = DEVICES.known(of)
    assert known is not None
    data = {"name": of, "arch": known.arch, "os": known.os, "libc": known.libc, "triple": known.llvm.triple}
    return DeviceRecord.model_validate({**data, "runner": {"name": known.runner.name}, **changes})


def test_settings_are_those_of_this_machines_device_of_the_same_name_and_kind() -> None:
    record = _record("cortex-m33")
    assert setting(device_of(record), "program") == "qemu-system-arm"
    assert setting(device_of(record), "options") == {"machine": "mps2-an505"}
    said = record.model_copy(update={"runner": record.runner.model_copy(update={"machine": "mps2-an386"})})
    assert setting(device_of(said), "options") == {"machine": "mps2-an386"}
    wine = _record("cortex-m33", runner={"name": "wine"})
    assert setting(device_of(wine), "program") is None
    other = _record("cortex-m33", arch="aarch64")
    assert setting(device_of(other), "program") is None


def test_a_devices_file_is_never_found_by_a_path_in_a_manifest(tmp_path: Path) -> None:
    file = tmp_path / "evil.yaml"
    file.write_text("extends: linux-riscv64\nrunner: {program: /evil}\n")
    for name in (str(file), "../" * 20 + str(file)[1:], "linux-riscv64\0", ".", "evil.yaml"):
        with pytest.raises(ValidationError, match="not a name"):
            _record("linux-riscv64", name=name)
        assert DEVICES.known(name) is None
        device = device_of(_record("linux-riscv64").model_copy(update={"name": name}))
        assert setting(device, "program") is None, name


def test_a_place_elsewhere_is_named_by_the_user_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "our-board.yaml"
    file.write_text("extends: raspberrypi4\nrunner: {name: ssh, timeout: 7, options: {host: pi@board}}\n")
    monkeypatch.setenv("EDGEPACK_DEVICE_PATH", str(tmp_path))
    record = _record("our-board")
    assert setting(device_of(record), "options") is None
    own = DEVICES.known("our-board")
    assert setting(device_of(record, own), "options") == {"host": "pi@board"}
    assert setting(device_of(record, own), "timeout") == 7


@pytest.mark.skipif(host_os() != "linux", reason="qemu-user runs on Linux")
def test_a_users_own_device_file_says_how_a_bundle_is_run(tmp_path: Path) -> None:
    emulator = tmp_path / "emulator"
    emulator.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/ran\n')
    emulator.chmod(0o755)
    file = tmp_path / "our-board.yaml"
    file.write_text(f"extends: linux-aarch64-musl\nrunner: {{program: {emulator}}}\n")
    arch, system, libc = KINDS["qemu"]
    root = bundle(tmp_path / "b", {"arch": arch, "os": system, "libc": libc, "runner": {"name": "qemu"}})
    with pytest.raises(EdgepackError, match="no result"):
        Bundle(root).verify(device=file)
    assert f"{root}/bin/net verify {root}/test" in (tmp_path / "ran").read_text()
    with pytest.raises(ConfigError, match="not of the bundle's kind: libc is 'glibc', not 'musl'"):
        Bundle(root).verify(device="raspberrypi4")
    with pytest.raises(ConfigError, match="device is a device's name"):
        Bundle(root).verify(device=3)  # type: ignore[arg-type]


def test_only_the_bundle_is_copied_to_a_device(small_bundle: Bundle, tmp_path: Path) -> None:
    from edgepack.runners.job import _needed

    root = shutil.copytree(small_bundle.path, tmp_path / "copy")
    before = list(_needed(root))
    assert before
    (tmp_path / "secret").write_text("secret")
    (root / "test" / "more").symlink_to(tmp_path / "secret")
    (root / "test" / "own.txt").write_text("a user's")
    assert list(_needed(root)) == before
    (root / "test" / "input_0.bin").unlink()
    (root / "test" / "input_0.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigError, match=r"'test/input_0\.bin', which does not lie in it"):
        list(_needed(root))


def test_a_manifest_of_an_earlier_edgepack_is_read(tmp_path: Path) -> None:
    settings = {"name": "qemu", "program": "qemu-riscv64", "sysroot": "", "environment": {}, "options": {}}
    root = bundle(
        tmp_path / "bundle", {"runner": {**settings, "cpu": "rv64,v=true,vlen=128", "timeout": 600}}
    )
    assert load_manifest(root).device.runner.cpu == "rv64,v=true,vlen=128"
    with pytest.raises(EdgepackError):
        verify(root, load_manifest(root))
