"""This machine as its operating system describes it: what the `host` device is made of."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from edgepack.config import cpuinfo
from edgepack.errors import ConfigError
from edgepack.system.process import ask

__all__ = ["Machine", "describe", "detect", "probe"]

#: Base device by (operating system, architecture): the compilers, the audit and the triple come from there.
_BASE = {
    ("linux", "x86_64"): "linux-x86_64",
    ("linux", "aarch64"): "linux-aarch64",
    ("linux", "arm"): "linux-armv7",
    ("linux", "riscv64"): "linux-riscv64",
    ("macos", "x86_64"): "macos-x86_64",
    ("macos", "aarch64"): "macos-arm64",
    ("windows", "x86_64"): "windows-x86_64",
}
_ARCH = {
    "amd64": "x86_64",
    "x86_64": "x86_64",
    "arm64": "aarch64",
    "aarch64": "aarch64",
    "riscv64": "riscv64",
}
#: Features of x86-64 that Linux permits to a process that asks for them.
TILES = frozenset({"amx-tile", "amx-int8"})
#: Linux's number of the system call on x86-64, and what it is given (asm/prctl.h).
ARCH_PRCTL, ARCH_GET_XCOMP_SUPP, XFEATURE_XTILEDATA = 158, 0x1021, 18

_OS = {"Linux": "linux", "Darwin": "macos", "Windows": "windows"}


@dataclass(frozen=True)
class Machine:
    """What was found out.

    Caches in bytes, 0 if unknown; ``cores`` are those that this process may use; ``glibc`` is its version, ""
    where the C library is another; ``datapath_bits`` is 0 if unknown.
    """

    os: str
    arch: str
    features: frozenset[str] = frozenset()
    l1d: int = 0
    l2: int = 0
    l3: int = 0
    cores: int = 1
    heterogeneous: bool = False
    glibc: str = ""
    datapath_bits: int = 0


def detect() -> dict[str, Any]:
    """This machine as fields of a device file; ``extends`` names the device that it is a kind of."""
    return describe(probe())


def describe(machine: Machine) -> dict[str, Any]:
    """A machine as fields of a device file. Raises ConfigError for one that no device is like."""
    base = _BASE.get((machine.os, machine.arch))
    if base is None:
        raise ConfigError(
            f"host: edgepack does not know this kind of machine ({machine.os}, {machine.arch})",
            hint="Name another device with --device; `edgepack devices` lists them.",
        )
    cpu: dict[str, Any] = {}
    if machine.l1d:
        cpu["l1d"] = machine.l1d
    if machine.l2:
        cpu["l2"] = machine.l2
    if machine.l3:
        cpu["l3"] = machine.l3
    result: dict[str, Any] = {
        "extends": base,
        "cpu": cpu,
        "threads": machine.cores,
        "heterogeneous": machine.heterogeneous,
    }
    if machine.glibc:
        result["audit"] = {"glibc": machine.glibc}
    if machine.arch == "x86_64":
        result |= _describe_x86(machine.features, cpu)
        if 0 < machine.datapath_bits < cpu.get("vector_bits", 0):
            cpu["datapath_bits"] = machine.datapath_bits
    elif machine.arch in {"aarch64", "arm"}:
        found = sorted(machine.features)
        result |= {"llvm": {"features": [f"+{name}" for name in found]}, "cpu_requires": found}
        if machine.arch == "arm":
            # Without NEON the Advanced SIMD registers are not there; VFP alone works one element at a time.
            cpu |= {} if "neon" in found else {"vector_bits": 0, "vector_registers": 0}
            cpu["fma"] = "vfp4" in found
    return result


def _describe_x86(features: frozenset[str], cpu: dict[str, Any]) -> dict[str, Any]:
    level, filled = cpuinfo.x86_level(features)
    extra = sorted(features - filled)
    llvm_features = [f"+{name}" for name in extra]
    if "avx512vl" in filled:
        cpu |= {"vector_bits": 512, "vector_registers": 32}
        # x86-64-v4 comes tuned for 256-bit vectors, for CPUs whose clock falls with wider ones.
        llvm_features.append("-prefer-256-bit")
    elif "avx" in features:
        cpu |= {"vector_bits": 256, "vector_registers": 16}
    cpu["fma"] = "fma" in features
    return {
        "llvm": {"cpu": level, "features": llvm_features},
        "cpu_requires": sorted(features),
    }


def probe() -> Machine:
    """Ask the operating system."""
    system = _OS.get(platform.system(), platform.system().lower())
    arch = _architecture(platform.machine(), struct.calcsize("P") * 8)
    if sys.platform == "darwin":
        return _probe_macos(arch)
    if sys.platform == "win32":
        return Machine(system, arch, _probe_windows_features(arch), cores=os.cpu_count() or 1)
    machine = _probe_linux(system, arch, Path("/"))
    if TILES & machine.features and not _permits_tiles():
        machine = replace(machine, features=machine.features - TILES)
    return machine


def _permits_tiles() -> bool:
    """Whether Linux, or the sandbox that this process is in, permits the use of AMX's tiles to those who ask:
    what it tells by arch_prctl(ARCH_GET_XCOMP_SUPP), which asks for nothing yet."""
    supported = ctypes.c_uint64(0)
    done = ctypes.CDLL(None).syscall(ARCH_PRCTL, ARCH_GET_XCOMP_SUPP, ctypes.byref(supported))
    return bool(done == 0 and supported.value >> XFEATURE_XTILEDATA & 1)


def _architecture(machine: str, pointer_bits: int) -> str:
    """The architecture of *this process*: a 32-bit userland on a 64-bit kernel is an arm."""
    name = machine.lower()
    arch = _ARCH.get(name, "arm" if name.startswith("arm") else name)
    if pointer_bits == 32:
        return {"aarch64": "arm", "x86_64": "x86"}.get(arch, arch)
    return arch


def _probe_linux(system: str, arch: str, root: Path) -> Machine:
    """Linux below ``root`` (``/``, or a copy of /proc and /sys)."""
    affinity: Iterable[int] = range(os.cpu_count() or 1)
    if hasattr(os, "sched_getaffinity"):
        affinity = os.sched_getaffinity(0)
    cpus = [root / f"sys/devices/system/cpu/cpu{number}" for number in sorted(affinity)]
    # Hyper-threads share one core's units: a second one adds nothing to these kernels.
    siblings = [_text(cpu / "topology/thread_siblings_list") or cpu.name for cpu in cpus]
    cores = len(set(siblings))
    if quota := _quota(root):
        cores = min(cores, quota)
    caches = _linux_caches(cpus[0]) if cpus else {}
    capacities = {_text(cpu / "cpu_capacity") for cpu in cpus}
    hybrid = (root / "sys/devices/cpu_core").is_dir() and (root / "sys/devices/cpu_atom").is_dir()
    return Machine(
        os=system,
        arch=arch,
        features=cpuinfo.linux_features(_text(root / "proc/cpuinfo"), arch),
        l1d=caches.get(1, 0),
        l2=caches.get(2, 0),
        l3=caches.get(3, 0),
        cores=max(1, cores),
        heterogeneous=len(capacities) > 1 or hybrid,
        glibc=_glibc_version(),
        datapath_bits=cpuinfo.linux_datapath_bits(_text(root / "proc/cpuinfo")),
    )


def _linux_caches(cpu: Path) -> dict[int, int]:
    """Data caches of a CPU: level -> bytes."""
    found: dict[int, int] = {}
    for index in sorted(cpu.glob("cache/index*")):
        level, kind = _text(index / "level"), _text(index / "type")
        if level.isdigit() and kind in {"Data", "Unified"}:
            found[int(level)] = cpuinfo.parse_cache_size(_text(index / "size"))
    return found


def _glibc_version() -> str:
    """``2.36``; "" where the C library of this process is not glibc."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, ValueError, OSError):
        return ""
    return version if name == "glibc" else ""


