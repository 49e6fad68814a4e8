"""Transposes in registers: loads that run along another axis than the lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.affine import Affine
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.values import Value
from edgepack.compiler.kernels.cpu.emit.vectors import Vectors

__all__ = ["TileVectors", "shuffle", "transposed"]

Expr = Any


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


class TileVectors(Vectors):
    """One row of a tile of ``rows`` rows; the rows share what they load.

    Args:
        tile_variable: the variable of the tile's first row, and ``row`` the number of this row in the tile.
        shared: what the tile's rows have loaded.
    """

    def __init__(self, *args: Any) -> None:
        *args_of_base, self.tile_variable, self.row, self.rows, self.shared = args
        super().__init__(*args_of_base)

    def load_flat(self, buffer: Any, address: Affine) -> Value:
        step = address.lane_step
        along = address.coefficient(self.tile_variable) == 1
        if self.lanes == 1 or step in {0, 1} or not along or str(buffer.dtype) != "float32":
            return super().load_flat(buffer, address)
        base = address.plus(-self.row)
        if (buffer, base) not in self.shared:
            array = self.pointers[buffer]
            loaded = [
                self.e.let(self.e.vload(array, self.variables.scalar(base.plus(lane * step)), self.rows))
                for lane in range(self.lanes)
            ]
            self.shared[buffer, base] = transposed(self.e, loaded, self.rows)
        return Value(self.shared[buffer, base][self.row], self.lanes, "float32")
