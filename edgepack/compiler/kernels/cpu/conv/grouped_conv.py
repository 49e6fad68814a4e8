"""Convolution in groups of few channels, NHWC: vectors along the output channels, of one group or of several.

A group of 8 output channels fills half of a vector of 16; an implicit matrix product (``dense.py``) would
leave the other half empty, and pay for loops that are as short as a group is narrow. Here several groups lie
side by side in one vector: an input vector holds the channels of just these groups, and for each input
channel of a group one shuffle brings it into all lanes of its group. A group that fills a vector broadcasts
elements instead. As in ``sliding_window.py`` a step computes some neighbouring pixels of one row, whose
windows overlap, so that what was shuffled or broadcast serves all taps that read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from tvm import tirx

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Array, Implementation, Packing, RuleError
from edgepack.compiler.kernels.cpu.analysis.anchored_group import CONVOLUTIONS, AnchoredGroup, anchored
from edgepack.compiler.kernels.cpu.builder import KernelBuilder
from edgepack.compiler.kernels.cpu.conv.blocking import RESIDENT_WEIGHTS
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.planes import each_plane, first_plane
from edgepack.compiler.kernels.cpu.emit.emitter import (
    balanced_split,
    div,
    index,
    run_lengths,
    unravel,
)
from edgepack.compiler.kernels.cpu.emit.register_transpose import shuffle
from edgepack.compiler.kernels.rule import FLOAT32, Rule
from edgepack.plan.target import CpuTarget

__all__ = ["channel_order", "grouped_conv2d", "pack_weights"]

#: Pixels of a step; more would not run faster.
MOST_COLUMNS = 12

#: Multiply-adds of a row of the window that are written out one by one.
UNROLLED = 640

#: Which taps of each pixel lie inside of the image, along the width.
Taps = tuple[tuple[bool, ...], ...]


def channel_order(lanes: int, group_in: int, group_out: int) -> list[list[int]]:
    """Which input channel of its group each lane multiplies, in each of ``group_in`` steps.

    Any order is as good for the sum. Where groups lie side by side, each lane takes first what lies in its
    own four lanes: x86 shuffles faster inside of four lanes. What lies at the same place of the next four
    follows at once: LLVM makes it of the first shuffle, and would keep all of them until then.
    """
    if group_in != group_out or group_out % 4 or lanes == group_out:
        return [[i] * lanes for i in range(group_in)]
    own = [lane % group_out // 4 for lane in range(lanes)]
    steps = [(i, other) for i in range(4) for other in range(group_in // 4)]
    return [[4 * (four ^ other) + i for four in own] for i, other in steps]


def pack_weights(weights: Array, lanes: int, groups: int) -> Array:
    """HWIO to [vector of output channels][KH][IC / groups][KW][lanes]; the last vector may be narrower.

    The input channels of a vector stand in the order of :func:`channel_order`.
    """
    _, _, group_in, out = weights.shape
    parts = []
    for at in range(0, out, lanes):
        vector = weights[..., at : at + lanes].transpose(0, 2, 1, 3)
        order = np.array(channel_order(vector.shape[-1], group_in, out // groups))
        parts.append(np.take_along_axis(vector, order[None, :, None, :], axis=1).reshape(-1))
    return np.concatenate(parts)


class GroupedConv(KernelBuilder):
    """Builds one kernel; a task is some output rows of one image, for a few vectors of channels."""

    def __init__(self, conv: Conv2d, fused: AnchoredGroup, target: CpuTarget) -> None:
        lanes = target.lanes(conv.dtype)
        if conv.strides[1] > 1 and 2 * conv.group_out == lanes == 16:
            # A shuffle for one or two taps costs more than the other half of a vector brings.
            lanes = conv.group_out
        super().__init__("conv2d.grouped", target, dtype=conv.dtype, lanes=lanes)
        self.conv, self.fused = conv, fused
        c = conv
        if lanes % c.group_out or c.group_in > c.group_out:
            raise RuleError("groups do not fill a vector")
        self.side_by_side = c.group_out < lanes
        if c.kernel == (1, 1) and not self.side_by_side:
            raise RuleError("no windows that overlap")
        self.columns = self._columns()
        if self.side_by_side and c.kernel[1] * self.columns * c.group_in > UNROLLED:
            raise RuleError("a wide window of many channels")
        self.vectors = -(-c.out_channels // lanes)
        self.block = self._block()
        self.row_parts = self._row_parts()
        self.x = self.e.param(fused.operand(0), conv.input_elements)
        self.w = self.e.packed(0, conv.depth * conv.out_channels)
        self.extra = fused.declare_epilogue(self.e)
        self.y = self.e.output(0, fused.output_elements)

    def _columns(self) -> int:
        """Pixels of a step: what hides the latency of multiply-adds, as far as there are registers.

        Side by side, the input vectors of a row of the window are in registers too, and the order of each
        input channel's shuffle, or next to the stack's top: with fewer than 6 pixels latency costs more than
        that.
        """
        c = self.conv
        free = self.target.usable_registers - c.kernel[1] - 3
        most = max(6, (free - c.group_in) // (1 + c.strides[1])) if self.side_by_side else free
        return min(c.out_width, max(2, min(most, MOST_COLUMNS)))

    def _block(self) -> int:
        """Vectors of a task: their weights, and the window's rows as wide as a step, fit the L1 cache."""
        c = self.conv
        width = (self.columns - 1) * c.strides[1] + (c.kernel[1] - 1) * c.dilation[1] + 1
        fits = (
            self.target.l1d_bytes
            * 2
            // 3
            // ((c.kernel[0] * width + c.depth) * self.lanes * self.element_bytes)
        )
        blocks = -(-self.vectors // max(1, fits))
        if c.batch * c.out_height < self.target.threads:  # rows are too few to share
            blocks = max(blocks, min(self.vectors, self.target.threads))
        return -(-self.vectors // blocks)

    def _row_parts(self) -> int:
        """Into how many parts the rows are cut; large weights are not read again for another part."""
        c, threads = self.conv, self.target.threads
        if c.weight_bytes > RESIDENT_WEIGHTS and self.vectors >= 4 * threads * self.block:
            return 1
        parts = -(-c.out_height // 8)
        return min(c.out_height, -(-parts // threads) * threads)

    # Loops ----------------------------------------------------------------------------------------------

    def build(self) -> Implementation:
        counts = (self.conv.batch, self.row_parts, -(-self.vectors // self.block))
        self.e.tasks(lambda task: self._task(unravel(task, counts)))
        return Implementation(
            self.rule,
            (self.e.stage(prod(counts)),),
            (self._packing(),),
            parameters=self.parameters(),
            flops=self.conv.flops,
        )

    def parameters(self) -> dict[str, Any]:
        return {"tile": f"{self.columns}x{self.lanes}", "parts": self.row_parts}

    def _packing(self) -> Packing:
        lanes, c = self.lanes, self.conv
        shape = (c.rows, c.kernel[1], c.group_in, c.out_channels)
        key = f"grouped:{lanes}:{c.groups}"
        return Packing(self.fused.operand(1), key, lambda w: pack_weights(w.reshape(shape), lanes, c.groups))

    def _task(self, task: Sequence[Any]) -> None:
        """Strip by strip, in it row by row."""
        e, c = self.e, self.conv
        image, part, block = (e.let(i) for i in task)
        top, bottom = (e.let(div((part + i) * c.out_height, self.row_parts)) for i in (0, 1))
        begin = e.let(block * self.block)
        end = e.let(tirx.min(begin + self.block, index(self.vectors)))
        strips: list[tuple[int, int]] = []
        at = 0
        for size, count in balanced_split(c.out_width, self.columns):
            strips += [(at + i * size, size) for i in range(count)]
            at += size * count
        for first, last, taps in run_lengths(len(strips), lambda i: self._taps(*strips[i])):

            def strip(i: Any, start: int = strips[first][0], taps: Taps = taps) -> None:
                x = e.let(i * len(taps) + start)
                e.loop(top, bottom, lambda y: self._vectors((image, y, x), begin, end, taps))

            e.loop(0, last - first, strip)

    def _vectors(self, position: tuple[Any, Any, Any], begin: Any, end: Any, taps: Taps) -> None:
        """The vectors [begin, end) of a row of a strip, of which the last may be narrower."""
        e, full = self.e, self.conv.out_channels // self.lanes
        narrow = self.conv.out_channels % self.lanes
        if full:
            stop = e.let(tirx.min(end, index(full))) if narrow else end
            e.loop(begin, stop, lambda number: self._step(position, number, self.lanes, taps))
        if narrow:
            e.branch(end > index(full), lambda: self._step(position, full, narrow, taps))

    def _taps(self, x: int, size: int) -> Taps:
        c = self.conv
        return tuple(
            tuple(
                0 <= (x + i) * c.strides[1] - c.pad_left + j * c.dilation[1] < c.width
                for j in range(c.kernel[1])
            )
            for i in range(size)
        )

    def _step(self, position: tuple[Any, Any, Any], number: Any, lanes: int, taps: Taps) -> None:
        """Neighbouring pixels of one row, from ``position`` on, for a vector of ``lanes`` channels."""
        e, c, pitch = self.e, self.conv, self.fused.pitch
        image, y, x = position
        channel = e.let(number * self.lanes)
        first = div(channel, c.group_out) * c.group_in
        accumulators = e.local(len(taps) * lanes)
        for i in range(len(taps)):
            e.vstore(accumulators, i * lanes, e.f32(0, lanes), lanes)
        top, d = e.let(y * c.strides[0] - c.pad_top), c.dilation[0]
        left = x * c.strides[1] - c.pad_left
        before, plane = first_plane(e, c.planes, image)
        source = e.let(((before * c.height + top) * c.width + left) * c.in_channels + first)
        weights = e.let(channel * c.depth)
        begin = e.let(tirx.max(index(0), div(d - 1 - top, d))) if c.pad_top else 0
        # Never a constant, or LLVM would unroll the loop.
        end = e.let(tirx.min(index(c.kernel[0]), div(c.height - top + d - 1, d)))

        def rows(number: Any, behind: Any) -> None:
            def row(k: Any) -> None:
                pixel = (k * d + behind * c.height) * c.width if c.planes else k * (d * c.width)
                base = e.let(source + pixel * c.in_channels)
                at = e.let(weights + (number * c.kernel[0] + k) * (c.group_in * c.kernel[1] * lanes))
                self._window_row(accumulators, base, at, lanes, taps)

            e.loop(begin, end, row)

        each_plane(e, c.planes, plane, rows)
        target = e.let(((image * c.out_height + y) * c.out_width + x) * pitch + channel)
        for i in range(len(taps)):
            value = e.let(e.vload(accumulators, i * lanes, lanes))
            stored = self.fused.stored(e, value, (image, y, x + i, channel), lanes, self.extra)
            e.vstore(self.y, target + i * pitch, stored, lanes)

    def _window_row(self, accumulators: Any, base: Any, weights: Any, lanes: int, taps: Taps) -> None:
        """Adds a row of the window: elements of the input from ``base`` on, weights from ``weights`` on."""
        e, c = self.e, self.conv
        kw, groups = c.kernel[1], lanes // c.group_out
        uses: dict[int, list[tuple[int, int]]] = {}
        for i, inside in enumerate(taps):
            for j in (j for j in range(kw) if inside[j]):
                uses.setdefault(i * c.strides[1] + j * c.dilation[1], []).append((i, j))
        columns = sorted(uses)

        def channel(i: Any, value: Callable[[int], Any]) -> None:
            """Input channel ``i`` of each group, which ``value`` has of a column in each group's lanes."""
            loaded = [e.let(e.vload(self.w, weights + (i * kw + j) * lanes, lanes)) for j in range(kw)]
            for column in columns:
                here = e.let(value(column))
                for pixel, j in uses[column]:
                    old = e.vload(accumulators, pixel * lanes, lanes)
                    e.vstore(accumulators, pixel * lanes, e.multiply_add(here, loaded[j], old), lanes)

        def element(column: int, i: Any) -> Any:
            return e.splat(e.load(self.x, base + column * c.in_channels + i), lanes)

        if groups == 1:
            e.loop(0, c.group_in, lambda i: channel(i, lambda column: element(column, i)))
            return
        width = groups * c.group_in
        copies = -(-lanes // width)  # a shuffle has at most as many lanes as its operands
        blocks = {k: [e.let(e.vload(self.x, base + k * c.in_channels, width))] * copies for k in columns}
        for i, order in enumerate(channel_order(lanes, c.group_in, c.group_out)):
            lanes_of = [lane // c.group_out * c.group_in + k for lane, k in enumerate(order)]
            channel(i, lambda column, lanes_of=lanes_of: shuffle(blocks[column], lanes_of))  # type: ignore[misc]


def grouped_conv2d(fused: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Rule ``conv2d.grouped``: output channels of a group fill a vector, or a half, a quarter, ... of one."""
    found = anchored(fused, CONVOLUTIONS)
    conv = Conv2d.of(found)
    if conv.groups == 1:
        raise RuleError("one group")
    if found.operand(1) not in constants:
        raise RuleError("the weights are not constant")
    return GroupedConv(conv, found, target).build()


RULE = Rule("conv2d.grouped", order=300, dtypes=FLOAT32, apply=grouped_conv2d, heeds_pitch=True)