def _quota(root: Path) -> int:
    """CPUs that a container's limit (cgroup v2) allows, rounded up; 0 without a limit."""
    words = _text(root / "sys/fs/cgroup/cpu.max").split()
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
        return max(1, ceil(int(words[0]) / int(words[1])))
    return 0


def _probe_macos(arch: str) -> Machine:
    return macos_machine(ask(["/usr/sbin/sysctl", "-a"], timeout=10), arch)


def macos_machine(sysctl: str, arch: str) -> Machine:
    """A Mac from what ``sysctl -a`` prints. Threads: its performance cores."""
    values = dict(line.split(": ", 1) for line in sysctl.splitlines() if ": " in line)

    def number(*names: str) -> int:
        return next((int(values[name]) for name in names if values.get(name, "").isdigit()), 0)

    return Machine(
        os="macos",
        arch=arch,
        features=cpuinfo.apple_features(values, arch),
        l1d=number("hw.perflevel0.l1dcachesize", "hw.l1dcachesize"),
        l2=number("hw.perflevel0.l2cachesize", "hw.l2cachesize"),
        l3=number("hw.l3cachesize"),
        cores=number("hw.perflevel0.physicalcpu", "hw.physicalcpu") or os.cpu_count() or 1,
        heterogeneous=number("hw.nperflevels") > 1,
    )


def _probe_windows_features(arch: str) -> frozenset[str]:
    if sys.platform != "win32":
        return frozenset()
    import ctypes

    present = ctypes.windll.kernel32.IsProcessorFeaturePresent
    return cpuinfo.windows_features([number for number in range(64) if present(number)], arch)


def _text(path: Path) -> str:
    """A small file's text without the ends' white space; "" if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
