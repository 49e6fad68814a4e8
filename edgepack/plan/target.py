"""What the kernels need to know of a CPU: the shared type between ``config`` (which makes it from a device's
YAML) and ``graph``, ``kernels`` and ``codegen`` (which compile for it)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["CPU_FEATURES", "CpuTarget", "Optimize"]

#: CPU features that a library can require, by architecture (LLVM's names): those that the runtime can check
#: (``templates/runtime/core/cpu.c``).
CPU_FEATURES: dict[str, tuple[str, ...]] = {
    "x86_64": (
        *("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "lzcnt", "bmi", "bmi2", "movbe"),
        *("avx", "avx2", "fma", "f16c"),
        *("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
        *("avx512vnni", "avx512bf16", "avx512fp16"),
    ),
    "aarch64": ("neon", "fullfp16", "dotprod", "i8mm", "bf16", "sve"),
    "arm": ("neon", "vfp3", "vfp4", "fp16"),
    "riscv64": ("v",),
    "wasm32": (),
}

#: What kernels are chosen for: the shortest time, the fewest bytes of params, or most of the one for some of
#: the other (see kernels/cost.py).
Optimize = Literal["latency", "size", "balanced"]


@dataclass(frozen=True)
class CpuTarget:
    """A CPU as LLVM and the kernel rules see it, and what the user prefers on it.

    Attributes:
        triple: LLVM triple, always four parts (``aarch64-unknown-linux-gnu``): with three LLVM silently picks
            another float ABI for ARM.
        cpu: LLVM CPU name (``cortex-a72``), or "" for the triple's baseline.
        features: LLVM features (``+avx2``), in a fixed order.
        abi: LLVM ABI name (``lp64d``), or "" for the triple's default.
        vector_bits: width of one SIMD register in bits; 0 for a scalar target.
        vector_registers: how many SIMD registers the register tiles may use.
        datapath_bits: width that the arithmetic units work on at once, where it is less than ``vector_bits``:
            half a vector then takes half the time; 0 where it is not less.
        fma: whether fused multiply-add is one instruction.
        l1d_bytes, l2_bytes: data cache sizes of one core, in bytes.
        l3_bytes: size of the cache behind them that cores share, in bytes; 0 where none is known.
        threads: threads that a session uses unless the caller asks for another number.
        optimize: what the rules prefer.
        strict_math: neither Winograd's transforms nor polynomials for elementary functions: results differ
            from the model's own arithmetic by the order of sums only.
    """

    triple: str
    cpu: str = ""
    features: tuple[str, ...] = ()
    abi: str = ""
    vector_bits: int = 128
    vector_registers: int = 16
    datapath_bits: int = 0
    fma: bool = False
    l1d_bytes: int = 32 * 1024
    l2_bytes: int = 256 * 1024
    l3_bytes: int = 0
    threads: int = 1
    optimize: Optimize = "latency"
    strict_math: bool = False

    @property
    def arch(self) -> str:
        """First part of the triple (``x86_64``, ``armv7a``)."""
        return self.triple.split("-", 1)[0]

    @property
    def pointer_bytes(self) -> int:
        """Size of a pointer on the target, in bytes."""
        return 8 if "64" in self.arch and "ilp32" not in self.triple else 4

    @property
    def half_vectors(self) -> bool:
        """Whether vectors of float16 may be used: for RISC-V's V alone, without Zvfhmin, LLVM ends with
        "Scalarization of scalable vectors is not supported"."""
        return not self.arch.startswith("riscv") or not {"+zvfh", "+zvfhmin"}.isdisjoint(self.features)

    def lanes(self, dtype: str) -> int:
        """Elements of ``dtype`` in one SIMD register, at least 1."""
        bits = {"bool": 8}.get(dtype) or int("".join(c for c in dtype if c.isdigit()))
        return max(1, self.vector_bits // bits)

    def to_json(self) -> dict[str, Any]:
        """Plain data, for a job file or a cache key."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CpuTarget:
        """Inverse of :meth:`to_json`."""
        return cls(**{**data, "features": tuple(data["features"])})
