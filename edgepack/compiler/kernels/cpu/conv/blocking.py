"""How a convolution or matrix product is divided into tasks, and each task into register tiles.

The result is a matrix: a row for each output pixel, a column for each output channel.

- A *tile* is what fits the vector registers: some rows by some columns.
- A *column block* is the columns of a tile, over all rows; where weights lie in panels that are wider
  (:mod:`.weight_panels`), those of as many tiles side by side as fill them.
- A *block* is a run of tiles, one below the other. Tasks are (column block, block) pairs.
- A *part* is one of the equal parts of the rows, where each thread has its own; blocks do not cross them.
- A *slice* is a part of the reduction, a row of the window or a run of channels of a plain product: where
  the weights of a column block do not stay in the L2 cache, a task does the first slice for all of its tiles,
  then the second; the tiles' sums wait in the thread's scratch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.weight_panels import WeightPanels, block_columns
from edgepack.compiler.kernels.cpu.emit.indices import balanced_split, index
from edgepack.compiler.kernels.cpu.emit.register_tile import Tile
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel

__all__ = ["Blocking", "Division"]


@dataclass(frozen=True)
class Division:
    """How often a product is cut, see :class:`.gemm_schedule.GemmSchedule`."""

    weight_stationary: bool
    thread_rows: int
    passes: int
    row_blocks: int
    k_blocks: int


class Blocking:
    """A convolution of a micro-kernel's units, divided.

    Attributes:
        columns: of a column block.
        column_blocks: column blocks of each of the convolution's groups.
        tiles: (rows, number of tiles) of each height of tile that a part of the rows has, in order.
        tile_count: tiles of a part, in one column block.
        blocks: blocks of tiles of a part.
        tile_sums: sums of the rows of a tile in a column block, its columns as whole vectors.
        spilled_sums: sums of a task's tiles that wait in scratch for the next slice; 0 without slices.
    """

    def __init__(self, conv: Conv2d, micro: MicroKernel, tile: Tile, division: Division) -> None:
        self.conv, self.micro, self.tile = conv, micro, tile
        self.weight_stationary, self.thread_rows = division.weight_stationary, division.thread_rows
        self.passes, self.row_blocks, self.k_blocks = division.passes, division.row_blocks, division.k_blocks
        self.columns = block_columns(tile.columns, conv.group_out, micro.panel_columns)
        self.column_blocks = -(-conv.group_out // self.columns)
        self.tiles = balanced_split(conv.pixels // self.thread_rows, tile.rows)
        self.tile_count = sum(count for _, count in self.tiles)
        self.blocks = self.row_blocks // self.thread_rows
        self.tile_sums = tile.rows * (-(-self.columns // micro.lanes) * micro.lanes)
        self.spilled_sums = -(-self.tile_count // self.blocks) * self.tile_sums if self.k_blocks > 1 else 0

    def panels(self, columns: int) -> WeightPanels:
        """How the weights of a column block, of so many columns, are read."""
        return WeightPanels(self.conv.depth, columns, self.tile.columns, self.micro.panel_columns)

    def first_tile(self, block: Any) -> Any:
        """The first tile of a block of a part; blocks differ by at most one tile."""
        size, rest = divmod(self.tile_count, self.blocks)
        return block * size + tirx.min(block, index(rest)) if rest else block * size
