"""Every built-in device: a pack for it runs, and gives the right answer where it can run at all."""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest

from edgepack.api import pack
from edgepack.config.device import Device, device_names, load_device
from edgepack.config.host import probe
from edgepack.errors import CheckFailedError
from edgepack.runners.base import arch_of
from tests.support import fake
from tests.support.worker import ZIG_TARGET

#: qemu-user runs what is not this machine's; its qemu has no AVX-512.
EMULATED = {"aarch64", "arm"}


def can_run(device: Device, folder: Path) -> bool:
    if arch_of(device.arch) != arch_of(platform.machine()):
        return device.arch in EMULATED
    if device.arch != "x86_64" or not device.cpu_requires:
        return set(device.cpu_requires) <= probe().features
    # Asked of the CPU itself, by other means than edgepack's: the system may show less than the CPU has.
    program = folder / "supports"
    wanted = [device.llvm.cpu, *(f[1:] for f in device.llvm.features if f.startswith("+"))]
    asked = " && ".join(f'__builtin_cpu_supports("{name}")' for name in wanted)
    source = f"int main(void) {{ return !({asked}); }}"
    subprocess.run(["gcc", "-x", "c", "-", "-o", program], input=source, text=True, check=True)
    return subprocess.run([program], check=False).returncode == 0


#: As raspberrypi2, linux-aarch64-v8.2 and linux-x86_64-v3 but for the CPU's name, caches and instructions.
#: Some of them ``test_other_toolchains_make_bundles_that_verify`` packs for.
LIKE_OTHERS = {
    *("jetson-nano", "jetson-orin", "raspberrypi3", "raspberrypizero2", "raspberrypi4", "raspberrypi5"),
    *("linux-aarch64", "linux-armv7", "linux-x86_64", "linux-x86_64-v4", "linux-x86_64-avxvnni"),
    *("linux-aarch64-v8.6", "linux-aarch64-multi-i8mm"),
}


def faked(device: Device) -> bool:
    """Whether the stand-in for the compiler makes objects for it; tests/targets has all other kinds."""
    known = device.os == "linux" and device.cpu_target().arch in ZIG_TARGET
    return known and device.gpu.api == "none" and device.name != "host-gpu"


def packed_devices() -> list[Any]:
    """Each device that the stand-in serves.

    For musl zig builds a libc from its sources, a minute of CPU time for each architecture: these are slow
    tests, and so are boards that differ from another one in the CPU's name or features only (tests/config has
    them all).
    """
    names = [name for name in device_names() if faked(load_device(name))]
    slow = {name for name in names if load_device(name).libc == "musl"} | LIKE_OTHERS
    return [pytest.param(name, marks=pytest.mark.slow) if name in slow else name for name in names]


@pytest.fixture
def fake_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packs of this process are made by the worker without TVM."""
    fake.install("ok", monkeypatch.setattr)


@pytest.mark.usefixtures("fake_worker")
@pytest.mark.parametrize("name", packed_devices())
def test_pack_and_verify(name: str, small_model: Path, tmp_path: Path) -> None:
    device = load_device(name)
    bundle = pack(small_model, name, tmp_path / "out")
    if can_run(device, tmp_path):
        assert bundle.verify().ok
    else:
        with pytest.raises(CheckFailedError, match="EP_E_CPU"):
            bundle.verify()
    manifest = bundle.manifest
    assert manifest.device.triple == device.llvm.triple
    assert {artifact.kind for artifact in manifest.artifacts} == set(device.artifacts)
    assert all(
        a.audit["exported"] == ["edgepack_model_small"] for a in manifest.artifacts if a.kind != "program"
    )


def test_an_emulator_is_named_and_its_times_are_marked(small_model: Path, tmp_path: Path) -> None:
    name = "linux-x86_64" if arch_of(platform.machine()) == "aarch64" else "raspberrypi4"
    assert fake.run("ok", "pack", small_model, "--device", name, "-o", tmp_path / "out").returncode == 0
    done = fake.run("ok", "bench", tmp_path / "out", "--runs", "2", "--json", "--quiet")
    data = json.loads(done.stdout)
    assert (data["runner"], data["real_speed"]) == ("qemu", False)
    assert "say nothing" in data["note"]
    shown = fake.run("ok", "bench", tmp_path / "out", "--runs", "2").stdout
    assert "qemu is an emulator; its times say nothing about the device's speed" in shown
    assert "FLOP/s" not in shown


#: A user's own device: a board whose system is as new as the machine that its libraries are built on.
OWN_DEVICE = """
extends: {device}
audit:
  glibc: "2.99"
  needed: ["*"]
"""


@pytest.mark.usefixtures("fake_worker")
@pytest.mark.parametrize(
    ("device", "toolchain"),
    [
        ("linux-x86_64", "gcc"),
        ("raspberrypi4", "clang"),
        ("raspberrypi2", "gcc"),
        pytest.param("linux-x86_64", "clang", marks=pytest.mark.slow),
        pytest.param("raspberrypi4", "gcc", marks=pytest.mark.slow),
        pytest.param("raspberrypi2", "clang", marks=pytest.mark.slow),
    ],
)
def test_other_toolchains_make_bundles_that_verify(
    device: str, toolchain: str, small_model: Path, tmp_path: Path
) -> None:
    own = tmp_path / "my board.yaml"
    own.write_text(OWN_DEVICE.format(device=device), encoding="utf-8")
    bundle = pack(small_model, str(own), tmp_path / "out", toolchain=toolchain)
    assert bundle.verify().ok
    assert bundle.manifest.toolchain.family == toolchain


def test_a_bundle_that_needs_a_newer_libc_than_the_device_has_is_refused(
    small_model: Path, tmp_path: Path
) -> None:
    """The machine's own gcc links against its own libc."""
    (tmp_path / "old.yaml").write_text('extends: linux-x86_64\naudit: {glibc: "2.3"}\n', encoding="utf-8")
    done = fake.run("ok", "pack", small_model, "--device", tmp_path / "old.yaml", "-o", tmp_path / "out")
    assert done.returncode == 1
    assert "libsmall.so: glibc version: found" in done.stderr
    assert not (tmp_path / "out").exists()
