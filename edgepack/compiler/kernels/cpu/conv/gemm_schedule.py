"""What is decided about an implicit matrix product, and how the cost model decides it.

What is chosen depends on what fits the caches, and on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from edgepack.compiler.kernels.cpu.conv.blocking import Blocking, Division
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.weight_panels import block_columns
from edgepack.compiler.kernels.cpu.emit.indices import balanced_split
from edgepack.compiler.kernels.cpu.emit.register_tile import Tile
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel
from edgepack.compiler.kernels.schedule import Schedule, ScheduleError, by

__all__ = ["RESIDENT_WEIGHTS", "GemmSchedule", "by_rows", "divided", "propose"]

#: Weights up to this size stay in the L2 cache while pixels stream past them; larger ones are read once.
RESIDENT_WEIGHTS = 256 * 1024

#: Rows of the output of each thread from which on it is faster that each thread reads all of the weights.
OWN_ROWS = 96

#: Slices of the reduction of a plain product, at most.
MOST_SLICES = 16


@dataclass(frozen=True)
class GemmSchedule(Schedule):
    """What is decided about an implicit matrix product; see :mod:`.blocking` for what the words mean.

    Attributes:
        register_tile: rows and columns of the accumulators.
        weight_stationary: whether all rows are multiplied by one block of columns after the other, so that
            weights are read once; else all columns follow each other for some rows.
        thread_rows: into how many equal parts the rows are cut that blocks do not cross: 1, or one for each
            thread.
        passes: weight-stationary, how many parts of the rows are done one after the other, each with all of
            the weights.
        row_blocks: blocks of tiles of all rows.
        k_blocks: slices of the reduction.
        matrix: whether instructions multiply whole matrices, see :mod:`.tile_gemm`.
        prefetch_bytes: constants of a later call that the products fetch into the caches, in bytes. The
            planner decides that.
    """

    register_tile: tuple[int, int] | None = None
    weight_stationary: bool | None = None
    thread_rows: int | None = None
    passes: int | None = None
    row_blocks: int | None = None
    k_blocks: int | None = None
    matrix: bool | None = None
    prefetch_bytes: int = 0

    def printed(self) -> dict[str, Any]:
        found = {
            "tile": by(self.register_tile),
            "order": "channels" if self.weight_stationary else "pixels",
            "blocks": self.row_blocks,
        }
        more = {"slices": self.k_blocks, "passes": self.passes, "thread rows": self.thread_rows}
        found |= {name: value for name, value in more.items() if value != 1}
        return {**found, "ahead": self.prefetch_bytes} if self.prefetch_bytes else found


def propose(
    conv: Conv2d, micro: MicroKernel, given: GemmSchedule, threads: int | None = None
) -> GemmSchedule:
    """What the cost model decides, but for what is given.

    Args:
        conv: of the micro-kernel's units.
        threads: among which the tasks are divided; by default the target's.

    Raises:
        ScheduleError: if what is given does not fit.
    """
    return _Proposal(conv, micro, given, threads or micro.target.threads).made()


def divided(conv: Conv2d, micro: MicroKernel, schedule: GemmSchedule) -> Blocking:
    """The product as a schedule divides it, of which nothing is open."""
    s = schedule
    assert s.register_tile and s.thread_rows and s.passes and s.row_blocks and s.k_blocks
    division = Division(bool(s.weight_stationary), s.thread_rows, s.passes, s.row_blocks, s.k_blocks)
    return Blocking(conv, micro, Tile(*s.register_tile), division)


class _Proposal:
    """Decides one field after the other, each by those before it."""

    def __init__(self, conv: Conv2d, micro: MicroKernel, given: GemmSchedule, threads: int) -> None:
        self.conv, self.micro, self.given, self.threads = conv, micro, given, threads
        self.target = micro.target

    def made(self) -> GemmSchedule:
        conv, micro, given = self.conv, self.micro, self.given
        if given.register_tile is not None:
            micro.check_tile(given.register_tile, conv.group_out)
        weights = conv.depth * conv.group_out * micro.unit_bytes
        self.tile = Tile(*given.register_tile) if given.register_tile else self._tile(weights)
        self.columns = block_columns(self.tile.columns, conv.group_out, micro.panel_columns)
        self.column_blocks = -(-conv.group_out // self.columns)
        self.weight_stationary = _open(given.weight_stationary, weights > RESIDENT_WEIGHTS)
        self.passes = given.passes or self._passes()
        self.thread_rows = given.thread_rows or self._thread_rows()
        self._check_rows()
        self.tiles = self.thread_rows * sum(
            count for _, count in balanced_split(conv.pixels // self.thread_rows, self.tile.rows)
        )
        self.k_blocks = given.k_blocks or self._k_blocks()
        self._check_k_blocks()
        self.row_blocks = given.row_blocks or self._row_blocks()
        self._check_row_blocks()
        return replace(
            given,
            register_tile=(self.tile.rows, self.tile.columns),
            weight_stationary=self.weight_stationary,
            thread_rows=self.thread_rows,
            passes=self.passes,
            row_blocks=self.row_blocks,
            k_blocks=self.k_blocks,
            matrix=micro.matrix,
        )

    def _tile(self, weights: int) -> Tile:
        """As large as fits the registers, but no larger than that each thread has one of weights that the L2
        cache does not hold: two cores read half of them each in 6 microseconds that one reads in 15 (1.7 MB,
        128 columns). Smaller ones are read before the threads have met."""
        c, lanes = self.conv, self.micro.lanes
        tile = self.micro.tile(c.pixels, c.group_out)
        each = -(-c.group_out // (self.threads * lanes)) * lanes
        alone = tile.rows >= c.pixels and c.groups == 1 and weights > self.target.l2_bytes
        return Tile(tile.rows, each) if alone and each < tile.columns <= c.group_out else tile

    def _passes(self) -> int:
        """With large weights and one pass, threads share out the columns, and each reads all of the input,
        half of which the other thread wrote. From some rows for each thread on it is faster to read the
        weights once for each thread: multiplying takes several times as long as that."""
        shares_rows = self.weight_stationary and self.conv.pixels >= OWN_ROWS * self.threads
        return self.threads if shares_rows else 1

    def _thread_rows(self) -> int:
        """One part for each thread where threads share out the rows.

        14 rows of 14 are 25 tiles of up to 8 pixels, 12 for one of two threads and 13 for the other, or twice
        13 that are as much work, and whose pixels are the rows that the thread has of a depthwise convolution
        too.
        """
        threads, pixels = self.threads, self.conv.pixels
        if self.weight_stationary and self.passes == 1:
            return 1
        whole = balanced_split(pixels, self.tile.rows)
        even = len(whole) == 1 and whole[0][1] % threads == 0
        return 1 if even or pixels % threads or pixels < threads * self.tile.rows else threads

    def _k_blocks(self) -> int:
        """More than one where the weights of a block of columns and the next ones would push each other out
        of the L2 cache; the tiles' sums wait in the thread's scratch."""
        c, l2_bytes = self.conv, self.target.l2_bytes
        nbytes = c.depth * min(self.columns, c.group_out) * self.micro.unit_bytes
        if nbytes <= l2_bytes * 3 // 16 or self.tiles == 1:
            return 1
        if not c.pointwise:
            return c.rows
        enough = (
            n for n in range(2, MOST_SLICES + 1) if nbytes <= n * l2_bytes // 8 and c.depth % (2 * n) == 0
        )
        return next(enough, 1)

    def _row_blocks(self) -> int:
        """Equally many tasks for each thread where that is possible.

        With small weights a block is a few tiles (:meth:`MicroKernel.block_tiles`), so that all columns of a
        row of the output are written soon after each other; of a product there are as many blocks as threads
        where each has two tiles. Threads that share out the columns instead each read all of the input, half
        of which another one wrote, and two of them write to one cache line where the output is bytes: 64
        columns took 2.0 times as long. (A window of 3x3 is faster so: its weights are more than its input.)
        With large weights the input of a block fits half of the L2 cache.
        """
        c, threads, tiles, unit = self.conv, self.threads, self.tiles, self.micro.unit_bytes
        columns = c.groups * self.column_blocks
        most = max(1, tiles // (2 if self.weight_stationary else self.micro.block_tiles(c.in_channels)))
        if not self.weight_stationary:
            if c.pointwise and tiles >= 2 * threads:
                most = max(most, threads)
            count = min(most, 16 * threads) if columns == 1 and self.k_blocks == 1 else most
            return max(count // threads * threads, self.thread_rows) or count
        pixels_per_tile = self.tile.rows * c.strides[0] * c.strides[1]
        fits = self.target.l2_bytes // 2 // max(1, pixels_per_tile * c.in_channels * unit)
        if self.k_blocks > 1:  # the sums too
            lanes = self.micro.lanes
            sums = self.tile.rows * (-(-self.columns // lanes) * lanes)
            fits = min(fits, self.target.l2_bytes // 16 // (sums * unit))
        fits = max(4, fits)
        least = min(most, max(-(-tiles // fits), -(-4 * threads // columns), self.passes))
        if self.passes == 1:
            more = range(least, min(most, least + threads))
            return next((n for n in more if n * columns % threads == 0), least)
        return min(-(-least // threads), most // threads) * threads

    # What was given ---------------------------------------------------------------------------------------

    def _check_rows(self) -> None:
        if self.conv.pixels % self.thread_rows:
            raise ScheduleError(f"{self.conv.pixels} rows are no {self.thread_rows} equal parts")
        if self.passes > 1 and not self.weight_stationary:
            raise ScheduleError(f"{self.passes} passes over the rows of a product that goes over them once")

    def _check_k_blocks(self) -> None:
        c, n = self.conv, self.k_blocks
        if n > 1 and (c.depth % (2 * n) if c.pointwise else n != c.rows):
            raise ScheduleError(f"{n} slices of a reduction of {c.depth} steps in {c.rows} rows of a window")

    def _check_row_blocks(self) -> None:
        parts = self.thread_rows if self.passes == 1 else max(self.thread_rows, self.passes)
        if self.row_blocks % parts or self.row_blocks > max(self.tiles, parts):
            raise ScheduleError(f"{self.row_blocks} blocks of {self.tiles} tiles in {parts} parts")


def by_rows(conv: Conv2d, given: GemmSchedule) -> GemmSchedule:
    """What is given, with tasks that are rows of the output, each with all of the weights."""
    rows = conv.out_height
    one = replace(given, weight_stationary=False, passes=1, k_blocks=1)
    return replace(one, thread_rows=rows, row_blocks=rows)


def _open(given: bool | None, proposed: bool) -> bool:
    return proposed if given is None else given
