"""Sliding windows over channels-last images: depthwise convolution, max and average pooling.

Each channel stands for itself, so the vector runs along the channels and a tile is a few neighbouring
pixels of one output row, whose windows overlap: each input vector is loaded once per tile and row of the
window. Taps that lie in the padding are left out when the code is generated (the columns fall into a few
patterns) or by the bounds of the loop over the window's rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from edgepack.graph.lower import Group
from edgepack.kernels.contract import Array, Implementation, Operand, Packing, RuleError, Stage
from edgepack.kernels.conv2d import Conv2d
from edgepack.kernels.emit import Emitter, balanced, div, groups_of, index, mod
from edgepack.kernels.gemm import column_chunks
from edgepack.kernels.group import AnchoredGroup, anchored
from edgepack.target import CpuTarget

__all__ = ["depthwise_conv2d", "pool2d"]

#: Wider windows would unroll into too much code.
LARGEST_WINDOW = 16


@dataclass(frozen=True)
class _Window:
    """Geometry: NHWC, pairs are (height, width)."""

    batch: int
    height: int
    width: int
    channels: int
    out_height: int
    out_width: int
    size: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    pads: tuple[int, int, int, int]  # top, left, bottom, right


class _Builder(ABC):
    """Emits one kernel; a task is one output row of one image."""

    #: Whether the kernel has a pointer to weights [KH * KW, C].
    weighted = False

    def __init__(self, window: _Window, group: AnchoredGroup, target: CpuTarget) -> None:
        if max(window.size) > LARGEST_WINDOW:
            raise RuleError(f"a window of {window.size}")
        self.window, self.group = window, group
        self.lanes = target.lanes("float32")
        registers = max(8, target.vector_registers)
        self.columns = max(1, min(8, (registers - 3) // 3))
        self.e = Emitter(self.lanes, strict_math=target.strict_math)

    def build(self) -> Stage:
        e, g = self.e, self.window
        self.x = e.pointer(g.batch * g.height * g.width * g.channels)
        operands = [Operand("param", self.group.operand(0))]
        if self.weighted:
            self.w = e.pointer(g.size[0] * g.size[1] * g.channels)
            operands.append(Operand("packed", 0))
        self.extra, extra_operands = self.group.epilogue_pointers(e)
        self.y = e.pointer(g.batch * g.out_height * g.out_width * g.channels)
        e.tasks(self._row)
        return Stage(e.finish(), g.batch * g.out_height, (*operands, *extra_operands, Operand("output", 0)))

    def _row(self, task: Any) -> None:
        e, g = self.e, self.window
        image = e.let(div(task, g.out_height)) if g.batch > 1 else index(0)
        y = e.let(mod(task, g.out_height)) if g.batch > 1 else task
        top = e.let(y * g.strides[0] - g.pads[0])
        d = g.dilation[0]
        begin = e.let(tirx.max(index(0), div(d - 1 - top, d)) if g.pads[0] else index(0))
        # Taps below the image: rows top + k * d >= height.
        end = e.let(tirx.min(index(g.size[0]), div(g.height - top + d - 1, d)))
        tiles: list[tuple[int, int]] = []
        at = 0
        for size, count in balanced(g.out_width, self.columns):
            for _ in range(count):
                tiles.append((at, size))
                at += size
        for first, last, (size, taps) in groups_of(len(tiles), lambda t: self._pattern(*tiles[t])):
            start = tiles[first][0]

            def tile(i: Any, start: int = start, size: int = size, taps: Any = taps) -> None:
                self._tile(image, y, top, begin, end, e.let(i * size + start), taps)

            e.loop(0, last - first, tile)

    def _pattern(self, x: int, size: int) -> tuple[int, tuple[tuple[bool, ...], ...]]:
        """Which taps of each pixel lie inside the image, along the width."""
        g = self.window
        return size, tuple(
            tuple(
                0 <= (x + i) * g.strides[1] - g.pads[1] + k * g.dilation[1] < g.width
                for k in range(g.size[1])
            )
            for i in range(size)
        )

    def _tile(
        self, image: Any, y: Any, top: Any, begin: Any, end: Any, x: Any, taps: tuple[tuple[bool, ...], ...]
    ) -> None:
        e, g = self.e, self.window
        source = e.let(((image * g.height + top) * g.width + (x * g.strides[1] - g.pads[1])) * g.channels)
        target = e.let(((image * g.out_height + y) * g.out_width + x) * g.channels)
        full = g.channels // self.lanes

        def vector(at: Any, lanes: int) -> None:
            self._vector(source, target, (image, y, x), begin, end, at, lanes, taps)

        e.loop(0, full, lambda c: vector(e.let(c * self.lanes), self.lanes))
        for at, lanes in column_chunks(g.channels - full * self.lanes, self.lanes):
            vector(full * self.lanes + at, lanes)

    def _vector(
        self,
        source: Any,
        target: Any,
        position: tuple[Any, Any, Any],
        begin: Any,
        end: Any,
        channel: Any,
        lanes: int,
        taps: tuple[tuple[bool, ...], ...],
    ) -> None:
        """One vector of channels of all pixels of a tile."""
        e, g = self.e, self.window
        size = len(taps)
        accumulators = e.local(size * lanes)
        for i in range(size):
            e.vstore(accumulators, i * lanes, e.f32(self.initial(), lanes), lanes)

        def row(k: Any) -> None:
            base = e.let(source + k * (g.dilation[0] * g.width * g.channels) + channel)
            loaded: dict[int, Any] = {}
            for j in range(g.size[1]):
                weight = (
                    e.let(e.vload(self.w, (k * g.size[1] + j) * g.channels + channel, lanes))
                    if self.weighted
                    else None
                )
                for i in range(size):
                    if not taps[i][j]:
                        continue
                    column = i * g.strides[1] + j * g.dilation[1]
                    if column not in loaded:
                        loaded[column] = e.let(e.vload(self.x, base + column * g.channels, lanes))
                    old = e.vload(accumulators, i * lanes, lanes)
                    e.vstore(accumulators, i * lanes, self.combine(old, loaded[column], weight), lanes)

        e.loop(begin, end, row)
        image, y, x = position
        for i in range(size):
            accumulator = e.let(e.vload(accumulators, i * lanes, lanes))
            value = self.final(accumulator, lanes, sum(taps[i]), begin, end)
            stored = self.group.epilogue.apply(e, value, (image, y, x + i, channel), lanes, self.extra)
            e.vstore(self.y, target + i * g.channels + channel, stored, lanes)

    def initial(self) -> float:
        return 0.0

    @abstractmethod
    def combine(self, old: Any, value: Any, weight: Any) -> Any:
        """The accumulator after one more tap."""

    def final(self, value: Any, lanes: int, taps: int, begin: Any, end: Any) -> Any:
        """The pixel's value from its accumulator; ``taps`` columns and ``end - begin`` rows were inside."""
        return value


