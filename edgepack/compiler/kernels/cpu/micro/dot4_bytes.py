"""The micro-kernel of quads of bytes, whose products are summed in int32 by the instructions that CPUs have.

A unit is four neighbouring elements of the reduction in one int32, so a tile of sums reads quads as it would
read numbers. Which of the two operands is signed is the instruction's: the graph stores quantised tensors so
(:class:`edgepack.compiler.graph.quantised_values.ByteProducts`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tvm import tirx
from tvm.tirx import IntImm

from edgepack.compiler.graph.quantised_values import ByteProducts
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.micro.int32_units import Int32Units, dot4_by_shifts
from edgepack.compiler.kernels.cpu.micro.reduced_vectors import reduces_vectors
from edgepack.compiler.kernels.cpu.micro.single_bytes import single_bytes
from edgepack.compiler.kernels.cpu.micro.widened_bytes import widened_rate, widens_bytes
from edgepack.compiler.kernels.cpu.micro.word_pairs import pairs_in_words
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.compiler.tvm_target import has_feature
from edgepack.plan.target import CpuTarget

__all__ = ["Dot4Bytes", "byte_products"]


class Dot4(NamedTuple):
    """An instruction that adds the four products of two quads to a sum.

    Attributes:
        features: LLVM's names of what brings it.
        lanes: sums in its vector.
        left: element type of the left operand; the right one is int8.
        intrinsic: LLVM's name of it: (sums, left, right), or, of those that add two products at a time and
        saturate
            them at 16 bits, (left, right).
        pairs: LLVM's name of what adds pairs of 16 bits, for those.
        rate: multiply-adds in the time of one of float32. Measured on Sapphire Rapids (VNNI) and Zen 3
        (pairs).
    """

    features: tuple[str, ...]
    lanes: int
    left: str
    intrinsic: str
    pairs: str = ""
    rate: float = 4.0


_SSSE3 = Dot4(("ssse3",), 4, "uint8", "llvm.x86.ssse3.pmadd.ub.sw.128", "llvm.x86.sse2.pmadd.wd", 1.9)
_AVX2 = Dot4(("avx2",), 8, "uint8", "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd", 1.9)

#: The best first, of as many lanes.
INSTRUCTIONS = (
    Dot4(("avx512vnni", "avx512bw"), 16, "uint8", "llvm.x86.avx512.vpdpbusd.512"),
    Dot4(("avxvnni",), 8, "uint8", "llvm.x86.avx512.vpdpbusd.256"),
    Dot4(("avx512vnni", "avx512vl"), 8, "uint8", "llvm.x86.avx512.vpdpbusd.256"),
    _AVX2,
    Dot4(("avxvnni",), 4, "uint8", "llvm.x86.avx512.vpdpbusd.128"),
    Dot4(("avx512vnni", "avx512vl"), 4, "uint8", "llvm.x86.avx512.vpdpbusd.128"),
    _SSSE3,
    # LLVM's name of ARMv8's 32 bits is v8, of its 64 bits v8a.
    Dot4(("dotprod", "neon", "v8"), 4, "int8", "llvm.arm.neon.sdot.v4i32.v16i8"),
    Dot4(("dotprod", "neon"), 4, "int8", "llvm.aarch64.neon.sdot.v4i32.v16i8"),
)


def _instruction(target: CpuTarget, lanes: int) -> Dot4 | None:
    """The instruction for vectors of so many sums."""
    return next(
        (
            one
            for one in INSTRUCTIONS
            if one.lanes == lanes and all(has_feature(target, f) for f in one.features)
        ),
        None,
    )


def _widest(target: CpuTarget) -> Dot4 | None:
    """The instruction for vectors as wide as the target's, or for the widest that are narrower."""
    lanes = target.lanes("int32")
    while lanes >= 4:
        if (found := _instruction(target, lanes)) is not None:
            return found
        lanes //= 2
    return None


def byte_products(target: CpuTarget) -> ByteProducts | None:
    """How a CPU multiplies bytes; None where it has no instruction for it."""
    found = _widest(target)
    if found is not None:
        return ByteProducts(found.left, saturates=bool(found.pairs), rate=found.rate)
    if widens_bytes(target):
        return ByteProducts("int8", least=-127, rate=widened_rate(target))
    if reduces_vectors(target):
        return ByteProducts("int8", rate=4.0, whole=False)
    if pairs_in_words(target) or single_bytes(target):
        return ByteProducts("int8", rate=1.0, whole=False)
    return None


@dataclass(frozen=True)
class Dot4Bytes(Int32Units):
    """Broadcasts a quad of each row, and multiplies it by quads of the columns' weights.

    On x86 before VNNI two products are added in 16 bits first, which saturate: the graph has products of
    bytes there only where the weights are such that no two of them can.
    """

    order = 150
    group = 4
    packed = "i1"

    @classmethod
    def of(cls, types: ProductTypes, target: CpuTarget) -> Dot4Bytes | None:
        found = _widest(target)
        if found is None or (types.left, types.right, types.sums) != (found.left, "int8", "int32"):
            return None
        return cls(types, replace(target, vector_bits=min(target.vector_bits, 32 * found.lanes)))

    @property
    def layout(self) -> str:
        return "quads"

    @property
    def panel_columns(self) -> int:
        return self.target.panel_columns

    def multiply_add(self, e: Emitter, left: Any, right: Any, sums: Any, lanes: int) -> Any:
        """``sums`` + the four products of bytes of ``left`` and ``right``."""
        found = _instruction(self.target, lanes)
        if found is None:
            return dot4_by_shifts(e, (left, right), sums, lanes, self.types.left)
        a, b = (tirx.reinterpret(f"int8x{4 * lanes}", x) for x in (left, right))
        vector = f"int32x{lanes}"
        if not found.pairs:
            return tirx.call_llvm_pure_intrin(vector, found.intrinsic, sums, a, b)
        pairs = tirx.call_llvm_pure_intrin(f"int16x{2 * lanes}", found.intrinsic, a, b)
        ones = e.splat(IntImm("int16", 1), 2 * lanes)
        return sums + tirx.call_llvm_pure_intrin(vector, found.pairs, pairs, ones)

    @property
    def rate(self) -> float:
        """That of the instruction, for vectors of as many sums as the target has of float32."""
        found = _instruction(self.target, self.lanes)
        return found.rate * self.lanes / self.target.word_lanes if found else 1.0

    def parameters(self) -> dict[str, Any]:
        return {"operands": "quads of bytes", "rate": self.rate}
