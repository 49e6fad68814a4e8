"""Code for a newer CPU than the device's is found in what is built: 32-bit ARM and RISC-V objects say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.config.device import load_device
from edgepack.errors import CheckFailedError
from edgepack.objectfiles.audit import audit
from edgepack.objectfiles.elf.cpu import CPU_CHECK
from edgepack.toolchains import resolve
from tests.support.c_sources import SOURCES


def _object(folder: Path, device: str, *flags: str) -> Path:
    made = folder / "object.o"
    resolve(load_device(device)).compile_c(SOURCES / "two_exports.c", made, flags=flags)
    return made


def _found(path: Path, device: str) -> list[str]:
    """What the audit for a device says of the CPU."""
    try:
        audit(path, load_device(device), kind="object")
    except CheckFailedError as error:
        lines = f"{error.message}\n{error.detail}".splitlines()
        return [line.split(f"{CPU_CHECK}: ")[1] for line in lines if CPU_CHECK in line]
    return []


def test_armv7_code_is_refused_on_armv6(folder: Path) -> None:
    made = _object(folder, "linux-armv7")
    assert _found(made, "linux-armv7") == []
    first, second, third = _found(made, "raspberrypi0")
    assert first == "found ARMv7; allowed: what armv6 runs"
    assert second == "found VFPv3; allowed: what armv6 has and `cpu_requires` names (nothing)"
    assert third == "found NEON; allowed: what `cpu_requires` names (nothing)"


def test_armv6_code_runs_on_armv7(folder: Path) -> None:
    made = _object(folder, "raspberrypi0")
    assert _found(made, "raspberrypi0") == []
    assert _found(made, "linux-armv7") == []
    assert CPU_CHECK in audit(made, load_device("raspberrypi0"), kind="object").checks


def test_vfp4_is_refused_unless_the_runtime_asks_for_it(folder: Path) -> None:
    made = _object(folder, "linux-armv7", "-mcpu=cortex_a7")
    assert _found(made, "raspberrypi2") == []
    fp, simd = _found(made, "linux-armv7")
    assert fp.startswith("found VFPv4; allowed: what armv7a has and `cpu_requires` names (neon, vfp3)")
    assert simd.startswith("found NEON with FMA; allowed: ")


def test_a_linked_library_says_it_too(folder: Path) -> None:
    """Debian's start code and libgcc for 32-bit ARM are ARMv7, which a linker takes along without a word."""
    toolchain = resolve(load_device("raspberrypi0"), "gcc")
    toolchain.compile_c(SOURCES / "two_exports.c", folder / "object.o")
    assert _found(folder / "object.o", "raspberrypi0") == []
    toolchain.link_shared([folder / "object.o"], folder / "lib.so", exported=["second"], soname="lib.so")
    with pytest.raises(CheckFailedError, match=r"lib\.so: CPU architecture: found ARMv7; allowed: "):
        audit(folder / "lib.so", load_device("raspberrypi0"), kind="shared", exported=["second"])


def test_vector_code_is_refused_on_risc_v_without_vectors(folder: Path) -> None:
    made = _object(folder, "linux-riscv64", "-mcpu=baseline_rv64+v")
    (found,) = _found(made, "linux-riscv64")
    assert found.startswith("found v1p0 zve32f1p0 ")
    assert found.endswith("allowed: no vectors (`cpu_requires` does not name v)")
    assert _found(made, "linux-riscv64-v") == []
    assert _found(_object(folder, "linux-riscv64"), "linux-riscv64") == []


def test_a_soft_float_riscv_object_is_refused(folder: Path) -> None:
    made = _object(folder, "linux-riscv64", "-mabi=lp64")
    with pytest.raises(CheckFailedError, match=r"float ABI: found flags 0x1; allowed: lp64d"):
        audit(made, load_device("linux-riscv64"), kind="object")


def test_x86_objects_do_not_say_it(folder: Path) -> None:
    made = _object(folder, "linux-x86_64")
    assert CPU_CHECK not in audit(made, load_device("linux-x86_64"), kind="object").checks