class _Depthwise(_Builder):
    weighted = True

    def combine(self, old: Any, value: Any, weight: Any) -> Any:
        return old + value * weight


class _Max(_Builder):
    def initial(self) -> float:
        return -3.4028234663852886e38

    def combine(self, old: Any, value: Any, weight: Any) -> Any:
        return tirx.max(old, value)


class _Average(_Builder):
    """Average over the taps inside the image."""

    def combine(self, old: Any, value: Any, weight: Any) -> Any:
        return old + value

    def final(self, value: Any, lanes: int, taps: int, begin: Any, end: Any) -> Any:
        e = self.e
        count = e.let(tirx.Cast("float32", (end - begin) * taps))
        return e.let(value / e.splat(count, lanes))


class _PaddedAverage(_Average):
    """Average over all taps; those in the padding are zeros."""

    def final(self, value: Any, lanes: int, taps: int, begin: Any, end: Any) -> Any:
        scale = 1.0 / (self.window.size[0] * self.window.size[1])
        return self.e.let(value * self.e.f32(scale, lanes))


def depthwise_conv2d(group: Group, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Rule ``conv2d.depthwise``: one input channel per group and one output channel each."""
    found = anchored(group, ["conv2d"])
    conv = Conv2d.of(found)
    if conv.groups != conv.in_channels or conv.out_channels != conv.in_channels or conv.groups == 1:
        raise RuleError("not depthwise")
    if found.operand(1) not in constants:
        raise RuleError("the weights are not constant")
    window = _Window(
        conv.batch,
        conv.height,
        conv.width,
        conv.in_channels,
        conv.out_height,
        conv.out_width,
        conv.kernel,
        conv.strides,
        conv.dilation,
        (conv.pad_top, conv.pad_left, conv.pad_bottom, conv.pad_right),
    )
    builder = _Depthwise(window, found, target)

    def pack(weights: Array) -> Array:
        return weights.reshape(-1, conv.in_channels)

    packing = Packing(found.operand(1), "depthwise", pack)
    parameters = {"tile": f"{builder.columns}x{builder.lanes}"}
    return Implementation(
        "conv2d.depthwise", (builder.build(),), (packing,), parameters=parameters, flops=conv.flops
    )


def pool2d(group: Group, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Rule ``pool2d``."""
    found = anchored(group, ["max_pool2d", "avg_pool2d"])
    a = found.anchor.attributes
    if a["layout"] != "NHWC":
        raise RuleError(f"layout {a['layout']}")
    n, h, w, c = found.operand_shape(0)
    _, oh, ow, _ = found.output_shape
    size, strides, dilation = ((int(v[0]), int(v[1])) for v in (a["pool_size"], a["strides"], a["dilation"]))
    top, left, bottom, right = (int(p) for p in a["padding"])
    window = _Window(n, h, w, c, oh, ow, size, strides, dilation, (top, left, bottom, right))
    average = found.anchor.kind == "avg_pool2d"
    builder: _Builder
    if not average:
        builder = _Max(window, found, target)
    elif not a["count_include_pad"]:
        builder = _Average(window, found, target)
    elif a["ceil_mode"]:
        raise RuleError("windows beyond the padding count neither way")
    else:
        builder = _PaddedAverage(window, found, target)
    flops = n * oh * ow * c * size[0] * size[1]
    parameters = {"tile": f"{builder.columns}x{builder.lanes}"}
    return Implementation(
        f"pool2d.{'average' if average else 'max'}", (builder.build(),), parameters=parameters, flops=flops
    )
