"""This machine's CPU in words: its name, and the instructions that decide on kernels."""

from __future__ import annotations

import datetime
import platform
import re
from collections.abc import Mapping
from pathlib import Path

__all__ = ["cpuinfo", "instructions", "name", "today"]

#: (vendor, family, models) -> microarchitecture, for CPUs whose name does not say it. Linux:
#: arch/x86/include/asm/intel-family.h; AMD's families as arch/x86/kernel/cpu/amd.c has them.
_ARCHITECTURES: tuple[tuple[str, int, range, str], ...] = (
    ("AuthenticAMD", 0x1A, range(256), "Zen 5"),
    ("AuthenticAMD", 0x19, range(0x10, 0x20), "Zen 4"),
    ("AuthenticAMD", 0x19, range(0x60, 0x80), "Zen 4"),
    ("AuthenticAMD", 0x19, range(0xA0, 0xB0), "Zen 4"),
    ("AuthenticAMD", 0x19, range(256), "Zen 3"),
    ("AuthenticAMD", 0x17, range(0x30, 256), "Zen 2"),
    ("AuthenticAMD", 0x17, range(256), "Zen"),
    ("GenuineIntel", 6, range(0xAD, 0xAF), "Granite Rapids"),
    ("GenuineIntel", 6, range(0xCF, 0xD0), "Emerald Rapids"),
    ("GenuineIntel", 6, range(0x8F, 0x90), "Sapphire Rapids"),
    ("GenuineIntel", 6, range(0x6A, 0x6D), "Ice Lake"),
    ("GenuineIntel", 6, range(0x55, 0x56), "Skylake or Cascade Lake"),
    ("GenuineIntel", 6, range(0x4F, 0x50), "Broadwell"),
    ("GenuineIntel", 6, range(0x3F, 0x40), "Haswell"),
)

#: Flags of /proc/cpuinfo, the best of each group first, and what they are called.
_FLAGS: tuple[tuple[tuple[str, str], ...], ...] = (
    (("avx512f", "AVX-512"), ("avx2", "AVX2"), ("avx", "AVX"), ("sse2", "SSE2")),
    (("avx512_vnni", "VNNI"), ("avx_vnni", "VNNI")),
    (("amx_int8", "AMX"),),
    (("sve", "SVE"), ("asimd", "NEON"), ("neon", "NEON")),
    (("asimddp", "dot products"),),
    (("i8mm", "I8MM"),),
)


def cpuinfo(text: str | None = None) -> dict[str, str]:
    """The first CPU's lines of /proc/cpuinfo; what Python knows where there is none."""
    if text is None:
        try:
            text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return {"model name": platform.processor() or platform.machine()}
    first = text.strip().split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def name(info: Mapping[str, str] | None = None) -> str:
    """``AMD EPYC, Zen 5``."""
    info = cpuinfo() if info is None else info
    text = info.get("model name") or info.get("Model") or platform.machine()
    text = re.sub(r"\((?:R|TM|r|tm)\)| CPU| Processor| @.*$", "", text)
    text = re.sub(r" \d+-Core", "", text).replace("|", "/").strip()
    for vendor, family, models, called in _ARCHITECTURES:
        known = (info.get("vendor_id"), info.get("cpu family")) == (vendor, str(family))
        if known and int(info.get("model", "-1")) in models:
            return f"{text}, {called}"
    return text


def instructions(info: Mapping[str, str] | None = None) -> str:
    """``AVX-512, VNNI``."""
    info = cpuinfo() if info is None else info
    flags = set((info.get("flags") or info.get("Features") or "").split())
    best = (next((called for flag, called in group if flag in flags), "") for group in _FLAGS)
    return ", ".join(called for called in best if called) or platform.machine()


def today() -> str:
    """The date, in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()
