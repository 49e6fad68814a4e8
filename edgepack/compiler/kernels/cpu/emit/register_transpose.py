"""Transposes in registers: loads that run along another axis than the lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.affine import Affine
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.values import Value
from edgepack.compiler.kernels.cpu.emit.vectors import Vectors

__all__ = ["TRANSPOSED", "TileRow", "TileVectors", "shuffle", "transposed"]

Expr = Any

#: Types of tensors that are transposed in registers.
TRANSPOSED = {"float32", "float64", "int32", "int64", "uint32", "uint64"}


def shuffle(vectors: Sequence[Expr], lanes: Sequence[int]) -> Expr:
    """The given lanes of the vectors laid end to end."""
    return tirx.Shuffle(list(vectors), list(lanes))


def transposed(e: Emitter, rows: Sequence[Expr], lanes: int) -> list[Expr]:
    """The columns of ``rows``: as many vectors as a row has lanes, of as many lanes as there are rows.

    Both numbers are powers of two. Each step interleaves row i with row i + n/2, which halves the distance of
    what has to become neighbours: log2(n) steps of unpacking shuffles.
    """
    count = len(rows)
    if lanes == 1:
        return [_joined(e, rows)]
    current = list(rows)
    width = lanes
    while len(current) > 1:
        half = len(current) // 2
        current = [
            e.let(shuffle([a, b], [k for i in range(width) for k in (i, width + i)]))
            for a, b in zip(current[:half], current[half:], strict=True)
        ]
        width *= 2
    flat = current[0]
    return [
        e.let(shuffle([flat], range(i * count, (i + 1) * count))) if lanes > 1 else flat for i in range(lanes)
    ]


def _joined(e: Emitter, scalars: Sequence[Expr]) -> Expr:
    return scalars[0] if len(scalars) == 1 else e.let(shuffle(scalars, range(len(scalars))))


@dataclass(frozen=True)
class TileRow:
    """One row of a tile.

    Attributes:
        variable: name of the index variable of the tile's first row.
        row: number of this row in the tile, and ``rows`` how many the tile has.
        shared: what the tile's rows have loaded and transposed, by buffer and position.
    """

    variable: str
    row: int
    rows: int
    shared: dict[Any, Any]


class TileVectors(Vectors):
    """Evaluates one row of a tile; the rows share what they load.

    Args:
        tile: the row; all other arguments are those of :class:`Vectors`.
    """

    def __init__(self, *args: Any, tile: TileRow) -> None:
        super().__init__(*args)
        self.tile = tile

    def load_flat(self, buffer: Any, address: Affine) -> Value:
        step = address.lane_step
        along = address.coefficient(self.tile.variable) == 1
        dtype = self._stored_dtype(buffer)
        if self.lanes == 1 or step in {0, 1} or not along or dtype not in TRANSPOSED:
            return super().load_flat(buffer, address)
        base = address.plus(-self.tile.row)
        # Where some rows of a tile are padding, what they would load may lie outside of the buffer.
        low, high = self.bounds_here(base)
        if low < 0 or high + self.tile.rows > prod(int(n) for n in buffer.shape):
            return super().load_flat(buffer, address)
        if (buffer, base) not in self.tile.shared:
            array = self.pointers[buffer]
            loaded = [
                self.e.let(self.e.vload(array, self.variables.scalar(base.plus(lane * step)), self.tile.rows))
                for lane in range(self.lanes)
            ]
            self.tile.shared[buffer, base] = transposed(self.e, loaded, self.tile.rows)
        return Value(self.tile.shared[buffer, base][self.tile.row], self.lanes, dtype)
