"""What micro-kernels have in common that keep parts of sums, and take two steps of a reduction together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import lcm
from typing import Any

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index
from edgepack.compiler.kernels.cpu.emit.register_tile import Accumulators, LeftOperand, Matrix, Steps
from edgepack.compiler.kernels.cpu.emit.register_transpose import shuffle
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel

__all__ = ["Partial", "PartialSums", "folded"]

#: Iterations of a loop that LLVM would unroll whole, and mix with each other.
SHORT = 8


class Partial(Accumulators):
    """Parts of the sums of a tile that has ``tile_rows`` rows."""

    def __init__(
        self, e: Emitter, rows: int, chunks: Sequence[tuple[int, int]], tile_rows: int, dtype: str = ""
    ) -> None:
        super().__init__(e, rows, chunks, dtype)
        self.tile_rows = tile_rows


@dataclass(frozen=True)
class PartialSums(MicroKernel):
    """A micro-kernel with two parts of each sum, which are added up behind the reduction: in the columns
    2 c and 2 c + 1 those of column c."""

    def partial_rows(self, rows: int) -> int:
        """Rows of partial sums of a tile."""
        return rows

    def begin(self, e: Emitter, sums: Accumulators) -> Accumulators:
        chunks = [(2 * column, 2 * lanes) for column, lanes in sums.chunks]
        inner = Partial(e, self.partial_rows(sums.rows), chunks, sums.rows)
        inner.clear()
        return inner

    def end(self, e: Emitter, inner: Accumulators, sums: Accumulators) -> Accumulators:
        for row in range(sums.rows):
            for column, lanes in sums.chunks:
                added = self.whole(e, inner, row, (column, lanes))
                sums.set(row, column, sums.get(row, column, lanes) + added, lanes)
        return sums

    def whole(self, e: Emitter, inner: Accumulators, row: int, chunk: tuple[int, int]) -> Any:
        """The sums of so many lanes of a row, from a column on."""
        column, lanes = chunk
        return folded(e, inner.get(row, 2 * column, 2 * lanes), lanes)

    def add_product(
        self, e: Emitter, sums: Accumulators, left: LeftOperand, right: Matrix, steps: Steps
    ) -> None:
        if not isinstance(sums, Partial):
            inner = self.begin(e, sums)
            self.add_product(e, inner, left, right, steps)
            self.end(e, inner, sums)
            return
        _in_pairs(e, steps, lambda first, count: self.add_steps(e, sums, (first, count), left, right))

    @staticmethod
    def parts(inner: Partial, right: Matrix, lanes: int) -> list[tuple[int, Index, int]]:
        """Vectors of partial sums: the first column, where in a row of the right operand its units begin, and
        how many columns: ``lanes``, but where the tile ends before."""
        places = right.columns or [column // 2 for column, _ in inner.chunks]
        return [
            (column + at, place + at // 2, min(lanes, whole))
            for place, (column, whole) in zip(places, inner.chunks, strict=True)
            for at in range(0, whole, lanes)
        ]

    @abstractmethod
    def add_steps(
        self, e: Emitter, inner: Partial, steps: tuple[Index, int], left: LeftOperand, right: Matrix
    ) -> None:
        """Adds the products of one or two steps, of which the first is ``steps[0]``."""


def folded(e: Emitter, both: Any, lanes: int) -> Any:
    """The sums of neighbours."""
    both = e.let(both)
    even, odd = (shuffle([both], range(start, 2 * lanes, 2)) for start in (0, 1))
    return even + odd


def _in_pairs(e: Emitter, steps: Steps, body: Callable[[Index, int], None]) -> None:
    """``body(first, count)`` for all steps, two at a time, and for a last one.

    Args:
        steps: an iteration of the loop has an even number of times their ``unroll``.
    """
    depth, unroll = steps.depth, lcm(2, steps.unroll)

    def iteration(k: Index) -> None:
        for first in range(0, unroll, steps.unroll):
            if steps.prefetch is not None:
                steps.prefetch(k * unroll + first)
        for first in range(0, unroll, 2):
            body(k * unroll + first, 2)

    count = depth // unroll
    if 1 < count <= SHORT // 2 and e.target is not None and e.target.in_order:
        e.no_unroll_loop(count, iteration)
    else:
        e.loop(0, e.opaque_bound(count) if 1 < count <= SHORT else count, iteration)
    for first in range(count * unroll, depth, 2):
        body(first, min(2, depth - first))
