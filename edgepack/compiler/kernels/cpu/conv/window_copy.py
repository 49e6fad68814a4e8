"""Copies of windows at the border of an image, by CPUs of one core that are short of memory: the number that
lies outside of the image everywhere, then what lies inside.

No loop is one that LLVM makes a call of: memcpy and memset are slower for a few bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx import IntImm

from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import div, index
from edgepack.compiler.kernels.cpu.emit.register_tile import power_of_two_chunks
from edgepack.compiler.kernels.cpu.micro.reduced_vectors import RUN

__all__ = ["copy_bytes", "copy_window"]

#: Vectors that are copied without a loop.
STRAIGHT = 4


def copy_bytes(e: Emitter, to: Any, at: Any, count: int, value: Callable[[Any, int], Any]) -> None:
    """``count`` bytes from ``at`` on, as vectors of 16, 8, 4 and single ones.

    Args:
        value: so many of them from a place on.
    """
    vectors = count // RUN

    def one(place: Any, lanes: int) -> None:
        e.vstore(to, at + place, value(place, lanes), lanes)

    if e.short:  # the last one may overlap the one before
        width = next(lanes for lanes in (RUN, RUN // 2, RUN // 4, 1) if lanes <= count)
        last = index(count - width)
        e.no_unroll_loop(-(-count // width), lambda i: one(e.let(tirx.min(i * width, last)), width))
        return

    if vectors > STRAIGHT:
        e.no_unroll_loop(vectors, lambda i: one(e.let(i * RUN), RUN))
    for place, lanes in power_of_two_chunks(count, RUN):
        if vectors <= STRAIGHT or place >= vectors * RUN:
            width = lanes if lanes > 2 else 1
            for single in range(place, place + lanes, width):
                one(single, width)


def copy_window(
    e: Emitter, c: Conv2d, memory: tuple[Any, Any, Any], first: tuple[Any, Any, Any], outside: int
) -> None:
    """The window of one pixel, tap after tap, in memory for a multiple of 16 bytes.

    Args:
        memory: the image, where it is copied to, and from which byte on.
        first: number of the image, row and column of the first tap; negative beside the image.
        outside: what lies there.
    """
    x, to, at = memory
    image, top, left = first
    channels = c.in_channels
    whole = -(-c.rows * c.kernel[1] * channels // RUN) * RUN
    _fill(e, to, at, whole // RUN, outside)
    sides = zip((top, left), (c.height, c.width), (c.rows, c.kernel[1]), c.dilation, strict=True)
    (begin_row, rows), (begin_column, columns) = (_inside(e, *side) for side in sides)

    def row(i: Any) -> None:
        i = e.let(begin_row + i)
        line = e.let((image * c.height + top + i * c.dilation[0]) * c.width + left)
        place = e.let(at + i * (c.kernel[1] * channels))

        def tap(j: Any) -> None:
            j = e.let(begin_column + j)
            source = e.let((line + j * c.dilation[1]) * channels)
            target = e.let(place + j * channels)
            copy_bytes(e, to, target, channels, lambda k, lanes: e.vload(x, source + k, lanes))

        e.no_unroll_loop(columns, tap)

    e.no_unroll_loop(rows, row)


def _fill(e: Emitter, to: Any, at: Any, vectors: int, value: int) -> None:
    """So many vectors of a number that LLVM does not know: of stores of one that it does it makes a call."""
    number = e.let(IntImm("int8", value) + tirx.Cast("int8", tirx.min(e.params[-2], index(0))))

    def several(first: Any, count: int) -> None:
        for i in range(count):
            e.vstore(to, at + (first + i) * RUN, e.splat(number, RUN), RUN)

    if e.short:
        e.no_unroll_loop(vectors, lambda i: several(i, 1))
        return
    if vectors >= STRAIGHT:
        e.no_unroll_loop(vectors // STRAIGHT, lambda i: several(e.let(i * STRAIGHT), STRAIGHT))
    several(vectors - vectors % STRAIGHT, vectors % STRAIGHT)


def _inside(e: Emitter, first: Any, size: int, taps: int, step: int) -> tuple[Any, Any]:
    """The first tap that lies inside of an image, and how many do.

    Args:
        first: where the first tap lies, ``taps`` there are, each ``step`` behind the other.
        size: of the image.
    """
    zero = index(0)
    begin = e.let(tirx.max(zero, div(step - 1 - first, step) if step > 1 else zero - first))
    end = div(size - first + (step - 1), step) if step > 1 else size - first
    return begin, e.let(tirx.min(index(taps), end) - begin)
