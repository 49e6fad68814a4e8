"""Pointwise convolution to one output channel, as segmentation, matting and depth networks end with it.

An implicit matrix product has its columns in the lanes, of which there is one here. Instead the input is
multiplied as it lies in memory, by weights that repeat themselves in the lanes: some pixels at once, or a
part of one. What the lanes of a pixel hold is added up for as many pixels as a vector has lanes together, by
halves: lanes with even numbers of two vectors plus those with odd numbers are the sums of neighbours, in
order. So the epilogue has vectors of neighbouring pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, Packing, RuleError
from edgepack.compiler.kernels.cpu.analysis.anchored_group import CONVOLUTIONS, AnchoredGroup, anchored
from edgepack.compiler.kernels.cpu.analysis.operands import elements_of
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.emit.indices import div, index, unravel
from edgepack.compiler.kernels.cpu.emit.register_transpose import shuffle
from edgepack.compiler.kernels.cpu.micro.int32_units import Int32Units
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel
from edgepack.compiler.kernels.cpu.micro.registry import micro_kernel_for
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.compiler.kernels.rule import PRODUCTS, Rule
from edgepack.plan.target import CpuTarget

__all__ = ["one_channel_conv2d"]

#: Vectors that a pixel has at most: all are written out, for as many pixels as a vector has lanes.
MOST_VECTORS = 8

#: Vectors of pixels of a task, about.
TASK_VECTORS = 64


@dataclass(frozen=True)
class OneChannel:
    """Builds the kernel.

    Attributes:
        conv: of the micro-kernel's units.
        micro: computes products, by vectors that hold whole pixels, or of which a pixel has some.
    """

    elements: Conv2d
    conv: Conv2d
    fused: AnchoredGroup
    micro: MicroKernel

    def build(self) -> Implementation:
        e, c, lanes = self.micro.emitter(), self.conv, self.micro.lanes
        depth = max(c.in_channels, lanes)
        x = self.fused.declare_operand(e, 0, c.input_elements, self.micro.left_unit)
        w = e.packed(0, depth, self.micro.right_unit)
        extra = self.fused.declare_epilogue(e)
        y = e.output(0, self.fused.output_elements, self.micro.types.result)
        vectors = -(-c.pixels // lanes)
        tasks = max(1, vectors // TASK_VECTORS)

        def task(number: Any) -> None:
            weights = [e.let(e.vload(w, at, lanes)) for at in range(0, depth, lanes)]
            views = self._numbers(e, extra)
            begin, end = (e.let(div((number + i) * vectors, tasks)) for i in (0, 1))

            def vector(i: Any) -> None:
                # The last one ends with the last pixel, and overlaps the one before, of the same task.
                first = i * lanes
                first = e.let(tirx.min(first, index(c.pixels - lanes)) if c.pixels % lanes else first)
                value = self._sums(e, x, weights, e.let(first * c.in_channels))
                here = {p: (extra[p], first) for p in self.fused.epilogue.dense if p not in views} | views
                place = unravel(first, self.fused.output_shape)
                stored = self.fused.stored(e, e.let(value), place, lanes, extra, here)
                e.vstore(y, first, stored, lanes)

            e.loop(begin, end, vector)

        e.tasks(task)
        return Implementation(
            "conv2d.one_channel",
            (e.stage(tasks),),
            (self._packing(depth),),
            parameters={**self.micro.parameters(), "lanes": lanes},
            flops=self.elements.flops,
        )

    def _packing(self, depth: int) -> Packing:
        micro, c = self.micro, self.elements

        def pack(weights: Any) -> Any:
            units = micro.pack_units(weights.reshape(1, 1, c.in_channels, 1)).reshape(-1)
            return np.ascontiguousarray(np.resize(units, depth))

        return Packing(self.fused.operand(1), f"one channel:{micro.layout}:{depth}", pack)

    def _numbers(self, e: Any, extra: dict[int, Any]) -> dict[int, tuple[Any, Any]]:
        """Parameters of the epilogue that are one number, in every lane of an array."""
        found, lanes = {}, self.micro.lanes
        for param, buffer in extra.items():
            if elements_of(self.fused.params[param]) == 1:
                repeated = e.local(lanes, str(buffer.dtype))
                e.vstore(repeated, 0, e.splat(e.load(buffer, 0), lanes), lanes)
                found[param] = (repeated, 0)
        return found

    def _sums(self, e: Any, x: Any, weights: list[Any], at: Any) -> Any:
        """The sums of as many pixels as there are lanes, whose units begin at ``at``."""
        lanes, depth = self.micro.lanes, self.conv.in_channels
        together = min(depth, lanes)

        def product(number: int) -> Any:
            total = e.splat(tirx.const(0, self.micro.types.sums), lanes)
            for part, weight in enumerate(weights):
                units = e.let(e.vload(x, at + (number * len(weights) + part) * lanes, lanes))
                total = e.let(self.micro.multiply_add(e, units, weight, total, lanes))
            return total

        def added(first: int, count: int) -> Any:
            if count == 1:
                return product(first)
            half = count // 2
            pair = [added(first, half), added(first + half, half)]
            even, odd = (e.let(shuffle(pair, range(start, 2 * lanes, 2))) for start in (0, 1))
            return e.let(even + odd)

        return added(0, together)


def _micro_kernel(found: AnchoredGroup, conv: Conv2d, target: CpuTarget) -> MicroKernel:
    micro = micro_kernel_for(found.products, conv.group_sizes, target, constant=True)
    if not isinstance(micro, Int32Units) and micro.types != ProductTypes.of("float32"):
        raise RuleError("no vectors of units that lie in memory as they are multiplied")
    depth, lanes = conv.in_channels // micro.group, micro.lanes
    if lanes < 4 or (lanes % depth and depth % lanes) or depth > MOST_VECTORS * lanes:
        raise RuleError(f"{conv.in_channels} channels in vectors of {lanes}")
    if conv.pixels < lanes:
        raise RuleError("fewer pixels than lanes")
    return micro


def one_channel_conv2d(fused: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Rule ``conv2d.one_channel``."""
    found = anchored(fused, CONVOLUTIONS)
    conv = Conv2d.of(found)
    if conv.out_channels != 1 or not conv.pointwise or found.operand(1) not in constants:
        raise RuleError("no pointwise convolution to one channel by constant weights")
    if found.row_stride != 1:
        raise RuleError("pixels of the output are no neighbours")
    micro = _micro_kernel(found, conv, target)
    numbers = {p for p in found.epilogue.params if elements_of(found.params[p]) == 1}
    if not set(found.epilogue.params) <= numbers | set(found.epilogue.dense):
        raise RuleError("a parameter of the epilogue that is neither a number nor as large as the output")
    return OneChannel(conv, conv.in_units(micro.group), found, micro).build()


RULE = Rule("conv2d.one_channel", order=350, dtypes=PRODUCTS, apply=one_channel_conv2d, heeds_row_stride=True)
