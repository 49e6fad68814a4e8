"""A convolution of stride 2 as one of stride 1 over the phases of its input.

The pixels of even and odd rows and columns are four images of half the size. A window takes every other pixel
of each, so side by side as channels they are convolved with stride 1, by a kernel of half the size: y[i, j] =
sum over u, v of z[i + u, j + v] w[2 u + a, 2 v + b], with z[i, j, a, b] = x[2 i + a, 2 j + b]. That is no
less work, but Winograd's filtering serves strides of 1 only.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from tvm import tirx

from edgepack.compiler.kernels.contract import Array, Stage
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import div, index, mod
from edgepack.compiler.kernels.cpu.emit.register_tile import power_of_two_chunks
from edgepack.plan.target import CpuTarget

__all__ = ["Phases"]


class Phases:
    """The phases of the input of a convolution of stride 2, dilation 1 and one group.

    Attributes:
        conv: the convolution of stride 1, of an image that holds the padding and whatever tiles of m x m
            outputs read beyond it.
    """

    def __init__(self, conv: Conv2d, m: int) -> None:
        self.whole = conv
        extents = (conv.out_height, conv.out_width)
        taps = tuple(-(-k // 2) for k in conv.kernel)
        height, width = (-(-n // m) * m + r - 1 for n, r in zip(extents, taps, strict=True))
        self.conv = replace(
            conv,
            height=height,
            width=width,
            in_channels=4 * conv.in_channels,
            kernel=(taps[0], taps[1]),
            strides=(1, 1),
            pad_top=0,
            pad_left=0,
            pad_bottom=0,
            pad_right=0,
        )

    @property
    def nbytes(self) -> int:
        """Size of the phases in memory."""
        return self.conv.input_elements * self.conv.element_bytes

    def weights(self, weights: Array) -> Array:
        """(KH, KW, IC, OC) to the kernel of stride 1, (ceil(KH / 2), ceil(KW / 2), 4 IC, OC)."""
        r, s = self.conv.kernel
        kh, kw, ic, oc = weights.shape
        padded = np.pad(weights, ((0, 2 * r - kh), (0, 2 * s - kw), (0, 0), (0, 0)))
        return padded.reshape(r, 2, s, 2, ic, oc).transpose(0, 2, 1, 3, 4, 5).reshape(r, s, 4 * ic, oc)

    def stage(self, target: CpuTarget, source: int) -> Stage:
        """Separates the phases of parameter ``source`` into the first temp; a task is a row of the phases."""
        c, z = self.whole, self.conv
        e = Emitter(target.lanes(c.dtype), target, c.dtype)
        x = e.param(source, c.input_elements)
        y = e.temp(0, z.input_elements)
        pair = 2 * c.in_channels  # elements of two neighbours in a row of the input

        def copy(first: Any, place: Any, count: int) -> None:
            for at, lanes in power_of_two_chunks(count, e.lanes):
                e.vstore(y, place + at, e.vload(x, first + at, lanes), lanes)

        def clear(place: Any, count: int) -> None:
            for at, lanes in power_of_two_chunks(count, e.lanes):
                e.vstore(y, place + at, e.f32(0, lanes), lanes)

        def inside(first: Any, place: Any) -> None:
            """A row of the input, of which pixel ``j`` of the phases takes 2 from ``first + j * pair`` on."""
            begin = min(z.width, -(-c.pad_left // 2))
            end = max(begin, min(z.width, (c.width + c.pad_left) // 2))
            for j in (*range(begin), *range(end, z.width)):
                for b in (0, 1):
                    offset = b * c.in_channels
                    if 0 <= 2 * j + b - c.pad_left < c.width:
                        copy(first + (j * pair + offset), place + (j * z.in_channels + offset), c.in_channels)
                    else:
                        clear(place + (j * z.in_channels + offset), c.in_channels)
            e.loop(begin, end, lambda j: copy(first + j * pair, place + j * z.in_channels, pair))

        def outside(place: Any) -> None:
            e.loop(0, z.width, lambda j: clear(place + j * z.in_channels, pair))

        def task(number: Any) -> None:
            image, row = e.let(div(number, z.height)), e.let(mod(number, z.height))
            for a in (0, 1):
                line = e.let(row * 2 + (a - c.pad_top))
                first = e.let(((image * c.height + line) * c.width - c.pad_left) * c.in_channels)
                place = e.let(number * (z.width * z.in_channels) + a * pair)
                valid = tirx.all(line >= 0, line < index(c.height))
                e.branch(valid, partial(inside, first, place), partial(outside, place))

        e.tasks(task)
        return e.stage(c.batch * z.height)
