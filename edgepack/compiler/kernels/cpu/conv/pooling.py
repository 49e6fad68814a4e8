"""Max and average pooling: sliding windows without weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.analysis.anchored_group import POOLINGS, anchored
from edgepack.compiler.kernels.cpu.analysis.as_2d import WIDEST_UNROLLED
from edgepack.compiler.kernels.cpu.conv.sliding_window import OPEN, SlidingWindow
from edgepack.compiler.kernels.cpu.conv.window import Taps, Window
from edgepack.compiler.kernels.cpu.conv.window_schedule import SlidingSchedule
from edgepack.compiler.kernels.cpu.emit.indices import index
from edgepack.compiler.kernels.rule import Rule
from edgepack.plan.target import CpuTarget

__all__ = ["pool2d"]

#: Element types that are pooled, each with the least number of it: none is less than that.
LEAST = {
    **dict.fromkeys(("float32", "float64"), float("-inf")),
    **{dtype: int(np.iinfo(dtype).min) for dtype in ("int8", "uint8", "int16")},
}

#: Layouts of the input.
CHANNELS_LAST = ("NWC", "NHWC", "NDHWC")


class MaxPool(SlidingWindow):
    """Largest of the taps inside the image."""

    widest = WIDEST_UNROLLED

    def initial(self) -> float:
        return LEAST[self.dtype]

    def combine(self, old: Any, value: Any, weight: Any) -> Any:
        return tirx.Max(value, old)  # of a NaN the second operand: it is left out


class AveragePool(SlidingWindow):
    """Average over the taps inside the image."""

    widest = WIDEST_UNROLLED

    def combine(self, old: Any, value: Any, weight: Any) -> Any:
        return old + value

    def finisher(self, begin: Any, end: Any, taps: Taps) -> Any:
        e = self.e
        # Multiplying by the reciprocal costs half a unit in the last place and saves a division per vector.
        scales = {
            count: e.let(self.constant(1.0, 1) / tirx.Cast(self.dtype, index((end - begin) * count)))
            for count in {sum(pixel) for pixel in taps}
        }
        return lambda value, pixel: e.let(value * e.splat(scales[sum(taps[pixel])], self.lanes))


class PaddedAveragePool(AveragePool):
    """Average over all taps; those in the padding are zeros."""

    def finisher(self, begin: Any, end: Any, taps: Taps) -> Any:
        scale = 1.0 / (self.window.size[0] * self.window.size[1])
        return lambda value, pixel: self.e.let(value * self.constant(scale, self.lanes))


def pool2d(
    fused: FusedGroup, target: CpuTarget, constants: frozenset[int], given: SlidingSchedule = OPEN
) -> Implementation:
    """Rule ``pool2d``."""
    found = anchored(fused, POOLINGS)
    a = found.anchor.attributes
    if a["layout"] not in CHANNELS_LAST or found.as_2d is None:
        raise RuleError(f"layout {a['layout']}")
    if found.as_2d.depth_window:
        raise RuleError("windows with a depth, and more than that")
    n, h, w, c = found.image_shape
    _, oh, ow, _ = found.output_shape
    pads, pair = a["padding"], found.as_2d.pair
    size, strides, dilation = (pair(a[name], 1) for name in ("pool_size", "strides", "dilation"))
    edges = (*pair(pads[: len(pads) // 2], 0), *pair(pads[len(pads) // 2 :], 0))
    window = Window(n, h, w, c, oh, ow, c, size, strides, dilation, edges)
    if found.anchor.kind.startswith("max_pool"):
        return MaxPool("pool2d.max", window, found, target, given).build()
    if "int" in found.dtype:
        raise RuleError("averages of integers are rounded")
    if not a["count_include_pad"]:
        return AveragePool("pool2d.average", window, found, target, given).build()
    if a["ceil_mode"]:
        raise RuleError("windows beyond the padding count neither way")
    return PaddedAveragePool("pool2d.average", window, found, target, given).build()


RULE = Rule(
    "pool2d",
    order=500,
    dtypes=frozenset(LEAST),
    apply=pool2d,
    heeds_row_stride=True,
    heeds_rows=True,
    schedule=SlidingSchedule,
)
