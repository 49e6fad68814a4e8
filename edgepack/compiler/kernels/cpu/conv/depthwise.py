"""Depthwise convolution: a sliding window that multiplies with weights."""

from __future__ import annotations

from typing import Any

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, Packing, RuleError
from edgepack.compiler.kernels.cpu.analysis.anchored_group import CONVOLUTIONS, AnchoredGroup, anchored
from edgepack.compiler.kernels.cpu.conv.computed_weights import by_computed_weights, packed_by_steps
from edgepack.compiler.kernels.cpu.conv.depthwise_int16 import depthwise_int16
from edgepack.compiler.kernels.cpu.conv.depthwise_runs import DepthwiseRuns, in_runs
from edgepack.compiler.kernels.cpu.conv.depthwise_words import DepthwiseWords, in_words
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.packed_taps import pack_taps
from edgepack.compiler.kernels.cpu.conv.sliding_window import OPEN, SlidingWindow
from edgepack.compiler.kernels.cpu.conv.window import Window
from edgepack.compiler.kernels.cpu.conv.window_schedule import SlidingSchedule
from edgepack.compiler.kernels.cpu.conv.window_walk import MULTIPLIED
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.rule import OTHER_DTYPE, PRODUCTS, Rule
from edgepack.plan.target import CpuTarget

__all__ = ["Depthwise", "depthwise_conv2d"]

#: Element types of images whose products are summed in int32.
INTEGERS = frozenset({"int16", "int8", "uint8"})


class Depthwise(SlidingWindow):
    """Depthwise convolution."""

    weighted = True

    def __init__(
        self,
        conv: Conv2d,
        fused: AnchoredGroup,
        target: CpuTarget,
        given: SlidingSchedule = OPEN,
        *,
        emitter: Emitter | None = None,
    ) -> None:
        super().__init__("conv2d.depthwise", Window.of(conv), fused, target, given, emitter=emitter)

    def packings(self) -> tuple[Packing, ...]:
        lanes = self.lanes
        return (Packing(self.fused.operand(1), f"depthwise:{lanes}", lambda w: pack_taps(w, lanes)),)

    def combine(self, old: Any, value: Any, weight: Any) -> Any:
        return self.e.multiply_add(value, weight, old)


def depthwise_conv2d(
    fused: FusedGroup, target: CpuTarget, constants: frozenset[int], given: SlidingSchedule = OPEN
) -> Implementation:
    """Rule ``conv2d.depthwise``: one input channel per group and one output channel each."""
    found = anchored(fused, CONVOLUTIONS)
    conv = Conv2d.of(found)
    if not conv.depthwise:
        raise RuleError("not depthwise")
    types = found.types
    if types.left in INTEGERS and types.right in {"int16", "int8"} and types.sums == "int32":
        if found.operand(1) not in constants:
            raise RuleError("computed weights of integers")
        if in_runs(conv, found, target, constants):
            return DepthwiseRuns(conv, found, target, given).build()
        words = in_words(conv, found, target)
        return (DepthwiseWords if words else depthwise_int16)(conv, found, target, given).build()
    if types.result not in MULTIPLIED:
        raise RuleError(f"{OTHER_DTYPE}{types}")
    kernel = Depthwise(conv, found, target, given)
    if found.operand(1) in constants:
        return kernel.build()
    emitter = Emitter(kernel.lanes, target, kernel.dtype)
    pack = packed_by_steps(emitter, found.operand(1), kernel.window.taps, conv.in_channels)
    nbytes = kernel.window.taps * kernel.steps * kernel.lanes * kernel.element_bytes
    return by_computed_weights(kernel.build(), pack, nbytes)


RULE = Rule(
    "conv2d.depthwise",
    order=100,
    dtypes=PRODUCTS,
    apply=depthwise_conv2d,
    heeds_row_stride=True,
    heeds_rows=True,
    schedule=SlidingSchedule,
)
