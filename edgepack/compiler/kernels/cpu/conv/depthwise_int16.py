"""Depthwise convolution of int16, and of bytes less a zero point, whose sums are int32."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx import IntImm

from edgepack.compiler.graph.integer_operands import BYTES
from edgepack.compiler.kernels.contract import Packing
from edgepack.compiler.kernels.cpu.analysis.anchored_group import AnchoredGroup
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.packed_taps import INTERLEAVED, pack_pairs, pack_taps, pairs_of_taps
from edgepack.compiler.kernels.cpu.conv.row_by_row import RowByRow, in_one_task
from edgepack.compiler.kernels.cpu.conv.sliding_window import OPEN, SlidingWindow
from edgepack.compiler.kernels.cpu.conv.window import Taps, Window
from edgepack.compiler.kernels.cpu.conv.window_schedule import SlidingSchedule
from edgepack.compiler.kernels.cpu.emit.register_transpose import shuffle
from edgepack.compiler.kernels.cpu.micro.dot2_int16 import Dot2Int16, dot2_lanes
from edgepack.compiler.kernels.cpu.micro.single_bytes import single_bytes
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget

PAIRS = ProductTypes("int16", "int16", "int32", "int32")

__all__ = ["DepthwiseHalves", "DepthwiseInt16", "DepthwisePairs", "depthwise_int16"]


class DepthwiseInt16(SlidingWindow):
    """Widens both factors when it loads them: one instruction with the product on some CPUs (smlal,
    vwmacc)."""

    weighted = True

    def __init__(
        self, conv: Conv2d, fused: AnchoredGroup, target: CpuTarget, given: SlidingSchedule = OPEN
    ) -> None:
        super().__init__("conv2d.depthwise", Window.of(conv), fused, target, given)
        #: What is subtracted of the input's elements; windows read 0 outside of the image.
        self.zero = int(fused.anchor.attributes.get("zero", 0))

    def less_zero(self, value: Any) -> Any:
        """Elements of the input less the zero point, as int16."""
        wide = self.wide(value, "int16", self.lanes)
        return wide - self.e.splat(IntImm("int16", self.zero), self.lanes) if self.zero else wide

    @staticmethod
    def wide(value: Any, dtype: str, lanes: int) -> Any:
        """So many elements as another type."""
        return tirx.Cast(dtype if lanes == 1 else f"{dtype}x{lanes}", value)

    def packings(self) -> tuple[Packing, ...]:
        lanes = self.lanes
        return (Packing(self.fused.operand(1), f"depthwise:{lanes}", lambda w: pack_taps(w, lanes)),)

    def combine(self, old: Any, value: Any, weight: Any) -> Any:
        a, b = (self.wide(x, self.dtype, self.lanes) for x in (self.e.let(self.less_zero(value)), weight))
        return old + a * b


class DepthwiseBytes(RowByRow, DepthwiseInt16):
    """One channel at a time, in registers of 32 bits; loads widen. A row's weights serve all pixels of a
    step."""

    def __init__(
        self, conv: Conv2d, fused: AnchoredGroup, target: CpuTarget, given: SlidingSchedule = OPEN
    ) -> None:
        super().__init__(conv, fused, target, in_one_task(given, target, conv.in_channels))

    def add_taps(self, accumulators: Any, taps: Taps, base: Any, weights: Any) -> None:
        SlidingWindow.add_row(self, accumulators, taps, base, weights)

    def parameters(self) -> dict[str, Any]:
        return {"operands": "bytes"} if self.fused.types.left in BYTES else {}

    def less_zero(self, value: Any) -> Any:
        wide = self.wide(value, "int32", 1)
        return wide - IntImm("int32", self.zero) if self.zero else wide


class DepthwiseHalves(DepthwiseInt16):
    """The same for vectors of int16, whose lower and upper half are multiplied by an instruction each."""

    vectors = 2

    def lane_type(self, fused: AnchoredGroup) -> str:
        return "int16"

    def add_row(self, accumulators: Any, taps: Taps, base: Any, weights: Any) -> None:
        e, g, half = self.e, self.window, self.lanes // 2
        pixels: dict[int, list[Any]] = {}
        places = sorted(
            (i * g.strides[1] + j * g.dilation[1], i, j)
            for j in range(g.size[1])
            for i in range(len(taps))
            if taps[i][j]
        )
        for column, i, j in places:
            if column not in pixels:
                read = e.vload(self.operands.x, base + column * g.channels, self.lanes)
                pixels[column] = self._halves(e.let(self.less_zero(read)))
            factors = self._halves(
                e.let(e.vload(self.operands.weights, weights + j * self.lanes, self.lanes))
            )
            for part, (a, b) in enumerate(zip(pixels[column], factors, strict=True)):
                at = (i * 2 + part) * half
                product = self.wide(a, self.dtype, half) * self.wide(b, self.dtype, half)
                e.vstore(accumulators, at, e.vload(accumulators, at, half) + product, half)

    def _halves(self, vector: Any) -> list[Any]:
        half = self.lanes // 2
        return [self.e.let(shuffle([vector], range(at, at + half))) for at in (0, half)]

    def sums(self, accumulators: Any, pixel: int) -> list[tuple[int, int, Any]]:
        e, half = self.e, self.lanes // 2
        return [(at, half, e.vload(accumulators, pixel * self.lanes + at, half)) for at in (0, half)]


class DepthwisePairs(DepthwiseInt16):
    """Multiplies pairs of int16 and adds the two products to a sum, by one instruction.

    A channel's products have no neighbours that they could be added to, so pairs are made of two taps of a
    row of the window: the channels of two pixels, interleaved. At stride 1 neighbouring windows share them.
    The sums of a step's channels are two vectors, whose order a shuffle undoes when they are stored.
    """

    vectors = 2

    def lane_type(self, fused: AnchoredGroup) -> str:
        return "int16"

    @property
    def row_weights(self) -> int:
        return len(pairs_of_taps(self.window.size[1])) * self.lanes

    @property
    def weights_type(self) -> str:
        return "int32"

    def packings(self) -> tuple[Packing, ...]:
        lanes = self.lanes
        return (Packing(self.fused.operand(1), f"pairs:{lanes}", lambda w: pack_pairs(w, lanes)),)

    def parameters(self) -> dict[str, Any]:
        return {"operands": "pairs of int16"}

    def add_row(self, accumulators: Any, taps: Taps, base: Any, weights: Any) -> None:
        e, g, half = self.e, self.window, self.lanes // 2
        micro = Dot2Int16(PAIRS, self.target)
        strides, dilation = g.strides[1], g.dilation[1]
        inside = {
            i * strides + j * dilation
            for i, of_pixel in enumerate(taps)
            for j, is_in in enumerate(of_pixel)
            if is_in
        }
        pairs = pairs_of_taps(g.size[1])
        uses = sorted(
            (i * strides + first * dilation, i, number)
            for i in range(len(taps))
            for number, (first, used) in enumerate(pairs)
            if any(j >= 0 and taps[i][j] for j in used)
        )
        pixels: dict[int, Any] = {}
        interleaved: dict[int, list[Any]] = {}

        def pixel(column: int) -> Any:
            if column not in pixels:
                outside = e.splat(IntImm("int16", 0), self.lanes)
                read = e.vload(self.operands.x, base + column * g.channels, self.lanes)
                pixels[column] = e.let(self.less_zero(read) if column in inside else outside)
            return pixels[column]

        for column, i, number in uses:
            if column not in interleaved:
                both = [pixel(column), pixel(column + dilation)]
                interleaved[column] = [e.let(shuffle(both, order)) for order in _halves(self.lanes)]
            for part in range(2):
                at = (i * 2 + part) * half
                weight = e.vload(self.operands.weights, weights + (number * 2 + part) * half, half)
                units = e.let(tirx.reinterpret(f"int32x{half}", interleaved[column][part]))
                old = e.vload(accumulators, at, half)
                e.vstore(accumulators, at, micro.multiply_add(e, units, e.let(weight), old, half), half)

    def sums(self, accumulators: Any, pixel: int) -> list[tuple[int, int, Any]]:
        """Both halves together where what is stored is narrower: they are narrowed and looked up at once."""
        e, lanes = self.e, self.lanes
        half, size = lanes // 2, INTERLEAVED // 2
        parts = [e.let(e.vload(accumulators, (pixel * 2 + part) * half, half)) for part in range(2)]
        groups = half // size
        order = [part * half + g * size + i for g in range(groups) for part in range(2) for i in range(size)]
        if DTYPE_BYTES[self.fused.types.result] < DTYPE_BYTES[self.fused.types.sums]:
            return [(0, lanes, e.let(shuffle(parts, order)))]
        if lanes == INTERLEAVED:
            return [(0, half, parts[0]), (half, half, parts[1])]
        return [(at, half, e.let(shuffle(parts, order[at : at + half]))) for at in (0, half)]


def _halves(lanes: int) -> list[list[int]]:
    """The lanes of two vectors laid end to end that interleave the lower and the upper half of each group."""
    size = INTERLEAVED // 2
    groups = range(0, lanes, INTERLEAVED)
    return [
        [k for g in groups for i in range(g + part * size, g + (part + 1) * size) for k in (i, lanes + i)]
        for part in range(2)
    ]


def depthwise_int16(
    conv: Conv2d, fused: AnchoredGroup, target: CpuTarget, given: SlidingSchedule = OPEN
) -> SlidingWindow:
    """The kernel's builder: by pairs where the CPU has vectors of them and the channels fill one."""
    pairs = dot2_lanes(target) * 2
    if min(pairs, conv.in_channels) >= INTERLEAVED and conv.kernel[1] > 1:
        return DepthwisePairs(conv, fused, target, given)
    if single_bytes(target):
        return DepthwiseBytes(conv, fused, target, given)
    if not pairs and min(target.lanes("int16"), conv.in_channels) >= INTERLEAVED:
        return DepthwiseHalves(conv, fused, target, given)
    return DepthwiseInt16(conv, fused, target, given)
