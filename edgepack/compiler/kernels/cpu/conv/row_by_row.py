"""Sliding windows in the order in which pixels lie in memory, on CPUs of one core that are short of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edgepack.compiler.kernels.contract import Implementation, Overlap
from edgepack.compiler.kernels.cpu.conv.over_input import PixelOrder
from edgepack.compiler.kernels.cpu.conv.sliding_window import SlidingWindow
from edgepack.compiler.kernels.cpu.conv.window import Strips
from edgepack.compiler.kernels.cpu.conv.window_schedule import SlidingSchedule
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget

__all__ = ["RowByRow", "in_one_task"]


def in_one_task(given: SlidingSchedule, target: CpuTarget, steps: int) -> SlidingSchedule:
    """What is given of a schedule, with one task where the CPU has one core; ``steps``: of all channels."""
    if not target.freestanding:
        return given
    return replace(given, block=given.block or steps, row_parts=given.row_parts or 1)


class RowByRow(SlidingWindow):
    """A kernel of one task goes over the output pixel by pixel, so that the output may lie over what of the
    input is not read any more."""

    def task(self, image: Any, part: Any, block: Any) -> None:
        e, (top, bottom, channels) = self.e, self.bounds(part, block)

        def line(y: Any) -> None:
            for strips in self.window.strips(self.columns):

                def strip(i: Any, strips: Strips = strips) -> None:
                    x = e.let(i * len(strips.taps) + strips.first)
                    self.row((image, y, x), strips.taps, channels)

                e.loop(0, strips.count, strip)

        e.loop(top, bottom, line)

    def build(self) -> Implementation:
        return replace(super().build(), overlaps=self._overlaps())

    def _overlaps(self) -> tuple[Overlap, ...]:
        g, fused = self.window, self.fused
        if self.counts != (1, 1, 1) or fused.by_rows or fused.row_stride != g.out_channels or g.depth_window:
            return ()
        order = PixelOrder.of(g, DTYPE_BYTES[fused.types.left], DTYPE_BYTES[fused.types.result])
        pixels = g.out_width if self.columns > 1 else 1
        return (Overlap(fused.operand(0), order.most(pixels, again=True)),)
