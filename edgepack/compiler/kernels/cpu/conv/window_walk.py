"""The walk of kernels that slide windows over channels-last images: tasks, strips of columns, rows.

A step computes some neighbouring pixels of one output row for one vector of channels. Steps are ordered for
the caches: a task is a few output rows of a block of channels, and walks down a strip of columns, so that the
rows of the window that the next step shares are still in L1.

Columns in the padding are left out when the code is generated (the strips fall into a few patterns), rows in
the padding are skipped.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.analysis.anchored_group import AnchoredGroup
from edgepack.compiler.kernels.cpu.builder import KernelBuilder
from edgepack.compiler.kernels.cpu.conv.window import Strips, Taps, Window
from edgepack.compiler.kernels.cpu.conv.window_schedule import WindowSchedule
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import div, index
from edgepack.plan.target import CpuTarget

__all__ = ["MULTIPLIED", "Position", "WindowWalk"]

#: Element types of windows that are multiplied with weights. Integers are multiplied as int16 and summed as
#: int32, which is a product of two types.
MULTIPLIED = frozenset({"float32", "float64"})

#: (image, output row, first output column) of a step.
Position = tuple[Any, Any, Any]


class WindowWalk(KernelBuilder):
    """Builds one kernel; a task is some output rows of one image, for a block of the channels.

    Attributes:
        columns: pixels of a step, at most.
        steps: vectors of channels, the last of which may have fewer, and ``block`` those of a task.
        row_parts: into how many parts the output's rows are cut.
    """

    def __init__(
        self,
        rule: str,
        window: Window,
        fused: AnchoredGroup,
        target: CpuTarget,
        schedule: WindowSchedule,
        emitter: Emitter | None = None,
    ) -> None:
        lanes, columns, block, parts = (
            schedule.lanes,
            schedule.columns,
            schedule.block,
            schedule.row_parts,
        )
        assert lanes is not None and columns is not None and block is not None and parts is not None
        super().__init__(rule, target, dtype=fused.dtype, lanes=lanes, emitter=emitter)
        self.window, self.fused, self.schedule = window, fused, schedule
        self.columns, self.block, self.row_parts = columns, block, parts
        self.steps = -(-window.out_channels // lanes)

    def parameters(self) -> dict[str, Any]:
        return {}

    @property
    def blocks(self) -> int:
        """Blocks of channels, each of which is a task of its own."""
        return -(-self.steps // self.block)

    @property
    def counts(self) -> tuple[int, int, int]:
        """As2d, parts of their rows, and blocks of channels: the tasks, in this order.

        Threads divide the rows, as they do in the layers around, so that most of what they read is theirs.
        """
        return self.window.batch, self.row_parts, self.blocks

    def task(self, image: Any, part: Any, block: Any) -> None:
        """Strip by strip, in it row by row."""
        e = self.e
        image, part, block = (e.let(i) for i in (image, part, block))
        top, bottom, channels = self.bounds(part, block)
        for strips in self.window.strips(self.columns):

            def strip(i: Any, strips: Strips = strips) -> None:
                x = e.let(i * len(strips.taps) + strips.first)
                e.loop(top, bottom, lambda y: self.row((image, y, x), strips.taps, channels))

            e.loop(0, strips.count, strip)

    def bounds(self, part: Any, block: Any) -> tuple[Any, Any, tuple[Any, Any]]:
        """The output rows [top, bottom) of a part, and the vectors [begin, end) of channels of a block."""
        channels: tuple[Any, Any] = (0, self.steps)
        if self.block < self.steps:
            begin = self.e.let(block * self.block)
            channels = begin, self.e.let(tirx.min(begin + self.block, index(self.steps)))
        return self.first_row(part), self.first_row(part + 1), channels

    def first_row(self, part: Any) -> Any:
        """The first output row of one of the parts into which rows are divided."""
        return self.e.let(div(part * self.window.out_height + self.row_parts - 1, self.row_parts))

    @abstractmethod
    def row(self, at: Position, taps: Taps, channels: tuple[Any, Any]) -> None:
        """One row of a strip, from a position on, for the vectors [begin, end) of channels."""

    def first_inside(self, top: Any) -> Any:
        """The first row of the window that lies inside the image, if its first is row ``top`` of that."""
        d = self.window.dilation[0]
        return self.e.let(tirx.max(index(0), div(d - 1 - top, d))) if self.window.pads[0] else 0

    def end_inside(self, top: Any) -> Any:
        """The row of the window behind the last that lies inside the image."""
        g, d = self.window, self.window.dilation[0]
        return tirx.min(index(g.size[0]), div(g.height - top + d - 1, d))

    def constant(self, value: float, lanes: int) -> Any:
        """A number of the kernel's type in every lane."""
        return self.e.splat(tirx.const(value, self.dtype), lanes)

    def accumulators(self, pixels: int, lanes: int, initial: float) -> Any:
        """A vector for each pixel of a step, all lanes of which begin with a number."""
        sums = self.e.local(pixels * lanes, self.dtype)
        for i in range(pixels):
            self.e.vstore(sums, i * lanes, self.constant(initial, lanes), lanes)
        return sums
