"""The micro-kernel of products in float16 (``--precision fp16``).

An instruction does twice as many multiply-adds as in float32. Products are summed in float16 in blocks of at
most :data:`FLOAT16_TERMS` terms, and the blocks' sums in float32, in which the epilogue is computed too.

Each of the ``n`` additions of a block is off by at most u = 2**-11 of its result, so a block is off by at
most n * u of the sum of its products' magnitudes (Higham, Accuracy and Stability of Numerical Algorithms,
2nd ed., 3.1), and the roundings of the operands add 2 * u: with 16 terms at most 18 * u, 0.9 %, within what a
float16 output may be off by (frontend/tolerances.py: 1 %).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.float16 import FLOAT16_BITS, as_float16
from edgepack.compiler.kernels.cpu.emit.indices import Index
from edgepack.compiler.kernels.cpu.emit.register_tile import (
    Accumulators,
    LeftOperand,
    Matrix,
    Steps,
    Tile,
    column_chunks,
    tile_for,
)
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.plan.target import CpuTarget

__all__ = ["FLOAT16_TERMS", "Float16Blocks"]

#: Terms of a sum in float16, at most.
FLOAT16_TERMS = 16


@dataclass(frozen=True)
class Float16Blocks(MicroKernel):
    """Both operands lie in memory as float16; a stage before rounds the input."""

    order = 100

    @classmethod
    def of(cls, types: ProductTypes, target: CpuTarget) -> Float16Blocks | None:
        operands = (types.left, types.right, types.sums)
        served = operands == ("float16", "float16", "float32") and target.float16_products
        return cls(types, target) if served else None

    def suits(self, run: int, columns: int) -> bool:
        """Whether float16 pays: a tap's products fill a block, and an element of the input has so many uses
        that rounding it costs little."""
        return run >= FLOAT16_TERMS and columns >= 2 * self.target.lanes("float16")

    @property
    def packs(self) -> bool:
        return True

    @property
    def left_unit(self) -> str:
        return FLOAT16_BITS

    @property
    def right_unit(self) -> str:
        return FLOAT16_BITS

    @property
    def overhang(self) -> int:
        return self.target.lanes("float16") - 1

    @property
    def layout(self) -> str:
        return "float16"

    def pack_units(self, weights: Array) -> Array:
        return weights.astype("float16")

    def tile(self, rows: int, columns: int) -> Tile:
        return tile_for(self.target, rows, columns, "float16")

    @property
    def rate(self) -> float:
        return 2.0

    def multiply_add(self, e: Emitter, left: Any, right: Any, sums: Any, lanes: int) -> Any:
        return e.multiply_add(left, right, sums)

    def add_product(
        self, e: Emitter, sums: Accumulators, left: LeftOperand, right: Matrix, steps: Steps
    ) -> None:
        whole, rest = steps.depth // FLOAT16_TERMS, steps.depth % FLOAT16_TERMS
        chunks = column_chunks(sums.columns, self.target.lanes("float16"))

        def block(begin: Index, size: int) -> None:
            inner = Accumulators(e, sums.rows, chunks, "float16")
            inner.clear()
            self._add_block(e, inner, left, right, (begin, replace(steps, depth=size)))
            _add_widened(e, sums, inner)

        e.loop(0, whole, lambda i: block(e.let(i * FLOAT16_TERMS), FLOAT16_TERMS))
        if rest:
            block(whole * FLOAT16_TERMS, rest)

    def _add_block(
        self,
        e: Emitter,
        sums: Accumulators,
        left: LeftOperand,
        right: Matrix,
        which: tuple[Index, Steps],
    ) -> None:
        """The steps of the reduction ``which[1]``, from ``which[0]`` on.

        Where multiply-adds do not read memory, a load serves as many steps as it has elements of a row: the
        instruction takes one of them.
        """
        begin, steps = which
        lanes = 1 if self.target.arithmetic_reads_memory else self.target.lanes("float16")

        def iteration(at: Index, count: int) -> None:
            if steps.prefetch is not None:
                for i in range(0, count, steps.unroll):
                    steps.prefetch(at + i)
            together = count == lanes > 1
            rows = [as_float16(e, left(r, at, lanes), lanes) for r in range(sums.rows if together else 0)]
            for u in range(count):
                start = right.at + (at + u) * right.stride
                weights = [
                    as_float16(e, e.vload(right.buffer, start + column, n), n) for column, n in sums.chunks
                ]
                for r in range(sums.rows):
                    scalar = None if together else as_float16(e, left(r, at + u), 1)
                    for (column, n), weight in zip(sums.chunks, weights, strict=True):
                        value = e.splat(scalar, n) if scalar is not None else tirx.Shuffle([rows[r]], [u] * n)
                        old = sums.get(r, column, n)
                        sums.set(r, column, self.multiply_add(e, value, weight, old, n), n)

        count = lanes if lanes > 1 else steps.unroll
        e.loop(0, steps.depth // count, lambda i: iteration(e.let(begin + i * count), count))
        done = steps.depth // count * count
        e.loop(0, steps.depth - done, lambda i: iteration(e.let(i + (begin + done)), 1))

    def parameters(self) -> dict[str, Any]:
        return {"weights": "float16", "products": f"float16, by {FLOAT16_TERMS}"}


def _add_widened(e: Emitter, sums: Accumulators, narrower: Accumulators) -> None:
    """Adds sums in float16 to those in float32."""
    for row in range(sums.rows):
        for column, lanes in sums.chunks:
            wide = tirx.Cast(f"float32x{lanes}" if lanes > 1 else "float32", narrower.get(row, column, lanes))
            sums.set(row, column, sums.get(row, column, lanes) + wide, lanes)
