"""An image in memory of its own, padded, in which the pixels that neighbouring windows read are neighbours.

Windows that step by more than one pixel read pixels of the same *phase*: rows and columns of the padded image
that leave the same remainder. Here each phase is an image of its own. Output pixels are numbered along whole
lines of it, those at a line's end that no window of the output is at included: then a tap of output pixel
``q`` is always the same distance from that of pixel ``q + 1``, in the next line and the next image too.
"""

from __future__ import annotations

from collections.abc import Callable
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
    """The lines of a convolution's input: (row phase, column phase, image, line, column, channel).

    Only phases that a tap reads are there, in the order of the taps.

    Attributes:
        conv: without a window over planes.
        apart: whether columns have phases. Otherwise a line has all of them in order, and output pixels that
            are neighbours are the stride apart.
    """

    conv: Conv2d
    apart: bool

    @classmethod
    def of(cls, conv: Conv2d, step: int) -> PhaseLines:
        """The lines that leave the fewest steps of the reduction, ``step`` elements that are neighbours."""
        steps = conv.kernel[1] * -(-conv.group_in // step)
        joined = -(-conv.kernel[1] * conv.group_in // step)
        can_be_joined = conv.dilation[1] == conv.groups == 1
        return cls(conv, conv.strides[1] > 1 and not (can_be_joined and joined < steps))

    def in_units(self, group: int) -> PhaseLines:
        """The same of input channels that are ``group`` neighbouring ones each."""
        return replace(self, conv=self.conv.in_units(group))

    @property
    def steps(self) -> tuple[int, int]:
        """Rows and columns of the padded image from one line or column to the next."""
        return self.conv.strides[0], self.conv.strides[1] if self.apart else 1

    @property
    def phases(self) -> tuple[int, int]:
        """How many phases rows and columns have."""
        c = self.conv
        periods = [step // gcd(step, d) for step, d in zip(self.steps, c.dilation, strict=True)]
        return min(c.kernel[0], periods[0]), min(c.kernel[1], periods[1])

    @property
    def reach(self) -> tuple[int, int]:
        """Lines and columns from the first tap of a window to the last, in a phase."""
        c = self.conv
        down, right = (
            (taps - 1) * d // step for taps, d, step in zip(c.kernel, c.dilation, self.steps, strict=True)
        )
        return down, right

    @property
    def between(self) -> int:
        """Columns of a line between output pixels that are neighbours."""
        return 1 if self.apart else self.conv.strides[1]

    @property
    def size(self) -> tuple[int, int]:
        """Lines and columns of an image of a phase."""
        c, (down, right) = self.conv, self.reach
        pixels = -(-((c.out_width - 1) * self.between + right + 1) // self.between)
        return c.out_height + down, pixels * self.between

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
            out_width=columns // self.between,
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
        return c.dilation[1] == c.groups == 1 and self.steps[1] == 1

    def tap(self, row: Index, column: Index) -> Index:
        """Elements from the first tap of output pixel 0 to another one."""
        c, (lines, columns) = self.conv, self.size
        image = c.batch * lines * columns
        down, right = self.phases
        phase = mod(row, down) * right + mod(column, right)
        line = div(row * c.dilation[0], self.steps[0])
        behind = div(column * c.dilation[1], self.steps[1])
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
        c, (lines, columns), (down, right), steps = self.conv, self.size, self.phases, self.steps
        x, y = e.param(param, c.input_elements), e.temp(0, self.elements)

        def line(task: Any) -> None:
            # The phases of a line behind each other: a thread's lines are of a part of the image, of which it
            # wrote the most.
            n, at, i, j = (index(p) for p in unravel(task, (c.batch, lines, down, right)))
            top, left = mod(i * c.dilation[0], steps[0]), mod(j * c.dilation[1], steps[1])
            row = e.let(at * steps[0] + top - c.pad_top)
            first = e.let(left - c.pad_left)
            source = e.let((n * c.height + row) * (c.width * c.in_channels))
            number = ((i * right + j) * c.batch + n) * lines + at
            to = e.let(number * (columns * c.in_channels))

            inside = tirx.all(row >= 0, row < c.height)
            if self.apart:
                image = (x, source, row, first)
                e.loop(0, columns, lambda number: self._pixel(e, image, number, (y, to), outside))
            else:
                e.branch(
                    inside,
                    lambda: self._whole_line(e, (x, source), (y, to), outside),
                    lambda: _filled(e, outside, (y, to), columns * c.in_channels),
                )

        e.tasks(line)
        return e.stage(down * right * c.batch * lines)

    def _whole_line(self, e: Emitter, source: tuple[Any, Any], to: tuple[Any, Any], outside: Any) -> None:
        """All columns of a row of the image in order, and what is outside before and behind them."""
        c, columns, (y, at) = self.conv, self.size[1], to
        channels = c.in_channels
        inside = max(0, min(c.width, columns - c.pad_left))
        _filled(e, outside, to, min(c.pad_left, columns) * channels)
        _copied(e, source, (y, e.let(at + c.pad_left * channels)), inside * channels)
        behind = c.pad_left + inside
        _filled(e, outside, (y, e.let(at + behind * channels)), max(0, columns - behind) * channels)

    def _pixel(
        self,
        e: Emitter,
        image: tuple[Any, Any, Any, Any],
        number: Any,
        to: tuple[Any, Any],
        outside: Any,
    ) -> None:
        """Pixel ``number`` of a line; ``image``: the buffer, where in it a row begins, its number, and the
        column of the line's first pixel."""
        c, (x, source, row, first) = self.conv, image
        column = e.let(number * self.steps[1] + first)
        inside = tirx.all(row >= 0, row < c.height, column >= 0, column < c.width)
        place = (to[0], e.let(to[1] + number * c.in_channels))
        e.branch(
            inside,
            lambda: _copied(e, (x, e.let(source + column * c.in_channels)), place, c.in_channels),
            lambda: _filled(e, outside, place, c.in_channels),
        )


def _runs(e: Emitter, count: int, emit: Callable[[Any, int], None]) -> None:
    """``emit(first, lanes)`` for all of ``count`` elements."""
    whole = count // e.lanes
    e.loop(0, whole, lambda i: emit(i * e.lanes, e.lanes))
    for at, lanes in power_of_two_chunks(count % e.lanes, e.lanes):
        emit(whole * e.lanes + at, lanes)


def _copied(e: Emitter, source: tuple[Any, Any], to: tuple[Any, Any], count: int) -> None:
    def emit(at: Any, lanes: int) -> None:
        e.vstore(to[0], to[1] + at, e.vload(source[0], source[1] + at, lanes), lanes)

    _runs(e, count, emit)


def _filled(e: Emitter, value: Any, to: tuple[Any, Any], count: int) -> None:
    _runs(e, count, lambda at, lanes: e.vstore(to[0], to[1] + at, e.splat(value, lanes), lanes))
