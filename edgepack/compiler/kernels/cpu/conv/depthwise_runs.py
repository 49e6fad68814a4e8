"""Depthwise convolution of bytes on CPUs that multiply the even and the odd bytes of two vectors to 16 bits:
VMULLB and VMULLT of Helium.

A step has 16 channels of a pixel, or 8 where there are not so many. Products of two taps are added in 16
bits, unless a weight is -128 (:mod:`edgepack.compiler.graph.bytes_as_read` says so). Then the even and the
odd ones are widened and added to vectors of 32 bits. What the epilogue reads of each channel
lies in the order in which that leaves the channels; narrowing brings them into their own.

Bytes are multiplied as they are, zero point included: its part is in the number that a sum begins with. So
what lies outside of the image is the zero point: the window of a pixel at the border is copied to scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import tirx
from tvm.tirx import IntImm

from edgepack.compiler.kernels.contract import Array, Implementation, Overlap, Packing
from edgepack.compiler.kernels.cpu.analysis.anchored_group import AnchoredGroup
from edgepack.compiler.kernels.cpu.analysis.operands import declare_param
from edgepack.compiler.kernels.cpu.builder import KernelBuilder
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.over_input import PixelOrder
from edgepack.compiler.kernels.cpu.conv.packed_taps import pack_taps
from edgepack.compiler.kernels.cpu.conv.window import Window
from edgepack.compiler.kernels.cpu.conv.window_copy import copy_window
from edgepack.compiler.kernels.cpu.conv.window_schedule import SlidingSchedule
from edgepack.compiler.kernels.cpu.emit.indices import index
from edgepack.compiler.kernels.cpu.emit.narrowed import split_param
from edgepack.compiler.kernels.cpu.emit.register_transpose import shuffle
from edgepack.compiler.kernels.cpu.emit.vector_saturation import narrowed
from edgepack.compiler.kernels.cpu.micro.reduced_vectors import RUN, reduces_vectors
from edgepack.compiler.kernels.narrow_integers import INT24, as_narrow
from edgepack.plan.target import CpuTarget

__all__ = ["DepthwiseRuns", "in_runs"]

#: Sums of a vector.
LANES = 4


def in_runs(conv: Conv2d, fused: AnchoredGroup, target: CpuTarget, constants: frozenset[int]) -> bool:
    """Whether a convolution is computed so."""
    bytes_ = fused.types.left == fused.types.right == str(fused.types.result) == "int8"
    if not bytes_ or not reduces_vectors(target) or conv.depth_window or conv.in_channels < RUN // 2:
        return False
    each = [p for p in fused.epilogue.params if p not in fused.epilogue.tables]
    of_channels = all(_channels(fused, p) in {1, conv.in_channels} and p in constants for p in each)
    return of_channels and "together" in fused.anchor.attributes


def _channels(fused: AnchoredGroup, param: int) -> int:
    """Numbers of a parameter that has one for each channel, or one for all; 0 of another one."""
    shape = [int(n) for n in fused.params[param].shape]
    return max(shape, default=1) if all(n == 1 for n in shape[:-1]) else 0


class DepthwiseRuns(KernelBuilder):
    """Builds the kernel, of one task; the last step overlaps the one before where channels are no multiple
    of its own."""

    def __init__(
        self,
        conv: Conv2d,
        fused: AnchoredGroup,
        target: CpuTarget,
        given: SlidingSchedule,
    ) -> None:
        super().__init__("conv2d.depthwise", target, dtype="int32", lanes=LANES)
        self.conv, self.fused = conv, fused
        self.together = int(fused.anchor.attributes["together"])
        self.channels = RUN if conv.in_channels >= RUN else RUN // 2
        self.starts = [
            min(at, conv.in_channels - self.channels) for at in range(0, conv.in_channels, self.channels)
        ]
        self.schedule = replace(given, lanes=self.channels, columns=1, block=1, row_parts=1, unrolled=True)
        self.zero = int(fused.anchor.attributes.get("zero", 0))
        #: Channels of a step in the order of its vectors of sums.
        parts = self.channels // LANES
        turned = [0, 2, 1, 3] if parts == LANES else [0, 1]
        self.order = np.arange(self.channels).reshape(LANES, parts)[:, turned].T.flatten()
        self._packings: list[Packing] = []
        self._declare()

    def _declare(self) -> None:
        e, c, fused = self.e, self.conv, self.fused
        count = len(self.starts) * self.channels
        self.x = e.param(fused.operand(0), c.input_elements, "int8")
        lanes, order = self.channels, self._in_order
        self.weights = e.packed(0, count * c.rows * c.kernel[1], "int8")
        self._packings.append(
            Packing(fused.operand(1), f"depthwise:{lanes}:i1", lambda w: pack_taps(w, lanes).astype("i1"))
        )
        if self.zero:
            zero = self.zero

            def begin(w: Array) -> Array:
                return order(-zero * w.reshape(-1, w.shape[-1]).sum(axis=0, dtype=np.int32))

            self.begin = self._packed(fused.operand(1), count, "int32", f"zero:{zero}", begin)
        epilogue = fused.epilogue
        each = {p for p in epilogue.params if p not in epilogue.tables and _channels(fused, p) > 1}
        narrow = dict(fused.narrow_params)
        self.extra = {
            p: self._of_channels(p, count, narrow.get(p, str(fused.params[p].dtype)))
            if p in each
            else declare_param(e, p, fused.params[p])
            for p in epilogue.params
        }
        self.y = e.output(0, fused.output_elements, "int8")
        self.patch = e.scratch(-(-c.depth * c.in_channels // RUN) * RUN, "int8")

    def _of_channels(self, param: int, count: int, dtype: str) -> Any:
        """A parameter of numbers of each channel, stored as a type."""
        order = self._in_order

        def pack(values: Array) -> Array:
            return as_narrow(order(values.reshape(-1)), dtype)

        if dtype == INT24:
            return split_param(self.e, self._packed(param, 3 * count, "uint8", f"each:{dtype}", pack))
        return self._packed(param, count, dtype, f"each:{dtype}", pack)

    def _packed(self, param: int, count: int, dtype: str, what: str, pack: Callable[[Array], Array]) -> Any:
        """A constant of numbers of each channel, in the order of the sums."""
        self._packings.append(Packing(param, f"depthwise:{self.channels}:{what}", pack))
        return self.e.packed(len(self._packings) - 1, count, dtype)

    def _in_order(self, values: Array) -> Array:
        """Numbers of each channel in the order of the sums, step by step."""
        return np.concatenate([values[start : start + self.channels][self.order] for start in self.starts])

    def parameters(self) -> dict[str, Any]:
        return {"operands": "runs of bytes"}

    def build(self) -> Implementation:
        c, by_rows = self.conv, self.fused.by_rows
        self.e.tasks(self._row if by_rows else lambda task: self._pixels())
        return Implementation(
            self.rule,
            (self.e.stage(c.out_height if by_rows else 1),),
            tuple(self._packings),
            scratch=tuple(self.e.scratch_bytes),
            overlaps=self._overlaps(),
            rows=self.fused.rows(*Window.of(c).down),
            schedule=self.schedule,
            parameters=self.parameters(),
            flops=c.flops,
            multiply_adds=c.multiply_adds,
            weights=c.depth * c.out_channels,
        )

    def _overlaps(self) -> tuple[Overlap, ...]:
        """Pixel by pixel, whose channels are read and stored step by step."""
        if self.conv.batch != 1 or self.fused.by_rows or self.fused.row_stride != self.conv.out_channels:
            return ()
        order = PixelOrder.of(Window.of(self.conv), 1, 1)
        return (Overlap(self.fused.operand(0), order.most(1, again=True)),)

    # Pixels -----------------------------------------------------------------------------------------------

    def _pixels(self) -> None:
        """All pixels of all images."""
        c = self.conv
        self.e.loop(
            0,
            c.batch,
            lambda image: self.e.loop(0, c.out_height, lambda row: self._row(row, image)),
        )

    def _row(self, row: Any, image: Any = 0) -> None:
        """The pixels of a row, those whose windows lie inside of the image apart."""
        e, c = self.e, self.conv
        sizes = zip(
            (c.height, c.width), (c.pad_top, c.pad_left), c.strides, c.kernel, c.dilation, strict=True
        )
        reach = [
            (-(-pad // step), (size + pad - (taps - 1) * far - 1) // step + 1)
            for size, pad, step, taps, far in sizes
        ]
        outputs = c.out_height, c.out_width
        whole = all(first <= 0 and last >= count for (first, last), count in zip(reach, outputs, strict=True))

        def pixel(column: Any) -> None:
            top = e.let(row * c.strides[0] - c.pad_top)
            left = e.let(column * c.strides[1] - c.pad_left)
            at = e.let(((image * c.out_height + row) * c.out_width + column) * self.fused.row_stride)
            place = image, row, column, at
            source = e.let(((image * c.height + top) * c.width + left) * c.in_channels)
            pitch = c.dilation[0] * c.width * c.in_channels, c.dilation[1] * c.in_channels
            span = (c.rows - 1) * pitch[0] + (c.kernel[1] - 1) * pitch[1] + c.in_channels
            if whole and not e.short:
                self._steps(place, e.rebased(self.x, source, span), pitch)
                return
            (above, below), (before, behind) = reach
            inside = e.let(tirx.all(row >= above, row < below, column >= before, column < behind))
            # A patch is written and read by one name: those of two names are two memories for LLVM.
            window = e.either(inside, (self.x, source), (self.patch, 0), max(span, c.depth * c.in_channels))
            copied = c.kernel[1] * c.in_channels, c.in_channels

            def border() -> None:
                copy_window(e, c, (self.x, window, index(0)), (image, top, left), self.zero)

            e.branch(tirx.Not(inside), border)
            pitches = [
                e.let(tirx.Select(inside, index(a), index(b))) if a != b or e.short else a
                for a, b in zip(pitch, copied, strict=True)
            ]
            self._steps(place, window, (pitches[0], pitches[1]))

        e.loop(0, c.out_width, pixel)

    def _each_step(self, body: Callable[[Any, Any], None]) -> None:
        """``body`` of the number of each step and of its first channel."""
        e, count, lanes = self.e, len(self.starts), self.channels

        def step(number: Any) -> None:
            start = number * lanes
            last = self.starts[-1]
            even = last == (count - 1) * lanes and not e.short
            body(number, e.let(start if even else tirx.min(start, index(last))))

        e.each(count, step)

    # A step -----------------------------------------------------------------------------------------------

    def _steps(self, place: tuple[Any, Any, Any, Any], source: Any, pitch: tuple[Any, Any]) -> None:
        """All channels of a pixel.

        Args:
            place: its image, row, column, and where in the output it lies.
            source: what its window is read from.
            pitch: the distances of its rows, and of taps in a row.
        """
        e, c, lanes = self.e, self.conv, self.channels
        taps = [(i, j) for i in range(c.rows) for j in range(c.kernel[1])]
        *position, target = place
        lines = [e.let(i * pitch[0]) for i in range(c.rows)]

        def step(number: Any, start: Any) -> None:
            first = e.let(number * lanes)
            weights = e.let(number * (lanes * len(taps)))
            sums: list[Any] = []
            if self.zero:
                sums = [e.let(e.vload(self.begin, first + at, LANES)) for at in range(0, lanes, LANES)]
            for at in range(0, len(taps), self.together):
                products = [
                    self._products(
                        e.let(e.vload(source, start + lines[taps[tap][0]] + taps[tap][1] * pitch[1], lanes)),
                        e.let(e.vload(self.weights, weights + tap * lanes, lanes)),
                    )
                    for tap in range(at, min(at + self.together, len(taps)))
                ]
                sums = self._added(sums, products)
            stored = [
                self.fused.stored(
                    e, value, (*position, e.let(first + number * LANES)), LANES, self.extra, saturates=True
                )
                for number, value in enumerate(sums)
            ]
            e.vstore(self.y, target + start, self._narrowed(stored), lanes)

        self._each_step(step)

    def _products(self, x: Any, weights: Any) -> list[Any]:
        """Products of int16: the even and the odd ones of 16 bytes, or those of 8."""
        if self.channels < RUN:
            wide = [tirx.Cast("int16x8", value) for value in (x, weights)]
            return [self.e.let(wide[0] * wide[1])]
        no, name = IntImm("int32", 0), "llvm.arm.mve.vmull.v8i16.v16i8"
        return [
            self.e.let(tirx.call_llvm_pure_intrin("int16x8", name, x, weights, no, IntImm("int32", odd)))
            for odd in (0, 1)
        ]

    def _added(self, sums: Sequence[Any], products: Sequence[list[Any]]) -> list[Any]:
        """Sums of int32, to which products of int16 are added that fit 16 bits together."""
        e = self.e
        together = products[0]
        for one in products[1:]:
            together = [e.let(a + b) for a, b in zip(together, one, strict=True)]
        wide = [
            e.let(tirx.Cast("int32x4", shuffle([part], range(odd, 8, 2))))
            for part in together
            for odd in (0, 1)
        ]
        return [e.let(a + b) for a, b in zip(sums, wide, strict=True)] if sums else wide

    def _narrowed(self, stored: list[Any]) -> Any:
        """Bytes in the order of channels of vectors of int32, with saturation."""
        e = self.e
        while len(stored) > 1:
            pairs = zip(stored[::2], stored[1::2], strict=True)
            stored = [narrowed(e, high, 1, narrowed(e, low, 0)) for low, high in pairs]
        if self.channels == RUN:
            return stored[0]
        return tirx.Cast("int8x8", e.let(tirx.reinterpret("int16x8", narrowed(e, stored[0], 0))))
