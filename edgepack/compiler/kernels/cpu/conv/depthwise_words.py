"""Depthwise convolution of bytes on CPUs that multiply pairs of 16 bits in general registers.

A step has four channels of a pixel: a word of the image and a word of weights for each tap. SXTAB16 widens
two bytes of a word and subtracts the zero point (adds its negative), so that padding is left out; SMLABB and
SMLATT multiply the lower and the upper numbers of two pairs and add the product to a sum.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tvm import tirx
from tvm.tirx import IntImm

from edgepack.compiler.graph.integer_operands import BYTES
from edgepack.compiler.kernels.contract import Array, Packing
from edgepack.compiler.kernels.cpu.analysis.anchored_group import AnchoredGroup
from edgepack.compiler.kernels.cpu.conv.depthwise_int16 import DepthwiseInt16
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.packed_taps import pack_taps
from edgepack.compiler.kernels.cpu.conv.row_by_row import RowByRow, in_one_task
from edgepack.compiler.kernels.cpu.conv.sliding_window import OPEN
from edgepack.compiler.kernels.cpu.conv.window import Taps
from edgepack.compiler.kernels.cpu.conv.window_schedule import SlidingSchedule
from edgepack.compiler.kernels.cpu.micro.word_pairs import pairs_in_words, widened_pairs
from edgepack.plan.target import CpuTarget

__all__ = ["DepthwiseWords", "in_words"]

#: Channels of a step: bytes of a word.
CHANNELS = 4

#: For each pair of a word, which channels its lower and its upper number are, and the instructions that
#: multiply these.
PRODUCTS = (("llvm.arm.smlabb", 0), ("llvm.arm.smlatt", 2)), (("llvm.arm.smlabb", 1), ("llvm.arm.smlatt", 3))


def in_words(conv: Conv2d, fused: AnchoredGroup, target: CpuTarget) -> bool:
    """Whether a convolution is computed so."""
    of_bytes = fused.types.left in BYTES and fused.types.right == "int8"
    return of_bytes and pairs_in_words(target) and conv.in_channels >= CHANNELS


class DepthwiseWords(RowByRow, DepthwiseInt16):
    """Builds the kernel; the last step overlaps the one before where channels are no multiple of four."""

    def __init__(
        self, conv: Conv2d, fused: AnchoredGroup, target: CpuTarget, given: SlidingSchedule = OPEN
    ) -> None:
        words = replace(given, lanes=CHANNELS, columns=given.columns or 1)
        super().__init__(conv, fused, target, in_one_task(words, target, -(-conv.in_channels // CHANNELS)))
        #: Less the zero point, in both halves of a word; None for 0.
        pair = np.array([-self.zero] * 2, "<i2").view("<i4")[0]
        self.base = IntImm("int32", int(pair)) if self.zero else None

    @property
    def row_weights(self) -> int:
        return self.window.size[1]

    @property
    def weights_type(self) -> str:
        return "int32"

    def packings(self) -> tuple[Packing, ...]:
        def pack(w: Array) -> Array:
            return np.ascontiguousarray(pack_taps(w, CHANNELS).astype("i1")).view("<i4")

        return (Packing(self.fused.operand(1), "depthwise:words", pack),)

    def parameters(self) -> dict[str, Any]:
        return {"operands": "words of bytes"}

    def add_taps(self, accumulators: Any, taps: Taps, base: Any, weights: Any) -> None:
        e, g = self.e, self.window
        for j in range(len(taps[0])):
            inside = [i for i, of_pixel in enumerate(taps) if of_pixel[j]]
            if not inside:
                continue
            weight = widened_pairs(e, e.vload(self.operands.weights, weights + j, 1))
            for i in inside:
                at = (i * g.strides[1] + j * g.dilation[1]) * g.channels
                word = tirx.reinterpret("int32", e.vload(self.operands.x, base + at, CHANNELS))
                signed = self.fused.types.left == "int8"
                for number, pair in enumerate(widened_pairs(e, word, self.base, signed=signed)):
                    for name, channel in PRODUCTS[number]:
                        place = i * CHANNELS + channel
                        factors = pair, weight[number], e.vload(accumulators, place, 1)
                        e.vstore(accumulators, place, tirx.call_llvm_pure_intrin("int32", name, *factors), 1)

    def sums(self, accumulators: Any, pixel: int) -> list[tuple[int, int, Any]]:
        return [(c, 1, self.e.vload(accumulators, pixel * CHANNELS + c, 1)) for c in range(CHANNELS)]
