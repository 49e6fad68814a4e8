"""Convolutions and products by constant weights, computed in float16 (``--precision fp16``).

A first stage rounds the input to float16, the second multiplies: an instruction does twice as many
multiply-adds as in float32. Products are summed in float16 in blocks of at most :data:`HALF_BLOCK` terms, and
the blocks' sums in float32, in which the epilogue is computed too.

Each of the ``n`` additions of a block is off by at most u = 2**-11 of its result, so a block is off by at
most n * u of the sum of its products' magnitudes (Higham, Accuracy and Stability of Numerical Algorithms,
2nd ed., 3.1), and the roundings of the operands add 2 * u: with 16 terms at most 18 * u, 0.9 %, within what a
float16 output may be off by (frontend/tolerances.py: 1 %).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edgepack.compiler.kernels.contract import Array, Implementation, Packing, Stage
from edgepack.compiler.kernels.cpu.conv.blocking import Blocking
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.implicit_gemm import ImplicitGemm
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter, index
from edgepack.compiler.kernels.cpu.emit.half import STORAGE, narrowed
from edgepack.compiler.kernels.cpu.emit.register_tile import HALF_BLOCK, power_of_two_chunks, tile_for
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget

__all__ = ["HalfGemm", "computes_in_half"]

#: Elements of the input that a task rounds.
TASK_ELEMENTS = 4096


def computes_in_half(conv: Conv2d, target: CpuTarget) -> bool:
    """Whether float16 pays: a tap's products fill a block, and an element of the input has so many uses that
    rounding it costs little."""
    columns = 2 * target.lanes("float16")
    return conv.dtype == "float32" and conv.group_in >= HALF_BLOCK and conv.group_out >= columns


class HalfGemm(ImplicitGemm):
    """An implicit matrix product of float16; both operands lie in memory as such."""

    @property
    def stored(self) -> str:
        return STORAGE

    def _blocking(self) -> Blocking:
        conv, target = self.conv, self.target
        tile = tile_for(target, conv.pixels, conv.group_out, "float16")
        return Blocking(conv, tile, target, target.threads)

    def _zeros(self) -> int:
        return max(super()._zeros(), self.target.lanes("float16") - 1)

    def _declare_image(self) -> Any:
        return self.e.temp(0, self.conv.input_elements, STORAGE)

    def packings(self) -> tuple[Packing, ...]:
        (packing,) = super().packings()

        def pack(w: Array) -> Array:
            return packing.transform(w).astype("float16")

        return (replace(packing, key=f"{packing.key}:float16", transform=pack),)

    def parameters(self) -> dict[str, Any]:
        return {**super().parameters(), "weights": "float16", "products": f"float16, by {HALF_BLOCK}"}

    def build(self) -> Implementation:
        made = super().build()
        return replace(
            made,
            stages=(self._rounded(), *made.stages),
            temps=(self.conv.input_elements * DTYPE_BYTES[STORAGE],),
            weights=made.weights // 2,
        )

    def _rounded(self) -> Stage:
        """The stage that rounds the input."""
        e, elements = Emitter(self.lanes, self.target), self.conv.input_elements
        x, y = e.param(self.fused.operand(0), elements), e.temp(0, elements, STORAGE)
        whole, step = elements // TASK_ELEMENTS, 4 * e.lanes

        def run(at: Any, count: int) -> None:
            for first, lanes in power_of_two_chunks(count, e.lanes):
                value = e.let(e.vload(x, at + first, lanes))
                e.vstore(y, at + first, narrowed(e, value, lanes, "float16"), lanes)

        def part(first: Any, count: int) -> None:
            e.loop(0, count // step, lambda i: run(e.let(first + i * step), step))
            run(e.let(first + (count - count % step)), count % step)

        def task(t: Any) -> None:
            first = e.let(t * TASK_ELEMENTS)
            rest = elements - whole * TASK_ELEMENTS
            if not whole or not rest:
                part(first, TASK_ELEMENTS if whole else rest)
                return
            e.branch(t < index(whole), lambda: part(first, TASK_ELEMENTS), lambda: part(first, rest))

        e.tasks(task)
        return e.stage(max(1, whole + (elements % TASK_ELEMENTS > 0)))
