"""Products of pairs of int16 that are summed in int32, by the instructions that CPUs have for them.

Two neighbouring elements of a reduction lie in one int32, so a tile of sums reads pairs as it would read
numbers, and a multiply-add of pairs is exact but for the sum, which wraps around at 32 bits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tvm import tirx
from tvm.ir import Call
from tvm.target.codegen import target_has_features
from tvm.tirx import IntImm

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.tvm_target import llvm_target
from edgepack.plan.target import CpuTarget

__all__ = ["PairEmitter", "pair_lanes"]

#: Instructions of x86, by lanes of the sums: the feature that brings each, and LLVM's name of it.
X86 = {
    4: ("sse2", "llvm.x86.sse2.pmadd.wd"),
    8: ("avx2", "llvm.x86.avx2.pmadd.wd"),
    16: ("avx512bw", "llvm.x86.avx512.pmaddw.d.512"),
}


@lru_cache
def pair_lanes(target: CpuTarget) -> int:
    """Sums that one instruction adds a pair of products to each of; 0 where the CPU has none."""
    if target.arch.startswith(("x86", "i386", "i686")):
        made = llvm_target(target)
        found = [lanes for lanes, (feature, _) in X86.items() if target_has_features(feature, made)]
        return max((lanes for lanes in found if lanes <= target.lanes("int32")), default=0)
    if target.virtual_registers and target.vector_bits >= 128:
        return 4
    return int(target.arch.startswith("thumb") and target_has_features("dsp", llvm_target(target)))


class PairEmitter(Emitter):
    """Emits kernels whose numbers of int32 are pairs of int16 wherever they are multiplied."""

    def __init__(self, lanes: int, target: CpuTarget) -> None:
        super().__init__(lanes, target, "int32")
        self.widest, self.virtual = pair_lanes(target), target.virtual_registers

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """c + the product of the low halves of ``a`` and ``b`` + that of the high halves."""
        lanes = int(str(c.ty).partition("x")[2] or 1)
        if lanes == 1 and self.widest == 1:
            return tirx.call_llvm_pure_intrin("int32", "llvm.arm.smlad", a, b, c)
        if lanes == 4 and self.virtual:
            return c + self._halves("llvm.wasm.dot", lanes, a, b)
        if lanes in X86 and lanes <= self.widest and not self.virtual:
            return c + self._halves(X86[lanes][1], lanes, a, b)
        shift = self.splat(IntImm("int32", 16), lanes)

        def low(x: Any) -> Any:
            return tirx.shift_right(tirx.shift_left(x, shift), shift)

        a, b = self.let(a), self.let(b)
        return c + low(a) * low(b) + tirx.shift_right(a, shift) * tirx.shift_right(b, shift)

    def _halves(self, name: str, lanes: int, a: Any, b: Any) -> Any:
        """A call of LLVM's intrinsic on vectors of int16."""
        pairs = [tirx.reinterpret(f"int16x{2 * lanes}", x) for x in (a, b)]
        call: Call = tirx.call_llvm_pure_intrin(f"int32x{lanes}", name, *pairs)
        return call
