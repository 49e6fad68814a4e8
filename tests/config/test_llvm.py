"""TVM's LLVM knows each device's triple, CPU and features; its objects have the right machine and ABI."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from edgepack.config.device import DEVICES, device_names, load_device
from edgepack.errors import CheckFailedError
from edgepack.objectfiles.audit import audit
from edgepack.plan.target import CpuTarget


def _compile(targets: dict[str, CpuTarget], folder: Path) -> str:
    """What LLVM says on stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.config.compile_for", str(folder)],
        cwd=Path(__file__).parents[2],
        input=json.dumps({name: target.to_json() for name, target in targets.items()}),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("objects")
    targets = {name: load_device(name).cpu_target() for name in device_names()}
    pi2 = targets["raspberrypi2"]
    targets["bad-feature"] = replace(pi2, features=("+no-such-feature",))
    targets["bad-cpu"] = replace(pi2, cpu="no-such-cpu")
    targets["three-parts"] = replace(pi2, triple="armv7-linux-gnueabihf")
    return folder, _compile(targets, folder)


def _said_for(name: str, text: str) -> str:
    return text.split(f"[{name}]\n", 1)[1].split(f"[/{name}]\n", 1)[0]


@pytest.mark.parametrize("path", sorted(DEVICES.directory.glob("*.yaml")), ids=lambda path: path.stem)
def test_llvm_knows_the_target(path: Path, compiled: tuple[Path, str]) -> None:
    folder, text = compiled
    assert _said_for(path.stem, text) == ""
    device = load_device(path)
    # TVM's own entry point is in these objects; what counts here is the machine and the float ABI.
    lenient = device.model_copy(update={"audit": device.audit.model_copy(update={"symbols": ("*",)})})
    try:
        audit(folder / f"{path.stem}.o", lenient, kind="object")
    except CheckFailedError as error:
        findings = f"{error.message}\n{error.detail}"
        assert "machine:" not in findings
        assert "float ABI:" not in findings


def test_llvm_would_tell_of_an_unknown_name(compiled: tuple[Path, str]) -> None:
    assert "not a recognized feature" in _said_for("bad-feature", compiled[1])
    assert "`-mcpu=no-such-cpu` is not valid" in _said_for("bad-cpu", compiled[1])


def test_a_triple_of_three_parts_gives_soft_float(compiled: tuple[Path, str]) -> None:
    """Why such a triple is refused in a device file; and the audit would find the object."""
    with pytest.raises(CheckFailedError) as caught:
        audit(compiled[0] / "three-parts.o", load_device("raspberrypi2"), kind="object")
    assert "float ABI: found soft; allowed: hard" in f"{caught.value.message}\n{caught.value.detail}"


def test_avx512_devices_use_512_bit_vectors(compiled: tuple[Path, str]) -> None:
    """The EVEX prefix with 512 bits: LLVM's x86-64-v4 prefers 256 unless told otherwise."""
    objdump = shutil.which("objdump")
    assert objdump is not None, "binutils is needed: apt install binutils"
    listing = subprocess.run(
        [objdump, "-d", str(compiled[0] / "linux-x86_64-v4.o")], capture_output=True, text=True, check=True
    ).stdout
    assert "zmm" in listing
