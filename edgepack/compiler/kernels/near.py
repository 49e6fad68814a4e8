"""Schedules near a rule's own that a pack compares by prediction: few, for each one takes time to make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from edgepack.compiler.kernels.contract import Implementation
from edgepack.compiler.kernels.cpu.conv.gemm_schedule import GemmSchedule
from edgepack.compiler.kernels.cpu.conv.window_schedule import SlidingSchedule
from edgepack.compiler.kernels.schedule import Schedule

__all__ = ["near_schedules"]

#: Columns of a tile above which it is made narrower or lower, and not higher: its sums fill the registers.
WIDE = 2


def near_schedules(made: Implementation) -> Iterator[Schedule]:
    """Other register tiles of a product; more channels of a step of a sliding window."""
    own = made.schedule
    if isinstance(own, GemmSchedule) and own.register_tile is not None:
        rows, columns = own.register_tile
        tiles = [(rows + 1, columns), (rows + 2, columns), (rows // 2, columns + 1)]
        if rows == 1:
            tiles = [(1, columns - 1), (1, columns + 1), (1, columns + 2)]
        elif columns > WIDE:
            tiles = [(rows + 2, columns - 2), (rows - 1, columns), (rows // 2, columns)]
        for tile in tiles:
            if min(tile) > 0:
                yield replace(own, register_tile=tile, row_blocks=None, k_blocks=None)
    if isinstance(own, SlidingSchedule) and own.lanes is not None and own.columns is not None:
        for factor in (2, 4):
            yield replace(own, lanes=own.lanes * factor, block=None)
