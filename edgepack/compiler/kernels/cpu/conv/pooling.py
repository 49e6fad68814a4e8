"""Max and average pooling: sliding windows without weights."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.analysis.anchored_group import anchored
from edgepack.compiler.kernels.cpu.conv.sliding_window import SlidingWindow, Taps, Window
from edgepack.compiler.kernels.cpu.emit.emitter import index
from edgepack.compiler.kernels.rule import FLOAT32, Rule
from edgepack.plan.target import CpuTarget

__all__ = ["pool2d"]


class MaxPool(SlidingWindow):
    """Largest of the taps inside the image."""

    def initial(self) -> float:
        return -3.4028234663852886e38

    def combine(self, old: Any, value: Any, weight: Any) -> Any:
        return tirx.max(old, value)


class AveragePool(SlidingWindow):
    """Average over the taps inside the image."""

    def combine(self, old: Any, value: Any, weight: Any) -> Any:
        return old + value

    def finisher(self, begin: Any, end: Any, taps: Taps) -> Any:
        e = self.e
        # Multiplying by the reciprocal costs half a unit in the last place and saves a division per vector.
        scales = {
            count: e.let(e.f32(1.0, 1) / tirx.Cast("float32", index((end - begin) * count)))
            for count in {sum(pixel) for pixel in taps}
        }
        return lambda value, pixel: e.let(value * e.splat(scales[sum(taps[pixel])], self.lanes))


class PaddedAveragePool(AveragePool):
    """Average over all taps; those in the padding are zeros."""

    def finisher(self, begin: Any, end: Any, taps: Taps) -> Any:
        scale = 1.0 / (self.window.size[0] * self.window.size[1])
        return lambda value, pixel: self.e.let(value * self.e.f32(scale, self.lanes))


def pool2d(fused: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Rule ``pool2d``."""
    found = anchored(fused, ["max_pool2d", "avg_pool2d"])
    a = found.anchor.attributes
    if a["layout"] != "NHWC":
        raise RuleError(f"layout {a['layout']}")
    n, h, w, c = found.operand_shape(0)
    _, oh, ow, _ = found.output_shape
    size, strides, dilation = ((int(v[0]), int(v[1])) for v in (a["pool_size"], a["strides"], a["dilation"]))
    top, left, bottom, right = (int(p) for p in a["padding"])
    window = Window(n, h, w, c, oh, ow, size, strides, dilation, (top, left, bottom, right))
    if found.anchor.kind == "max_pool2d":
        return MaxPool("pool2d.max", window, found, target, dtype=found.dtype).build()
    if not a["count_include_pad"]:
        return AveragePool("pool2d.average", window, found, target, dtype=found.dtype).build()
    if a["ceil_mode"]:
        raise RuleError("windows beyond the padding count neither way")
    return PaddedAveragePool("pool2d.average", window, found, target, dtype=found.dtype).build()


RULE = Rule("pool2d", order=500, dtypes=FLOAT32, apply=pool2d, heeds_pitch=True)
