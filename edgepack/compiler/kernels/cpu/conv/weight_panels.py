"""Packed weights of which kernels with other register tiles read the same bytes.

Usually a block of columns is those of a register tile, and its packed weights are [step of the reduction]
[columns]. In a library for several kinds of CPU they are cut into *panels* of as many columns as all of them
agree on, 16 numbers of float32, a cache line: [panel][step][columns of the panel], of which the last one has
what columns are left. A tile of 64 columns reads four panels side by side, which takes no instruction, for
their places differ by constants. One of 8 columns reads half of each line: both halves are a block, whose
tiles follow each other, so that a line is fetched from memory once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index, div, index, mod
from edgepack.compiler.kernels.cpu.emit.register_tile import Matrix

__all__ = ["TileColumns", "WeightPanels", "block_columns", "stripe_columns"]


def block_columns(tile: int, columns: int, panel: int) -> int:
    """Columns of a block: those of a register tile, or of as many as fill whole panels.

    Args:
        tile: columns of the register tile.
        columns: of the product.
        panel: columns of a panel; 0 where each tile has its own.
    """
    return min(columns, lcm(tile, panel)) if panel else tile


def stripe_columns(columns: int, panel: int) -> int:
    """Columns whose panels lie behind each other at a position of a Winograd convolution's weights.

    They are those of the widest register tile, AVX-512's (:func:`tile_for`), so that what it reads is one run
    of memory. With all positions of a panel behind each other it would be four: 512 channels of a small
    image took 18 % longer so on Zen 5.

    Args:
        columns: of the product.
        panel: columns of a panel.
    """
    panels = -(-columns // panel)
    return panel * (3 if panels % 3 == 0 else 4 if panels % 4 == 0 else 2)


@dataclass(frozen=True)
class TileColumns:
    """The columns of a register tile: ``width`` from ``first`` on, of those of a block.

    Attributes:
        begins, ends: whether no other tile of the block is before, or behind.
    """

    first: int
    width: int
    begins: bool = True
    ends: bool = True


@dataclass(frozen=True)
class WeightPanels:
    """How the weights of a block of columns are read.

    Attributes:
        depth: steps of the reduction that are neighbours in the packed weights.
        block: columns of the block.
        tile: of the register tile.
        width: of a panel; 0: those of the block are one.
    """

    depth: int
    block: int
    tile: int
    width: int

    @property
    def tiles(self) -> list[TileColumns]:
        """The register tiles of the block."""
        if not self.width:
            return [TileColumns(0, self.block)]
        firsts = range(0, self.block, self.tile)
        return [
            TileColumns(at, min(self.tile, self.block - at), at == 0, at + self.tile >= self.block)
            for at in firsts
        ]

    @property
    def count(self) -> int:
        """Panels of the block."""
        return -(-self.block // self.width) if self.width else 1

    def in_next_slice(self, k_block: Index, size: int, element: Index) -> Index:
        """How far from the block's begin an element of its next slice lies, counted panel by panel.

        Args:
            k_block: the slice that is at work, of ``size`` steps. Behind the last one is the first of the
                next block.
        """
        each = size * self.width
        last = tirx.EQ(index(k_block), index(self.depth // size - 1))
        behind = tirx.Select(last, index((self.count - 1) * self.depth * self.width), index(0))
        return (
            (k_block + 1) * each
            + behind
            + div(element, each) * (self.depth * self.width)
            + mod(element, each)
        )

    def matrix(
        self,
        e: Emitter,
        weights: tuple[Any, Index],
        before: tuple[Index, int],
        first: int,
        vectors: Sequence[tuple[int, int]],
    ) -> Matrix:
        """The weights of a tile.

        Args:
            weights: a buffer, and where in it those of the block begin.
            before: parts of the reduction before the one that is read, and steps of each of them.
            first: the tile's first column in the block.
            vectors: of the tile, (first column, lanes).
        """
        (buffer, at), (part, steps) = weights, before
        if not self.width:
            return Matrix(buffer, e.let(at + part * (steps * self.block)), self.block)
        width, whole = self.width, self.block // self.width * self.width
        start = e.let(at + part * (steps * width))
        places: list[Index] = []
        strides: list[int] = []
        for column, _ in vectors:
            panel, inside = divmod(first + column, width)
            stride = width if first + column < whole else self.block - whole
            place: Index = panel * width * self.depth + inside
            # The last panel is narrower, so what lies before is less.
            places.append(place if stride == width else e.let(place - part * (steps * (width - stride))))
            strides.append(stride)
        return Matrix(buffer, start, width, tuple(places), tuple(strides))
