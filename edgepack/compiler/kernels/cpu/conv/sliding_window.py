"""Sliding windows over channels-last images: what depthwise convolution and pooling have in common.

Each channel stands for itself, so the vector runs along the channels. A step computes some neighbouring
pixels of one output row for one vector of channels, all of its taps unrolled: each input vector is loaded
once per row of the window. Steps are ordered for the caches: a task is a few output rows of a block of
channels, and walks down a strip of columns, so that the rows of the window that the next step shares are
still in L1. Tasks run from last to first: what the layer before wrote last is still in L2, and so is, for
the layer behind, what this one writes last, the top of the image.

Columns in the padding are left out when the code is generated (the strips fall into a few patterns), rows in
the padding are skipped by a branch.
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
from edgepack.compiler.kernels.cpu.analysis.images import Planes
from edgepack.compiler.kernels.cpu.builder import KernelBuilder
from edgepack.compiler.kernels.cpu.conv.planes import each_plane, first_plane
from edgepack.compiler.kernels.cpu.emit.emitter import (
    Emitter,
    balanced_split,
    div,
    index,
    run_lengths,
    unravel,
)
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CACHE_LINE_BYTES, CpuTarget

__all__ = ["SlidingWindow", "Taps", "Window", "WindowOperands"]

#: Larger windows with weights would unroll into too much code, or read the weights too often.
LARGEST_WINDOW = 16
#: Taps of a window, and multiply-adds of a step, that are unrolled; above, the window's rows are a loop.
#: Unrolled, a 5x5 window is 25 % faster and its code twice as long.
UNROLLED_TAPS, UNROLLED_STEP = 64, 512
#: Pixels of an image up to which threads divide the channels.
FEW_PIXELS = 64
#: Which taps of each pixel of a step lie inside the image, along the width.
Taps = tuple[tuple[bool, ...], ...]


@dataclass(frozen=True)
class Window:
    """Geometry of windows that slide over images, NHWC; pairs are (height, width)."""

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
    planes: Planes | None = None


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

    position: tuple[Any, Any, Any]
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


class SlidingWindow(KernelBuilder):
    """Builds one kernel; a task is some output rows of one image, for a block of the channels."""

    #: Whether the kernel has a pointer to weights, packed by :func:`pack_weights`.
    weighted = False
    widest = LARGEST_WINDOW

    def __init__(
        self,
        rule: str,
        window: Window,
        fused: AnchoredGroup,
        target: CpuTarget,
        *,
        dtype: str = "float32",
        emitter: Emitter | None = None,
    ) -> None:
        if max(window.size if self.weighted else window.size[1:]) > self.widest:
            raise RuleError(f"a window of {window.size}")
        lanes = _lanes(window, target, dtype)
        super().__init__(rule, target, dtype=dtype, lanes=lanes, emitter=emitter)
        self.window, self.fused = window, fused
        taps = window.size[0] * window.size[1]
        # One pointer has to serve all rows, or their pointers would not fit the registers. In WebAssembly a
        # loop: V8 keeps fewer values in registers than the unrolled window has.
        unrollable = target.loads_have_displacement and not target.virtual_registers
        self.unrolled = unrollable and taps <= UNROLLED_TAPS and target.optimize != "size"
        self.columns = self._columns()
        self.steps = -(-window.channels // self.lanes)
        #: Threads divide the channels, not the rows: where there are more of them than pixels, so that the
        #: layer before, whose weights are large, was divided like that, and where rows are too few.
        rows = window.batch * window.out_height
        few = rows * window.out_width <= FEW_PIXELS
        self.by_channels = self.steps >= 4 * target.threads if few else rows < target.threads
        self.block = self._steps_per_block()
        self.row_parts = self._row_parts()
        self.operands = self._declare()

    # What fits ------------------------------------------------------------------------------------------

    def _most_columns(self) -> int:
        """Accumulators of a step: the more, the better they hide the latency of the multiply-add.

        Where arithmetic reads memory, weights stay there and inputs are gone through one by one; elsewhere
        accumulators, all inputs of a row and a weight have registers, so that neighbouring multiply-adds are
        independent. What waits for memory rather than for arithmetic has enough with 8.
        """
        g, registers = self.window, self.target.usable_registers
        if self.target.arithmetic_reads_memory:
            most = registers - 3 - (0 if self.target.fma else 1)
        else:
            most = (registers - 2 - (g.size[1] - 1) * g.dilation[1] + g.strides[1]) // (g.strides[1] + 1)
        arithmetic = self.weighted and g.strides[1] == 1 and g.size[0] * g.size[1] > 9
        return max(2, min(most, 14 if arithmetic else 8))

    def _columns(self) -> int:
        """Columns of a strip."""
        kh, kw = self.window.size
        unrolled = max(2, UNROLLED_STEP // (kh * kw if self.unrolled else kw))
        return min(self.window.out_width, self._most_columns(), unrolled)

    def _steps_per_block(self) -> int:
        """Channels of a task, in steps: the rows of the window, as wide as the strip, fit the L1 cache."""
        g = self.window
        pixels = (
            self.taps // g.size[1] * ((self.columns - 1) * g.strides[1] + (g.size[1] - 1) * g.dilation[1] + 1)
        )
        fits = max(2, self.target.l1d_bytes * 2 // 3 // (pixels * self.lanes * self.element_bytes))
        blocks = -(-self.steps // fits)
        if self.by_channels:
            blocks = -(-blocks // self.target.threads) * self.target.threads
        block = -(-self.steps // blocks)
        # The last step may overlap the one before, which must then be of the same task.
        while g.channels % self.lanes and self.steps % block == 1 and block < self.steps:
            block += 1
        return block

    def _row_parts(self) -> int:
        """Into how many parts the rows are cut: few, for each reads rows of its neighbours again."""
        g, threads = self.window, self.target.threads
        if self.by_channels:
            return 1
        parts = -(-g.out_height // (4 if g.size[0] <= 3 else 8))
        return min(g.out_height, -(-parts // threads) * threads)

    # Loops ----------------------------------------------------------------------------------------------

    @property
    def taps(self) -> int:
        """Elements of the window."""
        g = self.window
        return g.size[0] * g.size[1] * (g.planes.kernel if g.planes else 1)

    def _declare(self) -> WindowOperands:
        g = self.window
        images = g.batch // g.planes.out * g.planes.size if g.planes else g.batch
        x = self.e.param(self.fused.operand(0), images * g.height * g.width * g.channels)
        return WindowOperands(x, *self._declare_others())

    def _declare_others(self) -> tuple[Any, dict[int, Any], Any]:
        """All operands but the input."""
        e = self.e
        weights = None
        if self.weighted:
            weights = e.packed(0, self.taps * self.steps * self.lanes)
        return weights, self.fused.declare_epilogue(e), e.output(0, self.fused.output_elements)

    def build(self) -> Implementation:
        e, g = self.e, self.window
        # Threads divide the rows, as they do in the layers around, so that most of what they read is theirs.
        counts = (g.batch, self.row_parts, self.blocks)
        lo, hi = e.task_range()
        e.loop(lo, hi, lambda i: self.task(*unravel(e.let(lo + hi - 1 - i), counts)))
        stage = e.stage(prod(counts))
        flops = g.batch * g.out_height * g.out_width * g.channels * self.taps
        return Implementation(
            self.rule,
            (stage,),
            self.packings(),
            parameters=self.parameters(),
            flops=2 * flops if self.weighted else flops,
        )

    def parameters(self) -> dict[str, Any]:
        return {"tile": f"{self.columns}x{self.lanes}"}

    def packings(self) -> tuple[Packing, ...]:
        """The constants that the kernel reads in a layout of its own."""
        return ()

    @property
    def blocks(self) -> int:
        """Blocks of channels, each of which is a task of its own."""
        return -(-self.steps // self.block)

    def first_row(self, part: Any) -> Any:
        """The first output row of one of the parts into which rows are divided."""
        return self.e.let(div(part * self.window.out_height + self.row_parts - 1, self.row_parts))

    def task(self, image: Any, part: Any, block: Any) -> None:
        """Strip by strip, in it row by row."""
        e, g = self.e, self.window
        image, part, block = (e.let(i) for i in (image, part, block))
        channels: tuple[Any, Any] = (0, self.steps)
        if self.block < self.steps:
            begin = e.let(block * self.block)
            channels = begin, e.let(tirx.min(begin + self.block, index(self.steps)))
        top, bottom = self.first_row(part), self.first_row(part + 1)
        strips: list[tuple[int, int]] = []
        at = 0
        for size, count in balanced_split(g.out_width, self.columns):
            strips += [(at + i * size, size) for i in range(count)]
            at += size * count

        for first, last, taps in run_lengths(len(strips), lambda i: self._taps(*strips[i])):

            def strip(i: Any, start: int = strips[first][0], taps: Taps = taps) -> None:
                x = e.let(i * len(taps) + start)
                e.loop(top, bottom, lambda y: self._row(image, y, x, taps, channels))

            e.loop(0, last - first, strip)

    def _taps(self, x: int, size: int) -> Taps:
        g = self.window
        return tuple(
            tuple(
                0 <= (x + i) * g.strides[1] - g.pads[1] + k * g.dilation[1] < g.width
                for k in range(g.size[1])
            )
            for i in range(size)
        )

    def _row(self, image: Any, y: Any, x: Any, taps: Taps, channels: tuple[Any, Any]) -> None:
        """One row of a strip."""
        e, g = self.e, self.window
        top = e.let(y * g.strides[0] - g.pads[0])
        first, plane = first_plane(e, g.planes, image)
        source = self.lines(first, top, e.let((x * g.strides[1] - g.pads[1]) * g.channels))
        target = e.let(((image * g.out_height + y) * g.out_width + x) * self.fused.pitch)
        strip = _Strip((image, y, x), top, plane, source, target, taps)
        begin, end = self._inside(top)
        finish = self.finisher(begin, end, taps)

        def step(i: Any) -> None:
            at = i * self.lanes
            if g.channels % self.lanes:
                at = tirx.min(at, index(g.channels - self.lanes))
            self._step(strip, begin, end, i, e.let(at), finish)

        e.loop(*channels, step)

    def lines(self, image: Any, top: Any, at: Any) -> Callable[[Any], Any]:
        """Where element ``at`` of row ``k`` of the window is, the first row of which is row ``top``."""
        g = self.window
        pitch = g.width * g.channels
        start = self.e.let((image * g.height + top) * pitch + at)
        return lambda k: start + k * (g.dilation[0] * pitch)

    def _inside(self, top: Any) -> tuple[Any, Any]:
        """The rows [begin, end) of the window that lie inside the image."""
        e, g = self.e, self.window
        d = g.dilation[0]
        begin = e.let(tirx.max(index(0), div(d - 1 - top, d))) if g.pads[0] else 0
        lowest = (g.out_height - 1) * g.strides[0] - g.pads[0] + (g.size[0] - 1) * d
        if self.unrolled and lowest < g.height:
            return begin, g.size[0]
        end = tirx.min(index(g.size[0]), div(g.height - top + d - 1, d))
        if not self.unrolled:  # by way of a float, or LLVM would know how often the loop runs, and unroll it
            end = tirx.Cast("int32", tirx.Cast("float32", end) + e.f32(0.25, 1))
        return begin, e.let(end)

    def _step(self, strip: _Strip, begin: Any, end: Any, number: Any, channel: Any, finish: Any) -> None:
        """All pixels of a row of a strip, for one vector of channels."""
        e, g = self.e, self.window
        size, lanes = len(strip.taps), self.lanes
        accumulators = e.local(size * lanes)
        for i in range(size):
            e.vstore(accumulators, i * lanes, e.f32(self.initial(), lanes), lanes)
        kh, kw = g.size
        taps = [(i, j) for j in range(kw) for i in range(size) if strip.taps[i][j]]
        if self.target.arithmetic_reads_memory:
            taps.sort(key=lambda tap: tap[0] * g.strides[1] + tap[1] * g.dilation[1])

        def row(k: Any, plane: Any, behind: Any) -> None:
            base = e.let(strip.source(k) + channel)
            if g.planes:
                base = e.let(base + behind * (g.height * g.width * g.channels))
                k = (number * g.planes.kernel + plane) * kh + k
            else:
                k = number * kh + k
            weights = e.let(k * (kw * lanes))
            loaded: dict[tuple[Any, int], Any] = {}

            def load(buffer: Any, start: Any, at: int) -> Any:
                if (buffer, at) not in loaded:
                    loaded[buffer, at] = e.let(e.vload(buffer, start + at, lanes))
                return loaded[buffer, at]

            for i, j in taps:
                value = load(self.operands.x, base, (i * g.strides[1] + j * g.dilation[1]) * g.channels)
                weight = load(self.operands.weights, weights, j * lanes) if self.weighted else None
                old = e.vload(accumulators, i * lanes, lanes)
                e.vstore(accumulators, i * lanes, self.combine(old, value, weight), lanes)

        def rows(plane: Any, behind: Any) -> None:
            if self.unrolled:
                for k in range(kh):
                    self._if_inside(k, begin, end, lambda k: row(k, plane, behind))
            else:
                e.loop(begin, end, lambda k: row(k, plane, behind))

        each_plane(e, g.planes, strip.plane, rows)
        image, y, x = strip.position
        for i in range(size):
            value = finish(e.let(e.vload(accumulators, i * lanes, lanes)), i)
            stored = self.fused.stored(e, value, (image, y, x + i, channel), lanes, self.operands.epilogue)
            e.vstore(self.operands.y, strip.target + i * self.fused.pitch + channel, stored, lanes)

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


def _lanes(window: Window, target: CpuTarget, dtype: str) -> int:
    """Elements of a vector: at most the channels, and halves where they are faster."""
    lanes, line = target.lanes(dtype), CACHE_LINE_BYTES // DTYPE_BYTES[dtype]
    while lanes > window.channels:
        lanes //= 2
    if lanes == line and window.channels % line == line // 2 and window.size[0] * window.size[1] <= 9:
        # Half of the pixels begin in the middle of a cache line, where halves are faster.
        lanes //= 2
    return lanes
