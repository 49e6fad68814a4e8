"""Sliding windows over channels-last images: what depthwise convolution and pooling have in common.

Each channel stands for itself, so the vector runs along the channels. A step computes some neighbouring
pixels of one output row for one vector of channels, all of its taps unrolled: each input vector is loaded
once per row of the window. Tasks run from last to first: what the layer before wrote last is still in L2, and
so is, for the layer behind, what this one writes last, the top of the image.

Rows in the padding are skipped by a branch, or are not in the loop over them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.contract import Implementation, Packing, RuleError
from edgepack.compiler.kernels.cpu.analysis.anchored_group import AnchoredGroup
from edgepack.compiler.kernels.cpu.conv.depth_window import each_plane, first_plane
from edgepack.compiler.kernels.cpu.conv.window import Taps, Window
from edgepack.compiler.kernels.cpu.conv.window_schedule import SlidingSchedule, propose_sliding
from edgepack.compiler.kernels.cpu.conv.window_walk import Position, WindowWalk
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import index, unravel
from edgepack.plan.target import CpuTarget

__all__ = ["OPEN", "SlidingWindow", "WindowOperands"]

#: All is left to the cost model.
OPEN = SlidingSchedule()

#: Larger windows with weights would unroll into too much code, or read the weights too often.
LARGEST_WINDOW = 16


@dataclass(frozen=True)
class _Strip:
    """Where a step stands: an output row of some columns of one image, and which of its taps exist.

    Attributes:
        position: (image, output row, first output column).
        top: the input row of the first tap, negative in the padding.
        plane: that of the first tap in its volume, negative in the padding.
        source: offset of the first tap of a row of the window, without the channel.
        target: offset of the first pixel, without the channel.
        taps: which there are, of each pixel.
    """

    position: Position
    top: Any
    plane: Any
    source: Callable[[Any], Any]
    target: Any
    taps: Taps


@dataclass(frozen=True)
class WindowOperands:
    """The buffers of the kernel: image, packed weights (or None), what the epilogue reads, and output."""

    x: Any
    weights: Any
    epilogue: dict[int, Any]
    y: Any


class SlidingWindow(WindowWalk):
    """Builds one kernel; a task is some output rows of one image, for a block of the channels.

    Args:
        given: of its schedule.
    """

    #: Whether the kernel has a pointer to weights, packed by :func:`pack_taps`.
    weighted = False
    widest = LARGEST_WINDOW
    #: Vectors of sums of a pixel, which has ``lanes`` channels.
    vectors = 1

    def __init__(
        self,
        rule: str,
        window: Window,
        fused: AnchoredGroup,
        target: CpuTarget,
        given: SlidingSchedule = OPEN,
        *,
        emitter: Emitter | None = None,
    ) -> None:
        high = self.weighted and window.taps > self.widest**2
        if high or window.size[1] > self.widest:
            raise RuleError(f"a window of {window.size}")
        schedule = propose_sliding(
            window,
            target,
            (self.lane_type(fused), fused.types.left),
            given,
            weighted=self.weighted,
            vectors=self.vectors,
            by_rows=fused.by_rows,
        )
        super().__init__(rule, window, fused, target, schedule, emitter)
        self.unrolled = bool(schedule.unrolled)
        self.operands = self._declare()

    # Loops ----------------------------------------------------------------------------------------------

    def _declare(self) -> WindowOperands:
        x = self.e.param(self.fused.operand(0), self.window.input_elements, self.fused.types.left)
        return WindowOperands(x, *self._declare_others())

    def _declare_others(self) -> tuple[Any, dict[int, Any], Any]:
        """All operands but the input."""
        e = self.e
        weights = None
        if self.weighted:
            rows = self.window.taps // self.window.size[1]
            weights = e.packed(0, rows * self.steps * self.row_weights, self.weights_type)
        y = e.output(0, self.fused.output_elements, self.fused.types.result)
        return weights, self.fused.declare_epilogue(e), y

    def build(self) -> Implementation:
        e, g = self.e, self.window
        lo, hi = e.task_range()
        e.loop(lo, hi, lambda i: self.task(*unravel(e.let(lo + hi - 1 - i), self.counts)))
        stage = e.stage(prod(self.counts))
        flops = g.batch * g.out_height * g.out_width * g.channels * g.taps
        return Implementation(
            self.rule,
            (stage,),
            self.packings(),
            rows=self.fused.rows(*g.down),
            schedule=self.schedule,
            parameters=self.parameters(),
            flops=2 * flops if self.weighted else flops,
        )

    def packings(self) -> tuple[Packing, ...]:
        """The constants that the kernel reads in a layout of its own."""
        return ()

    def row(self, at: Position, taps: Taps, channels: tuple[Any, Any]) -> None:
        e, g = self.e, self.window
        image, y, x = at
        top = e.let(y * g.strides[0] - g.pads[0])
        first, plane = first_plane(e, g.depth_window, image)
        source = self.lines(first, top, e.let((x * g.strides[1] - g.pads[1]) * g.channels))
        target = e.let(((image * g.out_height + y) * g.out_width + x) * self.fused.row_stride)
        strip = _Strip(at, top, plane, source, target, taps)
        begin, end = self._inside(top)
        finish = self.finisher(begin, end, taps)

        def step(i: Any) -> None:
            channel = i * self.lanes
            if g.channels % self.lanes:
                channel = tirx.min(channel, index(g.channels - self.lanes))
            self._step(strip, begin, end, i, e.let(channel), finish)

        e.loop(*channels, step)

    def lines(self, image: Any, top: Any, at: Any) -> Callable[[Any], Any]:
        """Where element ``at`` of row ``k`` of the window is, the first row of which is row ``top``."""
        g = self.window
        row_stride = g.width * g.channels
        start = self.e.let((image * g.height + top) * row_stride + at)
        return lambda k: start + k * (g.dilation[0] * row_stride)

    def _inside(self, top: Any) -> tuple[Any, Any]:
        """The rows [begin, end) of the window that lie inside the image."""
        e, g = self.e, self.window
        begin = self.first_inside(top)
        lowest = (g.out_height - 1) * g.strides[0] - g.pads[0] + (g.size[0] - 1) * g.dilation[0]
        if self.unrolled and lowest < g.height:
            return begin, g.size[0]
        end = self.end_inside(top)
        if self.unrolled:
            return begin, e.let(end)
        if not self.target.computes_floats:
            return begin, e.opaque_bound(end)
        # By way of a float, or LLVM would know how often the loop runs, and unroll it.
        return begin, e.let(tirx.Cast("int32", tirx.Cast("float32", end) + e.f32(0.25, 1)))

    def _step(self, strip: _Strip, begin: Any, end: Any, number: Any, channel: Any, finish: Any) -> None:
        """All pixels of a row of a strip, for one vector of channels."""
        e, g = self.e, self.window
        size, lanes = len(strip.taps), self.lanes
        accumulators = self.accumulators(size * self.vectors, lanes // self.vectors, self.initial())
        kh = g.size[0]

        def row(k: Any, plane: Any, behind: Any) -> None:
            base = e.let(strip.source(k) + channel)
            if g.depth_window:
                base = e.let(base + behind * (g.height * g.width * g.channels))
                k = (number * g.depth_window.kernel + plane) * kh + k
            else:
                k = number * kh + k
            self.add_row(accumulators, strip.taps, base, e.let(k * self.row_weights))

        def looped(k: Any, plane: Any, behind: Any) -> None:
            row(k, plane, behind)
            e.not_unrolled(k)

        def rows(plane: Any, behind: Any) -> None:
            if self.unrolled:
                for k in range(kh):
                    self._if_inside(k, begin, end, lambda k: row(k, plane, behind))
            else:
                e.loop(begin, end, lambda k: looped(k, plane, behind))

        each_plane(e, g.depth_window, strip.plane, rows)
        image, y, x = strip.position
        for i in range(size):
            for first, width, value in self.sums(accumulators, i):
                at = channel + first if first else channel
                position, done = (image, y, x + i, at), finish(e.let(value), i)
                stored = self.fused.stored(e, done, position, width, self.operands.epilogue)
                e.vstore(self.operands.y, strip.target + i * self.fused.row_stride + at, stored, width)

    @property
    def row_weights(self) -> int:
        """Packed weights of a row of the window, for a vector of channels."""
        return self.window.size[1] * self.lanes

    @property
    def weights_type(self) -> str:
        """Element type of packed weights."""
        return self.fused.types.right

    def lane_type(self, fused: AnchoredGroup) -> str:
        """The element type by which a vector has as many lanes as a step has channels."""
        return fused.dtype

    def add_row(self, accumulators: Any, taps: Taps, base: Any, weights: Any) -> None:
        """Adds the taps of a row of the window to all pixels of a step.

        Args:
            accumulators: :attr:`vectors` of each pixel.
            taps: which there are, of each pixel.
            base: where the first tap of the first pixel lies, ``weights`` where that of the row does.
        """
        e, g, lanes = self.e, self.window, self.lanes
        places = [(i, j) for j in range(len(taps[0])) for i in range(len(taps)) if taps[i][j]]
        if self.target.arithmetic_reads_memory:
            places.sort(key=lambda tap: tap[0] * g.strides[1] + tap[1] * g.dilation[1])
        loaded: dict[tuple[Any, int], Any] = {}

        def load(buffer: Any, start: Any, at: int) -> Any:
            if (buffer, at) not in loaded:
                loaded[buffer, at] = e.let(e.vload(buffer, start + at, lanes))
            return loaded[buffer, at]

        for i, j in places:
            value = load(self.operands.x, base, (i * g.strides[1] + j * g.dilation[1]) * g.channels)
            weight = load(self.operands.weights, weights, j * lanes) if self.weighted else None
            old = e.vload(accumulators, i * lanes, lanes)
            e.vstore(accumulators, i * lanes, self.combine(old, value, weight), lanes)

    def sums(self, accumulators: Any, pixel: int) -> list[tuple[int, int, Any]]:
        """The sums of a pixel of a step: the first channel and the channels of each vector, and it."""
        return [(0, self.lanes, self.e.vload(accumulators, pixel * self.lanes, self.lanes))]

    def _if_inside(self, k: int, begin: Any, end: Any, row: Any) -> None:
        """Row ``k`` of the window, unless it lies in the padding."""
        g = self.window
        line = k * g.dilation[0] - g.pads[0]
        tests = []
        if line < 0:
            tests.append(begin <= index(k))
        if (g.out_height - 1) * g.strides[0] + line >= g.height:
            tests.append(index(k) < index(end))
        if tests:
            self.e.branch(tirx.all(*tests), lambda: row(k))
        else:
            row(k)

    # Arithmetic -----------------------------------------------------------------------------------------

    def initial(self) -> float:
        """What an accumulator begins with."""
        return 0.0

    @abstractmethod
    def combine(self, old: Any, value: Any, weight: Any) -> Any:
        """The accumulator after one more tap."""

    def finisher(self, begin: Any, end: Any, taps: Taps) -> Any:
        """What makes a pixel's value of its accumulator and its number in the strip.

        ``end - begin`` rows of the window, and the columns of ``taps``, were inside.
        """
        return lambda value, pixel: value
