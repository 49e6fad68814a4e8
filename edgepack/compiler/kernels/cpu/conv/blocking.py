"""How a convolution or matrix product is divided into tasks, and each task into register tiles.

The result is a matrix: a row for each output pixel, a column for each output channel.

- A *tile* is what fits the vector registers: some rows by some columns.
- A *column block* is the columns of a tile, over all rows.
- A *block* is a run of tiles, one below the other. Tasks are (column block, block) pairs.
- A *band* is one of equal parts of the rows, where each thread has its own; blocks do not cross bands.
- A *slice* is a part of the reduction: where the weights of a column block do not stay in the L2 cache, a
  task does the first slice for all of its tiles, then the second.

What is chosen depends on what fits the caches, and on the number of threads.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.emit.emitter import balanced_split, index
from edgepack.compiler.kernels.cpu.emit.register_tile import Tile
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel

__all__ = ["RESIDENT_WEIGHTS", "Blocking"]

#: Weights up to this size stay in the L2 cache while pixels stream past them; larger ones are read once.
RESIDENT_WEIGHTS = 256 * 1024


class Blocking:
    """How one convolution of a micro-kernel's units is divided.

    Attributes:
        column_blocks: column blocks of each of the convolution's groups.
        weights_first: whether the pixels stay in the cache while weights stream past them.
        bands: number of bands.
        tiles: (rows, number of tiles) of each height of tile that a band has, in order.
        tile_count: tiles of a band, in one column block.
    """

    def __init__(self, conv: Conv2d, micro: MicroKernel, tile: Tile, threads: int) -> None:
        """
        Args:
            threads: among which the tasks are divided.
        """
        self.conv, self.micro, self.tile, self.threads = conv, micro, tile, threads
        self.target, self.lanes = micro.target, micro.lanes
        self.column_blocks = -(-conv.group_out // tile.columns)
        self.weights_first = conv.depth * conv.group_out * micro.unit_bytes > RESIDENT_WEIGHTS
        self.bands = self._bands()
        self.tiles = balanced_split(conv.pixels // self.bands, tile.rows)
        self.tile_count = sum(count for _, count in self.tiles)

    def _bands(self) -> int:
        """Parts of the pixels: one for each thread where threads share out the pixels.

        14 rows of 14 are 25 tiles of up to 8 pixels, 12 for one of two threads and 13 for the other, or twice
        13 that are as much work, and whose pixels are the rows that the thread has of a depthwise convolution
        too.
        """
        threads, pixels = self.threads, self.conv.pixels
        if self.weights_first and self.shares == 1:
            return 1
        whole = balanced_split(pixels, self.tile.rows)
        even = len(whole) == 1 and whole[0][1] % threads == 0
        return 1 if even or pixels % threads or pixels < threads * self.tile.rows else threads

    @cached_property
    def shares(self) -> int:
        """Parts of the pixels that are done one after the other, the columns anew in each.

        With large weights and one part, threads share out the columns, and each reads all of the input, half
        of which the other thread wrote. From 96 rows for each thread on it is faster to read the weights
        once for each thread: multiplying takes several times as long as that.
        """
        return self.threads if self.weights_first and self.conv.pixels >= 96 * self.threads else 1

    @cached_property
    def slices(self) -> int:
        """Parts of the reduction that are done one after the other, for all tiles of a task in each.

        More than one where the weights of a block of columns and the next ones would push each other out of
        the L2 cache; the tiles' sums wait in the thread's scratch. A part is a row of the window, or a run of
        channels of a plain product.
        """
        c = self.conv
        nbytes = c.depth * min(self.tile.columns, c.group_out) * self.micro.unit_bytes
        if nbytes <= self.target.l2_bytes * 3 // 16 or self.bands * self.tile_count == 1:
            return 1
        if not c.pointwise:
            return c.rows
        enough = (
            n for n in range(2, 17) if nbytes <= n * self.target.l2_bytes // 8 and c.depth % (2 * n) == 0
        )
        return next(enough, 1)

    @property
    def waiting_sums(self) -> int:
        """Elements of scratch of one thread: the sums of a task's tiles, if they have to wait."""
        tiles = -(-self.tile_count // self.blocks)
        return tiles * self.accumulator_floats if self.slices > 1 else 0

    @property
    def accumulator_floats(self) -> int:
        """Floats in the accumulators of a tile, its columns as whole vectors."""
        return self.tile.rows * (-(-self.tile.columns // self.lanes) * self.lanes)

    @cached_property
    def pixel_blocks(self) -> int:
        """Blocks of tiles, equally many tasks for each thread where that is possible.

        With small weights a block is a few tiles, so that all columns of a row of the output are written
        soon after each other. With large weights its input fits half of the L2 cache.
        """
        c, threads, tiles = self.conv, self.threads, self.bands * self.tile_count
        columns = c.groups * self.column_blocks
        most = max(1, tiles // (2 if self.weights_first else 4))
        if not self.weights_first:
            count = min(most, 16 * threads) if columns == 1 and self.slices == 1 else most
            return max(count // threads * threads, self.bands) or count
        pixels_per_tile = self.tile.rows * c.strides[0] * c.strides[1]
        fits = self.target.l2_bytes // 2 // max(1, pixels_per_tile * c.in_channels * self.micro.unit_bytes)
        if self.slices > 1:  # the sums too
            fits = min(fits, self.target.l2_bytes // 16 // (self.accumulator_floats * self.micro.unit_bytes))
        fits = max(4, fits)
        least = min(most, max(-(-tiles // fits), -(-4 * threads // columns), self.shares))
        if self.shares == 1:
            more = range(least, min(most, least + threads))
            return next((n for n in more if n * columns % threads == 0), least)
        return min(-(-least // threads), most // threads) * threads

    @property
    def blocks(self) -> int:
        """Blocks of tiles of a band."""
        return self.pixel_blocks // self.bands

    def first_tile(self, block: Any) -> Any:
        """The first tile of a block of a band; blocks differ by at most one tile."""
        size, rest = divmod(self.tile_count, self.blocks)
        return block * size + tirx.min(block, index(rest)) if rest else block * size
