"""Rows of an elementwise kernel's output while their vectors are emitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables

__all__ = ["Row", "Tile"]


@dataclass(frozen=True)
class Tile:
    """Rows that are computed together because an operand is contiguous along their axis."""

    axis: int
    rows: int


@dataclass(frozen=True)
class Row:
    """A row, or a strip of rows, while its vectors are emitted.

    Attributes:
        variables: the index variables outside of the loop over the row.
        position: along the merged axes but the last; in a strip, without the tile's axis.
        start: where along the last axis the row's elements are counted from.
        first: a strip's first row, along the tile's axis.
    """

    variables: IndexVariables
    position: Sequence[Affine]
    start: Affine
    first: Affine
