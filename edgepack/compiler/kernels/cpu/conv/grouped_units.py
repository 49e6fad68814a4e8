"""Convolution in groups of few channels by micro-kernels of units (quads of bytes, pairs of int16), NHWC.

A group of 8 output channels fills half of a vector of 16 sums; an implicit matrix product (``dense.py``)
leaves the other half empty, and has a broadcast of its own for each multiply-add. Here several groups lie
side by side (:mod:`.grouped_layout`), and a step computes some neighbouring pixels of one row: what is loaded
and shuffled of a pixel of the input serves all taps that read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
from tvm import tirx
from tvm.tirx import IntImm

from edgepack.compiler.kernels.contract import Array, Implementation, Packing
from edgepack.compiler.kernels.cpu.analysis.anchored_group import AnchoredGroup
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.grouped_layout import GroupLayout
from edgepack.compiler.kernels.cpu.conv.window import Taps, Window
from edgepack.compiler.kernels.cpu.conv.window_schedule import GroupedSchedule
from edgepack.compiler.kernels.cpu.conv.window_walk import Position, WindowWalk
from edgepack.compiler.kernels.cpu.emit.indices import index, unravel
from edgepack.compiler.kernels.cpu.emit.register_transpose import shuffle
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel
from edgepack.plan.dtypes import DTYPE_BYTES

__all__ = ["GroupedUnits"]


class GroupedUnits(WindowWalk):
    """Builds one kernel; a task is some output rows of one image, for some blocks of groups.

    Args:
        elements: the convolution; what is computed is one of the micro-kernel's units.
        micro: computes the products, by vectors as wide as the layout's.
        layout: of the groups.
    """

    def __init__(
        self,
        elements: Conv2d,
        fused: AnchoredGroup,
        micro: MicroKernel,
        layout: GroupLayout,
        schedule: GroupedSchedule,
    ) -> None:
        self.conv = conv = elements.in_units(micro.group)
        emitter = micro.emitter()
        super().__init__("conv2d.grouped", Window.of(conv), fused, micro.target, schedule, emitter)
        self.elements, self.micro, self.layout = elements, micro, layout
        #: Blocks of groups: a step is one of them.
        self.steps = -(-conv.groups // layout.groups)
        self.sums = layout.vectors * layout.lanes
        self.x = fused.declare_operand(self.e, 0, conv.input_elements, micro.left_unit)
        self.w = self.e.packed(0, self.steps * conv.depth * self.sums, micro.right_unit)
        #: Sums of rows of the window that read the padding, where that is not 0.
        self.outside = None
        if elements.outside and (conv.pad_top or conv.pad_bottom):
            self.outside = self.e.packed(1, self.steps * conv.kernel[0] * self.sums)
        self.extra = fused.declare_epilogue(self.e)
        self.y = self.e.output(0, fused.output_elements, micro.types.result)

    def parameters(self) -> dict[str, Any]:
        return self.micro.parameters()

    def build(self) -> Implementation:
        self.e.tasks(lambda task: self.task(*unravel(task, self.counts)))
        return Implementation(
            self.rule,
            (self.e.stage(prod(self.counts)),),
            self._packings(),
            schedule=self.schedule,
            parameters=self.parameters(),
            flops=self.elements.flops,
            multiply_adds=self.elements.multiply_adds,
            weights=self.steps * self.conv.depth * self.sums * DTYPE_BYTES[self.micro.right_unit],
            rate=self.micro.rate,
        )

    def _packings(self) -> tuple[Packing, ...]:
        c, micro, layout = self.elements, self.micro, self.layout
        param, shape = self.fused.operand(1), (*c.kernel, c.group_in, c.out_channels)
        key = f"{layout.lanes}:{layout.groups}:{layout.repeated:d}:{c.groups}"

        def pack(w: Array) -> Array:
            return layout.pack(micro.pack_units(w.reshape(shape)), c.groups)

        def pack_outside(w: Array) -> Array:
            sums = w.reshape(shape).astype(np.int64).sum((1, 2)) * c.outside
            return layout.pack_sums(sums, c.groups).astype(np.int32)

        packed = Packing(param, f"groups of {micro.layout}:{key}", pack)
        if self.outside is None:
            return (packed,)
        return (packed, Packing(param, f"outside of groups:{c.outside}:{key}", pack_outside))

    def bounds(self, part: Any, block: Any) -> tuple[Any, Any, tuple[Any, Any]]:
        """The blocks of groups are never constants, or LLVM would unroll the loop over them."""
        begin = self.e.let(block * self.block)
        end = self.e.let(tirx.min(begin + self.block, index(self.steps)))
        return self.first_row(part), self.first_row(part + 1), (begin, end)

    def row(self, at: Position, taps: Taps, channels: tuple[Any, Any]) -> None:
        self.e.loop(*channels, lambda block: self._step(at, block, taps))

    # A step: neighbouring pixels of one row, for a block of groups ----------------------------------------

    def _step(self, position: Position, block: Any, taps: Taps) -> None:
        e, c = self.e, self.conv
        image, y, x = position
        group = self.layout.first_group(block, c.groups, lambda a, b: tirx.min(a, index(b)))
        group = e.let(group)
        sums = self.accumulators(len(taps) * self.layout.vectors, self.layout.lanes, 0)
        top = e.let(y * c.strides[0] - c.pad_top)
        left = x * c.strides[1] - c.pad_left
        source = e.let(((image * c.height + top) * c.width + left) * c.in_channels + group * c.group_in)
        row_weights = c.kernel[1] * c.group_in * self.sums
        weights = e.let(block * (c.kernel[0] * row_weights))
        # The end is never a constant, or LLVM would unroll the loop.
        begin, end = self.first_inside(top), e.let(self.end_inside(top))

        def row(k: Any) -> None:
            base = e.let(source + k * (c.dilation[0] * c.width * c.in_channels))
            self._window_row(sums, base, e.let(weights + k * row_weights), taps)

        def outside(k: Any) -> None:
            at = e.let((block * c.kernel[0] + k) * self.sums)
            for vector in range(self.layout.vectors):
                added = e.let(e.vload(self.outside, at + vector * self.lanes, self.lanes))
                for i in range(len(taps)):
                    place = i * self.sums + vector * self.lanes
                    e.vstore(sums, place, e.vload(sums, place, self.lanes) + added, self.lanes)

        e.loop(begin, end, row)
        if self.outside is not None:
            e.loop(0, begin, outside)
            e.loop(end, c.kernel[0], outside)
        self._store(sums, (image, y, x, e.let(group * c.group_out)), len(taps))

    def _window_row(self, sums: Any, base: Any, weights: Any, taps: Taps) -> None:
        """Adds a row of the window: units of the input from ``base`` on, weights from ``weights`` on."""
        e, c, layout = self.e, self.conv, self.layout
        row = c.kernel[1] * layout.vectors
        together = max(1, min(layout.units, self._free_registers(len(taps)) // row))
        uses = self._uses(taps)
        step_weights = c.kernel[1] * self.sums

        def steps(numbers: list[Any]) -> None:
            loaded = [
                [
                    e.let(e.vload(self.w, weights + (s * step_weights + i * self.lanes), self.lanes))
                    for i in range(row)
                ]
                for s in numbers
            ]
            for column, pixels in sorted(uses.items()):
                inside = taps[pixels[0][0]][pixels[0][1]]
                operands = self._operands(base + column * c.in_channels, inside=inside)
                for s, weight in zip(numbers, loaded, strict=True):
                    self._products(sums, operands(s), weight, pixels)

        if not layout.repeated and layout.units > 1:
            # LLVM mixes the steps of a loop that it unrolls, for which 16 registers do not suffice.
            end = e.opaque_bound(layout.units) if e.few_registers else layout.units
            e.loop(0, end, lambda s: steps([s]))
            return
        for first in range(0, layout.units, together):
            steps(list(range(first, min(first + together, layout.units))))

    def _free_registers(self, pixels: int) -> int:
        """Those that sums of so many pixels, an operand of each vector, and what is shuffled leave."""
        free = self.target.usable_registers - self.micro.temporaries
        return free - (pixels + 1) * self.layout.vectors - 1

    def _uses(self, taps: Taps) -> dict[int, list[tuple[int, int]]]:
        """By column of the input: the (pixel, tap) that read it. Those outside are read where they are not
        0."""
        c = self.conv
        uses: dict[int, list[tuple[int, int]]] = {}
        for i, inside in enumerate(taps):
            for j in range(c.kernel[1]):
                if inside[j] or c.outside:
                    uses.setdefault(i * c.strides[1] + j * c.dilation[1], []).append((i, j))
        return uses

    def _operands(self, at: Any, *, inside: bool) -> Any:
        """The operands of a column of the input by step."""
        if inside:
            return self.layout.operands(self.e, self.x, self.e.let(at))
        number = np.array([self.conv.outside] * self.micro.group).astype(self.micro.types.left)
        unit = int(number.view("<i4")[0])
        vector = self.e.let(self.e.splat(IntImm("int32", unit), self.lanes))
        return lambda step: [vector] * self.layout.vectors

    def _products(
        self, sums: Any, operands: list[Any], weights: list[Any], pixels: list[tuple[int, int]]
    ) -> None:
        """Adds the products of a column's operands and the weights of the taps by which pixels read it."""
        e, lanes, vectors = self.e, self.lanes, self.layout.vectors
        for pixel, tap in pixels:
            for vector, operand in enumerate(operands):
                place = pixel * self.sums + vector * lanes
                weight = weights[tap * vectors + vector]
                old = e.vload(sums, place, lanes)
                e.vstore(sums, place, self.micro.multiply_add(e, operand, weight, old, lanes), lanes)

    # Results ----------------------------------------------------------------------------------------------

    def _store(self, sums: Any, position: tuple[Any, Any, Any, Any], pixels: int) -> None:
        """Applies the epilogue to the sums of neighbouring pixels, and writes them."""
        e, c, row_stride = self.e, self.conv, self.fused.row_stride
        image, y, x, channel = position
        target = e.let(((image * c.out_height + y) * c.out_width + x) * row_stride + channel)
        for i in range(pixels):
            for first, lanes, value in self._values(sums, i):
                at = (image, y, x + i, channel + first)
                stored = self.fused.stored(e, value, at, lanes, self.extra)
                e.vstore(self.y, target + (i * row_stride + first), stored, lanes)

    def _values(self, sums: Any, pixel: int) -> Iterator[tuple[int, int, Any]]:
        """The sums of a pixel in order: first channel, channels, and vector. Two vectors are one where
        what is stored is narrower than sums: they are narrowed together."""
        e, lanes, vectors = self.e, self.lanes, self.layout.vectors
        loaded = [e.let(e.vload(sums, pixel * self.sums + i * lanes, lanes)) for i in range(vectors)]
        loaded = self.layout.in_order(e, loaded)
        narrow = DTYPE_BYTES[self.micro.types.result] < DTYPE_BYTES[self.dtype]
        together = 2 if narrow and vectors % 2 == 0 else 1
        for first in range(0, vectors, together):
            parts, width = loaded[first : first + together], together * lanes
            yield first * lanes, width, parts[0] if together == 1 else e.let(shuffle(parts, range(width)))
