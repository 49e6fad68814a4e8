"""The audit of what ELF objects say about the CPU that they were compiled for: 32-bit ARM and RISC-V.

Objects of other architectures do not say it. Imports lief: load it only to check something.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import lief

from edgepack.config.device import Device
from edgepack.objectfiles.elf.arm_attributes import (
    CPU_ARCH,
    FP_ARCH,
    SIMD_ARCH,
    TAG_CPU_ARCH,
    TAG_FP_ARCH,
    TAG_SIMD_ARCH,
    attributes,
)
from edgepack.objectfiles.report import Finding

__all__ = ["CPU_CHECK", "cpu_architecture", "says_its_cpu", "section_content"]

#: Name of the check in reports.
CPU_CHECK = "CPU architecture"

#: By the first part of a triple: the values of Tag_CPU_arch that such a core runs. The order of the values is
#: not an order of architectures: 6 is v6, 7 v6KZ, 8 v6T2, 9 v6K, 10 v7, 11 v6-M, 12 v6S-M, 13 v7E-M.
_V6 = frozenset({0, 1, 2, 3, 4, 5, 6, 7, 9})
_V7A = _V6 | {8, 10, 11, 12}
_V8A = _V7A | {14}
_RUNS = {
    **{"armv6": _V6, "armv6k": _V6, "armv6kz": _V6, "armv7": _V7A, "armv7a": _V7A, "armv8a": _V8A},
    **{"thumbv6m": {11, 12}, "thumbv7m": {10, 11, 12}, "thumbv7em": {10, 11, 12, 13}},
    **{"thumbv8m.base": {11, 12, 16}, "thumbv8m.main": {10, 11, 12, 13, 16, 17}},
    "thumbv8.1m.main": {10, 11, 12, 13, 16, 17, 21},
}

#: Values of Tag_FP_arch and Tag_Advanced_SIMD_arch that each feature of `cpu_requires` allows.
_FP_BASE = {"armv6": {0, 1, 2}, "armv7": {0, 1, 2, 4}, "armv8": {*range(9)}}
_FP = {"vfp3": {3, 4}, "vfp4": {3, 4, 5, 6}}
_SIMD = {"neon": {1}, "vfp4": {2}}


def says_its_cpu(device: Device) -> bool:
    """Whether object files for a device say what CPU they were compiled for."""
    return device.arch in {"arm", "riscv32", "riscv64"}


def cpu_architecture(binary: lief.ELF.Binary, device: Device) -> Iterator[Finding]:
    """Code for a newer CPU, or with a register file that the runtime does not ask the CPU for."""
    if device.arch == "arm":
        yield from _arm(attributes(section_content(binary, ".ARM.attributes")), device)
    elif device.arch.startswith("riscv"):
        yield from _riscv(section_content(binary, ".riscv.attributes"), device)


def section_content(binary: lief.ELF.Binary, name: str) -> bytes:
    """The bytes of the first section of this name; none if there is no such section."""
    return next((bytes(s.content) for s in binary.sections if s.name == name), b"")


def _arm(found: dict[int, int | str], device: Device) -> Iterator[Finding]:
    first = device.llvm.triple.split("-", 1)[0]
    arch, runs = int(found.get(TAG_CPU_ARCH, 0)), _RUNS.get(first)
    if runs is not None and arch not in runs:
        yield Finding(CPU_CHECK, _name(CPU_ARCH, arch), f"what {first} runs")
    if device.bare_metal:
        return  # the firmware's compiler chooses the FPU; no runtime asks for it
    required = set(device.cpu_requires)
    fp, simd = int(found.get(TAG_FP_ARCH, 0)), int(found.get(TAG_SIMD_ARCH, 0))
    base = _FP_BASE.get(first.replace("thumb", "arm")[:5], {0})
    allowed_fp = base.union(*(_FP[f] for f in required & _FP.keys()))
    allowed_simd = {0}.union(*(_SIMD[f] for f in required & _SIMD.keys()))
    names = ", ".join(device.cpu_requires) or "nothing"
    if fp not in allowed_fp:
        yield Finding(CPU_CHECK, _name(FP_ARCH, fp), f"what {first} has and `cpu_requires` names ({names})")
    if simd not in allowed_simd:
        yield Finding(CPU_CHECK, _name(SIMD_ARCH, simd), f"what `cpu_requires` names ({names})")


def _name(names: tuple[str, ...], value: int) -> str:
    return names[value] if value < len(names) else f"value {value}"


def _riscv(section: bytes, device: Device) -> Iterator[Finding]:
    """Vector code where the device does not ask for V; in firmware any extension of one letter that the
    device does not name. The attribute is a text: rv64i2p1_m2p0_v1p0."""
    text = re.search(rb"rv(?:32|64)[a-z0-9_]*", section)
    extensions = text.group().decode().split("_") if text else []
    vectors = [e for e in extensions if re.match(r"v\d|zv", e)]
    if vectors and "v" not in device.cpu_requires:
        yield Finding(CPU_CHECK, " ".join(vectors), "no vectors (`cpu_requires` does not name v)")
    named = {"i", *(feature[1:] for feature in device.llvm.features if feature.startswith("+"))}
    letters = [e.removeprefix("rv32")[0] for e in extensions if re.match(r"(rv32)?[a-y]\d", e)]
    if device.bare_metal and (more := [letter for letter in letters if letter not in named]):
        yield Finding(CPU_CHECK, " ".join(more), f"`llvm.features` ({' '.join(device.llvm.features)})")
