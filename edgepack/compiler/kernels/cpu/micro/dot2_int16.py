"""The micro-kernel of pairs of int16, whose products are summed in int32 by the instructions that CPUs have.

A unit is two neighbouring elements of the reduction in one int32, so a tile of sums reads pairs as it would
read numbers. The multiply-add is exact but for the sum, which wraps around at 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tvm import tirx
from tvm.ir import Call
from tvm.tirx import IntImm

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.micro.int32_units import Int32Units
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.compiler.tvm_target import has_feature
from edgepack.plan.target import CpuTarget

__all__ = ["Dot2Int16", "dot2_lanes"]


class Dot2(NamedTuple):
    """An instruction that multiplies pairs.

    Attributes:
        feature: LLVM's name of what brings it.
        lanes: sums in its vector.
        intrinsic: LLVM's name of it.
        adds: whether it adds to sums, which are its third operand.
    """

    feature: str
    lanes: int
    intrinsic: str
    adds: bool = False


#: LLVM's names of what brings an instruction that adds the products to sums, which it makes of the two.
_ADDING = ("avx512vnni", "avxvnni")

#: Narrowest first. That of one lane multiplies in general registers, and is for CPUs without vectors.
INSTRUCTIONS = (
    Dot2("dsp", 1, "llvm.arm.smlad", adds=True),
    Dot2("simd128", 4, "llvm.wasm.dot"),
    Dot2("sse2", 4, "llvm.x86.sse2.pmadd.wd"),
    Dot2("avx2", 8, "llvm.x86.avx2.pmadd.wd"),
    Dot2("avx512bw", 16, "llvm.x86.avx512.pmaddw.d.512"),
)


def _instructions(target: CpuTarget) -> list[Dot2]:
    """The instructions that the CPU has for vectors as wide as the target's, or narrower."""
    lanes = target.lanes("int32")
    least = min(lanes, 2)
    return [one for one in INSTRUCTIONS if least <= one.lanes <= lanes and has_feature(target, one.feature)]


def dot2_lanes(target: CpuTarget) -> int:
    """Sums that one instruction adds a pair of products to each of; 0 where the CPU has none."""
    return max((one.lanes for one in _instructions(target)), default=0)


@dataclass(frozen=True)
class Dot2Int16(Int32Units):
    """Broadcasts a pair of each row, and multiplies it by pairs of the columns' weights."""

    order = 200
    group = 2
    packed = "<i2"

    @classmethod
    def of(cls, types: ProductTypes, target: CpuTarget) -> Dot2Int16 | None:
        lanes = dot2_lanes(target)
        if (types.left, types.right, types.sums) != ("int16", "int16", "int32") or not lanes:
            return None
        return cls(types, replace(target, vector_bits=min(target.vector_bits, 32 * lanes)))

    @property
    def layout(self) -> str:
        return "pairs"

    @property
    def panel_columns(self) -> int:
        return self.target.panel_columns

    def multiply_add(self, e: Emitter, left: Any, right: Any, sums: Any, lanes: int) -> Any:
        """``sums`` + the product of the low halves + that of the high halves."""
        instruction = next((one for one in _instructions(self.target) if one.lanes == lanes), None)
        if instruction is not None and instruction.adds:
            return tirx.call_llvm_pure_intrin("int32", instruction.intrinsic, left, right, sums)
        if instruction is not None:
            pairs = [tirx.reinterpret(f"int16x{2 * lanes}", x) for x in (left, right)]
            product: Call = tirx.call_llvm_pure_intrin(f"int32x{lanes}", instruction.intrinsic, *pairs)
            return sums + product
        shift = e.splat(IntImm("int32", 16), lanes)

        def low(x: Any) -> Any:
            return tirx.shift_right(tirx.shift_left(x, shift), shift)

        left, right = e.let(left), e.let(right)
        return sums + low(left) * low(right) + tirx.shift_right(left, shift) * tirx.shift_right(right, shift)

    @property
    def rate(self) -> float:
        """Two with VNNI, whose instruction also adds to the sums (measured: 1.9); else one: x86 multiplies
        pairs by one instruction and adds by another (1.0 to 1.4 times the multiply-adds of float32)."""
        return 2.0 if any(has_feature(self.target, feature) for feature in _ADDING) else 1.0

    def parameters(self) -> dict[str, Any]:
        return {"operands": "pairs of int16", "rate": self.rate}
