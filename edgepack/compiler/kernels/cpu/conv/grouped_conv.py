"""Convolution in groups of few channels, NHWC: vectors along the output channels, of one group or of several.

A group of 8 output channels fills half of a vector of 16; an implicit matrix product (``dense.py``) would
leave the other half empty, and pay for loops that are as short as a group is narrow. Here several groups lie
side by side in one vector: an input vector holds the channels of just these groups, and for each input
channel of a group one shuffle brings it into all lanes of its group. A group that fills a vector broadcasts
elements instead. As in ``sliding_window.py`` a step computes some neighbouring pixels of one row, whose
windows overlap, so that what was shuffled or broadcast serves all taps that read it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from tvm import tirx

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Array, Implementation, Packing, RuleError
from edgepack.compiler.kernels.cpu.analysis.anchored_group import CONVOLUTIONS, AnchoredGroup, anchored
from edgepack.compiler.kernels.cpu.conv.depth_window import each_plane, first_plane
from edgepack.compiler.kernels.cpu.conv.gemm_schedule import RESIDENT_WEIGHTS
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.grouped_cost import propose_units
from edgepack.compiler.kernels.cpu.conv.grouped_units import GroupedUnits
from edgepack.compiler.kernels.cpu.conv.window import Taps, Window
from edgepack.compiler.kernels.cpu.conv.window_schedule import GroupedSchedule, fitting
from edgepack.compiler.kernels.cpu.conv.window_walk import MULTIPLIED, Position, WindowWalk
from edgepack.compiler.kernels.cpu.emit.indices import div, index, unravel
from edgepack.compiler.kernels.cpu.emit.register_transpose import shuffle
from edgepack.compiler.kernels.cpu.micro.registry import micro_kernel_for
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.compiler.kernels.rule import OTHER_DTYPE, PRODUCTS, Rule
from edgepack.compiler.kernels.schedule import ScheduleError
from edgepack.plan.target import CpuTarget

__all__ = ["channel_order", "grouped_conv2d", "pack_groups"]

#: Pixels of a step; more would not run faster.
MOST_COLUMNS = 12

#: Multiply-adds of a row of the window that are written out one by one.
UNROLLED = 640


#: All is left to the cost model.
OPEN = GroupedSchedule()


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


def pack_groups(weights: Array, lanes: int, groups: int) -> Array:
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


def propose(conv: Conv2d, target: CpuTarget, given: GroupedSchedule) -> GroupedSchedule:
    """What is decided about a convolution, but for what is given.

    Raises:
        RuleError: if it is not for such a convolution.
        ScheduleError: if what is given does not fit.
    """
    lanes = target.lanes(conv.dtype)
    if conv.strides[1] > 1 and 2 * conv.group_out == lanes == 16:
        # A shuffle for one or two taps costs more than the other half of a vector brings.
        lanes = conv.group_out
    if lanes % conv.group_out or conv.group_in > conv.group_out:
        raise RuleError("groups do not fill a vector")
    lanes = given.lanes or lanes
    if lanes % conv.group_out or lanes > target.lanes(conv.dtype):
        raise ScheduleError(f"vectors of {lanes} lanes for groups of {conv.group_out}")
    side_by_side = conv.group_out < lanes
    if conv.kernel == (1, 1) and not side_by_side:
        raise RuleError("no windows that overlap")
    columns = given.columns or _columns(conv, target, side_by_side=side_by_side)
    if side_by_side and conv.kernel[1] * columns * conv.group_in > UNROLLED:
        raise RuleError("a wide window of many channels")
    block = given.block or _block(conv, target, lanes, columns)
    parts = given.row_parts or _row_parts(conv, target, -(-conv.out_channels // lanes), block)
    return fitting(GroupedSchedule(lanes, columns, block, parts), Window.of(conv))


def _columns(conv: Conv2d, target: CpuTarget, *, side_by_side: bool) -> int:
    """Pixels of a step: what hides the latency of multiply-adds, as far as there are registers.

    Side by side, the input vectors of a row of the window are in registers too, and the order of each input
    channel's shuffle, or next to the stack's top: with fewer than 6 pixels latency costs more than that.
    """
    free = target.usable_registers - conv.kernel[1] - 3
    most = max(6, (free - conv.group_in) // (1 + conv.strides[1])) if side_by_side else free
    return min(conv.out_width, max(2, min(most, MOST_COLUMNS)))


def _block(conv: Conv2d, target: CpuTarget, lanes: int, columns: int) -> int:
    """Vectors of a task: their weights, and the window's rows as wide as a step, fit the L1 cache."""
    elements = (conv.kernel[0] * Window.of(conv).reach(columns) + conv.depth) * lanes
    fits = target.l1d_bytes * 2 // 3 // (elements * conv.element_bytes)
    vectors = -(-conv.out_channels // lanes)
    blocks = -(-vectors // max(1, fits))
    if conv.batch * conv.out_height < target.threads:  # rows are too few to share
        blocks = max(blocks, min(vectors, target.threads))
    return -(-vectors // blocks)


def _row_parts(conv: Conv2d, target: CpuTarget, vectors: int, block: int) -> int:
    """Into how many parts the rows are cut; large weights are not read again for another part."""
    threads = target.threads
    weights = conv.depth * conv.out_channels * conv.element_bytes
    if weights > RESIDENT_WEIGHTS and vectors >= 4 * threads * block:
        return 1
    parts = -(-conv.out_height // 8)
    return min(conv.out_height, -(-parts // threads) * threads)


class GroupedConv(WindowWalk):
    """Builds one kernel; a task is some output rows of one image, for a few vectors of channels."""

    def __init__(
        self, conv: Conv2d, fused: AnchoredGroup, target: CpuTarget, schedule: GroupedSchedule
    ) -> None:
        super().__init__("conv2d.grouped", Window.of(conv), fused, target, schedule)
        self.conv = conv
        self.x = self.e.param(fused.operand(0), conv.input_elements)
        self.w = self.e.packed(0, conv.depth * conv.out_channels)
        self.extra = fused.declare_epilogue(self.e)
        self.y = self.e.output(0, fused.output_elements)

    # Loops ----------------------------------------------------------------------------------------------

    def build(self) -> Implementation:
        self.e.tasks(lambda task: self.task(*unravel(task, self.counts)))
        return Implementation(
            self.rule,
            (self.e.stage(prod(self.counts)),),
            (self._packing(),),
            schedule=self.schedule,
            flops=self.conv.flops,
        )

    def _packing(self) -> Packing:
        lanes, c = self.lanes, self.conv
        shape = (c.rows, c.kernel[1], c.group_in, c.out_channels)
        key = f"grouped:{lanes}:{c.groups}"
        return Packing(self.fused.operand(1), key, lambda w: pack_groups(w.reshape(shape), lanes, c.groups))

    def bounds(self, part: Any, block: Any) -> tuple[Any, Any, tuple[Any, Any]]:
        """The vectors are never constants, or LLVM would unroll the loop over them."""
        e, c = self.e, self.conv
        top, bottom = (e.let(div((part + i) * c.out_height, self.row_parts)) for i in (0, 1))
        begin = e.let(block * self.block)
        return top, bottom, (begin, e.let(tirx.min(begin + self.block, index(self.steps))))

    def row(self, at: Position, taps: Taps, channels: tuple[Any, Any]) -> None:
        """The last vector of channels may be narrower."""
        e, full = self.e, self.conv.out_channels // self.lanes
        narrow = self.conv.out_channels % self.lanes
        begin, end = channels
        if full:
            stop = e.let(tirx.min(end, index(full))) if narrow else end
            e.loop(begin, stop, lambda number: self._step(at, number, self.lanes, taps))
        if narrow:
            e.branch(end > index(full), lambda: self._step(at, full, narrow, taps))

    def _step(self, position: Position, number: Any, lanes: int, taps: Taps) -> None:
        """Neighbouring pixels of one row, from ``position`` on, for a vector of ``lanes`` channels."""
        e, c, row_stride = self.e, self.conv, self.fused.row_stride
        image, y, x = position
        channel = e.let(number * self.lanes)
        first = div(channel, c.group_out) * c.group_in
        accumulators = self.accumulators(len(taps), lanes, 0)
        top, d = e.let(y * c.strides[0] - c.pad_top), c.dilation[0]
        left = x * c.strides[1] - c.pad_left
        before, plane = first_plane(e, c.depth_window, image)
        source = e.let(((before * c.height + top) * c.width + left) * c.in_channels + first)
        weights = e.let(channel * c.depth)
        # The end is never a constant, or LLVM would unroll the loop.
        begin, end = self.first_inside(top), e.let(self.end_inside(top))

        def rows(number: Any, behind: Any) -> None:
            def row(k: Any) -> None:
                pixel = (k * d + behind * c.height) * c.width if c.depth_window else k * (d * c.width)
                base = e.let(source + pixel * c.in_channels)
                at = e.let(weights + (number * c.kernel[0] + k) * (c.group_in * c.kernel[1] * lanes))
                self._window_row(accumulators, base, at, lanes, taps)

            e.loop(begin, end, row)

        each_plane(e, c.depth_window, plane, rows)
        target = e.let(((image * c.out_height + y) * c.out_width + x) * row_stride + channel)
        for i in range(len(taps)):
            value = e.let(e.vload(accumulators, i * lanes, lanes))
            stored = self.fused.stored(e, value, (image, y, x + i, channel), lanes, self.extra)
            e.vstore(self.y, target + i * row_stride, stored, lanes)

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


def grouped_conv2d(
    fused: FusedGroup, target: CpuTarget, constants: frozenset[int], given: GroupedSchedule = OPEN
) -> Implementation:
    """Rule ``conv2d.grouped``: output channels of a group fill a vector, or a half, a quarter, ... of one."""
    found = anchored(fused, CONVOLUTIONS)
    conv = Conv2d.of(found)
    if conv.groups == 1:
        raise RuleError("one group")
    if found.operand(1) not in constants:
        raise RuleError("the weights are not constant")
    if found.types != ProductTypes.of(conv.dtype):
        micro = micro_kernel_for(found.products, conv.group_sizes, target, constant=True, unit="int32")
        micro, layout, schedule = propose_units(conv.in_units(micro.group), micro, given)
        return GroupedUnits(conv, found, micro, layout, schedule).build()
    if conv.dtype not in MULTIPLIED:
        raise RuleError(f"{OTHER_DTYPE}{found.types}")
    return GroupedConv(conv, found, target, propose(conv, target, given)).build()


RULE = Rule(
    "conv2d.grouped",
    order=300,
    dtypes=PRODUCTS,
    apply=grouped_conv2d,
    heeds_row_stride=True,
    schedule=GroupedSchedule,
)
