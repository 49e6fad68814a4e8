"""Sliding windows in the order in which pixels lie in memory, on CPUs of one core that are short of it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.contract import Implementation, Overlap
from edgepack.compiler.kernels.cpu.conv.over_input import PixelOrder
from edgepack.compiler.kernels.cpu.conv.sliding_window import SlidingWindow
from edgepack.compiler.kernels.cpu.conv.window import Strips, Taps
from edgepack.compiler.kernels.cpu.conv.window_schedule import SlidingSchedule
from edgepack.compiler.kernels.cpu.conv.window_walk import Position
from edgepack.compiler.kernels.cpu.emit.indices import div, index
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget

__all__ = ["RowByRow", "in_one_task"]


def in_one_task(given: SlidingSchedule, target: CpuTarget, steps: int) -> SlidingSchedule:
    """What is given of a schedule, with one task where the CPU has one core, and where code is to be short
    all taps of a pixel in two loops; ``steps``: of all channels."""
    unrolled = target.optimize != "size" if given.unrolled is None else given.unrolled
    columns = given.columns or (None if unrolled else 1)
    given = replace(given, unrolled=unrolled, columns=columns)
    if not target.freestanding:
        return given
    return replace(given, block=given.block or steps, row_parts=given.row_parts or 1)


class RowByRow(SlidingWindow):
    """A kernel of one task goes over the output pixel by pixel, so that the output may lie over what of the
    input is not read any more."""

    @property
    def looped(self) -> bool:
        """Whether there is one piece of code for a tap, in a loop over those that lie inside of the image;
        else one for each."""
        return not self.unrolled and self.columns == 1

    def task(self, image: Any, part: Any, block: Any) -> None:
        e, (top, bottom, channels) = self.e, self.bounds(part, block)

        def line(y: Any) -> None:
            for strips in self._strips():

                def strip(i: Any, strips: Strips = strips) -> None:
                    x = e.let(i * len(strips.taps) + strips.first)
                    self.row((image, y, x), strips.taps, channels)

                e.loop(0, strips.count, strip)

        e.loop(top, bottom, line)

    def _strips(self) -> list[Strips]:
        g = self.window
        if self.looped:
            return [Strips(0, g.out_width, ((True,) * g.size[1],))]
        return g.strips(self.columns)

    def row(self, at: Position, taps: Taps, channels: tuple[Any, Any]) -> None:
        if self.looped:
            e, g = self.e, self.window
            left, step = e.let(at[2] * g.strides[1] - g.pads[1]), g.dilation[1]
            first = tirx.max(index(0), div(step - 1 - left, step))
            end = tirx.min(index(g.size[1]), div(g.width - left + step - 1, step))
            self._columns_inside = e.let(first), e.opaque_bound(end)
        super().row(at, taps, channels)

    def add_row(self, accumulators: Any, taps: Taps, base: Any, weights: Any) -> None:
        if not self.looped:
            self.add_taps(accumulators, taps, base, weights)
            return
        e, g = self.e, self.window
        each = self.row_weights // g.size[1]

        def tap(j: Any) -> None:
            at = e.let(base + j * (g.dilation[1] * g.channels))
            self.add_taps(accumulators, ((True,),), at, e.let(weights + j * each))
            e.not_unrolled(j)

        e.loop(*self._columns_inside, tap)

    @abstractmethod
    def add_taps(self, accumulators: Any, taps: Taps, base: Any, weights: Any) -> None:
        """Adds the taps of a row of the window, or one of them, to all pixels of a step.

        Args:
            accumulators, taps, base, weights: as of :meth:`add_row`.
        """

    def build(self) -> Implementation:
        return replace(super().build(), overlaps=self._overlaps())

    def _overlaps(self) -> tuple[Overlap, ...]:
        g, fused = self.window, self.fused
        if self.counts != (1, 1, 1) or fused.by_rows or fused.row_stride != g.out_channels or g.depth_window:
            return ()
        order = PixelOrder.of(g, DTYPE_BYTES[fused.types.left], DTYPE_BYTES[fused.types.result])
        pixels = g.out_width if self.columns > 1 else 1
        return (Overlap(fused.operand(0), order.most(pixels, again=True)),)
