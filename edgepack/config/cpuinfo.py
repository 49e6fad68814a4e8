"""CPU features and caches as operating systems report them, in LLVM's names. Texts in, plain data out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

__all__ = [
    "X86_LEVELS",
    "apple_features",
    "linux_datapath_bits",
    "linux_features",
    "parse_cache_size",
    "windows_features",
    "x86_level",
]

#: x86-64 psABI levels, lowest first: name in LLVM, and the features that the level adds to the one below
#: (only those that the runtime can check; the others, like cmpxchg16b, come with them in every CPU).
X86_LEVELS: tuple[tuple[str, frozenset[str]], ...] = (
    ("x86-64", frozenset()),
    ("x86-64-v2", frozenset({"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"})),
    ("x86-64-v3", frozenset({"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"})),
    ("x86-64-v4", frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})),
)

# /proc/cpuinfo's word -> LLVM's name, where they differ. Linux: arch/x86/include/asm/cpufeatures.h and
# arch/arm*/kernel/cpuinfo.c.
_LINUX = {
    "x86_64": {
        **{w: w for w in ("ssse3", "popcnt", "bmi2", "movbe", "avx", "avx2", "fma", "f16c")},
        **{w: w for w in ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512vbmi")},
        **{"pni": "sse3", "sse4_1": "sse4.1", "sse4_2": "sse4.2", "abm": "lzcnt", "bmi1": "bmi"},
        **{"avx512_vnni": "avx512vnni", "avx512_bf16": "avx512bf16", "avx512_fp16": "avx512fp16"},
        **{"avx_vnni": "avxvnni", "amx_tile": "amx-tile", "amx_int8": "amx-int8"},
    },
    "aarch64": {
        **{w: w for w in ("i8mm", "bf16", "sve")},
        **{"asimd": "neon", "asimdhp": "fullfp16", "asimddp": "dotprod"},
    },
    "arm": {"neon": "neon", "asimd": "neon", "vfpv3": "vfp3", "vfpv4": "vfp4"},
    "riscv64": {},
}

_APPLE_X86 = {
    **{"SSE3": "sse3", "SSSE3": "ssse3", "SSE4.1": "sse4.1", "SSE4.2": "sse4.2", "POPCNT": "popcnt"},
    **{"LZCNT": "lzcnt", "BMI1": "bmi", "BMI2": "bmi2", "MOVBE": "movbe", "AVX1.0": "avx", "AVX2": "avx2"},
    **{"FMA": "fma", "F16C": "f16c", "AVX512F": "avx512f", "AVX512BW": "avx512bw", "AVX512CD": "avx512cd"},
    **{"AVX512DQ": "avx512dq", "AVX512VL": "avx512vl", "AVX512VNNI": "avx512vnni"},
    "AVX512VBMI": "avx512vbmi",
}
_APPLE_ARM = {
    "hw.optional.arm.FEAT_FP16": "fullfp16",
    "hw.optional.arm.FEAT_DotProd": "dotprod",
    "hw.optional.arm.FEAT_I8MM": "i8mm",
    "hw.optional.arm.FEAT_BF16": "bf16",
}

# PROCESSOR_FEATURE_ID of IsProcessorFeaturePresent (winnt.h). It has no number for FMA, BMI and the like:
# every CPU that Windows shows AVX2 for has the whole of x86-64-v3, and AVX512F the whole of v4 but for
# Knights Landing, which the runtime's own check refuses.
_WINDOWS_X86 = {13: {"sse3"}, 36: {"ssse3"}, 37: {"sse4.1"}, 38: {"sse4.2", "popcnt"}, 39: {"avx"}}
_WINDOWS_X86_LEVEL = {40: 2, 41: 3}
_WINDOWS_ARM = {43: "dotprod"}


def linux_features(cpuinfo: str, arch: str) -> frozenset[str]:
    """LLVM features that *every* CPU of ``/proc/cpuinfo`` has.

    A thread may run on any core, and there are machines (big.LITTLE, some virtual ones) whose cores differ.
    """
    names = _LINUX.get(arch, {})
    found: list[frozenset[str]] = []
    for line in cpuinfo.splitlines():
        key, _, words = line.partition(":")
        key = key.strip()
        if key in {"flags", "Features"}:
            found.append(frozenset(names[word] for word in words.split() if word in names))
        elif key == "isa" and arch == "riscv64":
            # rv64imafdcv_zicsr_...: single letters stand before the first underscore
            found.append(frozenset({"v"} if "v" in words.strip().lower().split("_")[0][4:] else ()))
    return frozenset.intersection(*found) if found else frozenset()


def linux_datapath_bits(cpuinfo: str) -> int:
    """Width in bits of the arithmetic units, if it is known to be less than AVX-512's vectors, else 0.

    AMD's family 25 (Zen 3 and 4) does a vector of 512 bits in two halves (Software Optimization Guide for the
    AMD Zen4 Microarchitecture, 57647).
    """
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    fields = {key.strip(): value.strip() for key, _, value in lines}
    return 256 if (fields.get("vendor_id"), fields.get("cpu family")) == ("AuthenticAMD", "25") else 0


def apple_features(sysctl: Mapping[str, str], arch: str) -> frozenset[str]:
    """LLVM features from ``sysctl`` values (name -> text)."""
    if arch == "x86_64":
        words = " ".join(
            sysctl.get(f"machdep.cpu.{name}", "") for name in ("features", "leaf7_features", "extfeatures")
        )
        return frozenset(_APPLE_X86[word] for word in words.split() if word in _APPLE_X86)
    present = {llvm for name, llvm in _APPLE_ARM.items() if sysctl.get(name) == "1"}
    return frozenset(present | {"neon"})


def windows_features(present: Iterable[int], arch: str) -> frozenset[str]:
    """LLVM features from the PROCESSOR_FEATURE_ID numbers that are present."""
    numbers = set(present)
    if arch == "aarch64":
        return frozenset({"neon"} | {name for number, name in _WINDOWS_ARM.items() if number in numbers})
    features = {name for number in numbers for name in _WINDOWS_X86.get(number, ())}
    for number, level in _WINDOWS_X86_LEVEL.items():
        if number in numbers:
            features |= frozenset.union(*(added for _, added in X86_LEVELS[: level + 1]))
    return frozenset(features)


def x86_level(features: frozenset[str]) -> tuple[str, frozenset[str]]:
    """The highest x86-64 level that ``features`` fill: its LLVM CPU name, and all features it stands for."""
    name, filled = X86_LEVELS[0]
    for level, added in X86_LEVELS[1:]:
        if not added <= features:
            break
        name, filled = level, filled | added
    return name, filled


def parse_cache_size(text: str) -> int:
    """sysfs' ``48K``, ``2M`` or ``1024`` -> bytes; 0 if it is none of these."""
    match = re.fullmatch(r"\s*([0-9]+)([KMG]?)\s*", text)
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]] if match else 0
