"""An image in memory of its own, padded, in which the pixels that neighbouring windows read are neighbours.

Windows that step by more than one pixel read pixels of the same *phase*: rows and columns of the padded image
that leave the same remainder. Here each phase is an image of its own. Output pixels are numbered along whole
lines of it, those at a line's end that no window of the output is at included: then a tap of output pixel
``q`` is always the same distance from that of pixel ``q + 1``, in the next line and the next image too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.contract import Stage
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index, div, index, mod, unravel
from edgepack.compiler.kernels.cpu.emit.register_tile import power_of_two_chunks

__all__ = ["PhaseLines"]


@dataclass(frozen=True)
class PhaseLines:
    """The lines of a convolution's input, (row phase, column phase, image, line, column, channel).

    Only phases that a tap reads are there, in the order of the taps.

    Attributes:
        conv: without a window over planes.
    """

    conv: Conv2d

    @property
    def phases(self) -> tuple[int, int]:
        """How many phases rows and columns have."""
        c = self.conv
        periods = [step // gcd(step, d) for step, d in zip(c.strides, c.dilation, strict=True)]
        return min(c.kernel[0], periods[0]), min(c.kernel[1], periods[1])

    @property
    def reach(self) -> tuple[int, int]:
        """Lines and columns from the first tap of a window to the last, in a phase."""
        c = self.conv
        down, right = (
            (taps - 1) * d // step for taps, d, step in zip(c.kernel, c.dilation, c.strides, strict=True)
        )
        return down, right

    @property
    def size(self) -> tuple[int, int]:
        """Lines and columns of an image of a phase."""
        return self.conv.out_height + self.reach[0], self.conv.out_width + self.reach[1]

    @property
    def elements(self) -> int:
        """Elements of all phases, and as many behind them as the last output pixels' taps reach."""
        c, (lines, columns) = self.conv, self.size
        whole = self.phases[0] * self.phases[1] * c.batch * lines * columns
        return (whole + self.reach[0] * columns + self.reach[1]) * c.in_channels

    @property
    def walked(self) -> Conv2d:
        """The convolution of a phase, unpadded, whose output has pixels for all columns of a line and, of
        several images, all lines of an image."""
        c, (lines, columns) = self.conv, self.size
        return replace(
            c,
            height=lines,
            width=columns,
            out_height=c.out_height if c.batch == 1 else lines,
            out_width=columns,
            strides=(1, 1),
            pad_top=0,
            pad_left=0,
            pad_bottom=0,
            pad_right=0,
        )

    @property
    def joined(self) -> bool:
        """Whether the taps of a row of the window are neighbours in memory."""
        c = self.conv
        return c.strides[1] == c.dilation[1] == 1 and c.groups == 1

    def tap(self, row: Index, column: Index) -> Index:
        """Elements from the first tap of output pixel 0 to another one."""
        c, (lines, columns) = self.conv, self.size
        image = c.batch * lines * columns
        down, right = self.phases
        phase = mod(row, down) * right + mod(column, right)
        line = div(row * c.dilation[0], c.strides[0])
        behind = div(column * c.dilation[1], c.strides[1])
        return (phase * image + line * columns + behind) * c.in_channels

    def pixel(self, q: Any) -> tuple[Any, Any]:
        """The output pixel that has number ``q`` along the lines, and whether there is one."""
        c, walked = self.conv, self.walked
        n, y, x = unravel(q, (walked.batch, walked.out_height, walked.out_width))
        inside = index(x) < index(c.out_width)
        if walked.out_height > c.out_height:
            inside = tirx.all(inside, index(y) < index(c.out_height))
        return (n * c.out_height + y) * c.out_width + x, inside

    def stage(self, e: Emitter, param: int, outside: Any) -> Stage:
        """A stage that writes the lines to the first temp; a task is a line.

        Args:
            e: a new emitter, of elements.
            param: which parameter of the fused function is the image.
            outside: an element outside of the image.
        """
        c, (lines, columns), (down, right) = self.conv, self.size, self.phases
        x, y = e.param(param, c.input_elements), e.temp(0, self.elements)

        def line(task: Any) -> None:
            i, j, n, at = (index(p) for p in unravel(task, (down, right, c.batch, lines)))
            top, left = mod(i * c.dilation[0], c.strides[0]), mod(j * c.dilation[1], c.strides[1])
            row = e.let(at * c.strides[0] + top - c.pad_top)
            first = e.let(left - c.pad_left)
            source = e.let((n * c.height + row) * (c.width * c.in_channels))
            to = e.let(task * (columns * c.in_channels))

            def pixel(number: Any) -> None:
                column = e.let(number * c.strides[1] + first)
                inside = tirx.all(row >= 0, row < c.height, column >= 0, column < c.width)
                place = e.let(to + number * c.in_channels)
                e.branch(
                    inside,
                    lambda: _copied(e, (x, e.let(source + column * c.in_channels)), (y, place), c),
                    lambda: _filled(e, outside, (y, place), c),
                )

            e.loop(0, columns, pixel)

        e.tasks(line)
        return e.stage(down * right * c.batch * lines)


def _runs(e: Emitter, conv: Conv2d, emit: Any) -> None:
    """``emit(first, lanes)`` for all elements of a pixel."""
    whole = conv.in_channels // e.lanes
    e.loop(0, whole, lambda i: emit(i * e.lanes, e.lanes))
    for at, lanes in power_of_two_chunks(conv.in_channels % e.lanes, e.lanes):
        emit(whole * e.lanes + at, lanes)


def _copied(e: Emitter, source: tuple[Any, Any], to: tuple[Any, Any], conv: Conv2d) -> None:
    def emit(at: Any, lanes: int) -> None:
        e.vstore(to[0], to[1] + at, e.vload(source[0], source[1] + at, lanes), lanes)

    _runs(e, conv, emit)


def _filled(e: Emitter, value: Any, to: tuple[Any, Any], conv: Conv2d) -> None:
    _runs(e, conv, lambda at, lanes: e.vstore(to[0], to[1] + at, e.splat(value, lanes), lanes))
