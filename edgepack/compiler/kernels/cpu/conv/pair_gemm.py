"""Convolutions and products of int16 by CPUs that multiply pairs of them and add the two products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgepack.compiler.kernels.contract import Array, Implementation, Packing
from edgepack.compiler.kernels.cpu.analysis.anchored_group import AnchoredGroup
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d, pack_weights
from edgepack.compiler.kernels.cpu.conv.half_gemm import HalfGemm, computes_in_half
from edgepack.compiler.kernels.cpu.conv.implicit_gemm import ImplicitGemm
from edgepack.compiler.kernels.cpu.emit.pairs import PairEmitter, pair_lanes
from edgepack.plan.target import CpuTarget

__all__ = ["PairGemm", "constant_gemm"]


class PairGemm(ImplicitGemm):
    """A convolution of int16 as one of half as many channels, each of which is a pair.

    Args:
        conv: of the int16 channels, an even number in each group.
    """

    def __init__(
        self,
        rule: str,
        layout: str,
        conv: Conv2d,
        fused: AnchoredGroup,
        target: CpuTarget,
        prefetch_bytes: int = 0,
    ) -> None:
        self.whole = conv
        narrow = replace(target, vector_bits=min(target.vector_bits, 32 * pair_lanes(target)))
        emitter = PairEmitter(narrow.lanes("int32"), narrow)
        halved = replace(conv, in_channels=conv.in_channels // 2)
        super().__init__(rule, layout, halved, fused, narrow, prefetch_bytes, emitter)

    @property
    def stored(self) -> str:
        """Pairs, whose type is that of the sums."""
        return self.dtype

    def packings(self) -> tuple[Packing, ...]:
        """The weights of two neighbouring input channels next to each other."""
        c, columns, zeros = self.conv, self.tile.columns, self.zeros
        shape = (c.rows, c.kernel[1], c.group_in, 2, c.out_channels)

        def pack(w: Array) -> Array:
            pairs = np.ascontiguousarray(np.moveaxis(w.reshape(shape), 3, 4).astype("<i2")).view("<i4")
            return pack_weights(pairs[..., 0], c.groups, columns, zeros)

        return (Packing(self.fused.operand(1), f"{self.layout}:pairs:{columns}:{zeros}", pack),)

    def parameters(self) -> dict[str, object]:
        return {**super().parameters(), "operands": "pairs of int16"}

    def build(self) -> Implementation:
        made = super().build()
        whole = (self.rule, self.layout, self.whole, self.fused, self.target)
        return replace(
            made,
            flops=self.whole.flops,
            multiply_adds=self.whole.multiply_adds,
            with_prefetch=lambda nbytes: PairGemm(*whole, nbytes).build(),
        )


def constant_gemm(
    rule: str, layout: str, conv: Conv2d, fused: AnchoredGroup, target: CpuTarget
) -> ImplicitGemm:
    """The kernel by constant weights: of pairs where operands are int16 and the CPU has an instruction for
    them, of float16 where that was asked for and pays."""
    if fused.narrow and conv.group_in % 2 == 0 and pair_lanes(target):
        return PairGemm(rule, layout, conv, fused, target)
    if fused.half_products and computes_in_half(conv, target):
        return HalfGemm(rule, layout, conv, fused, target)
    return ImplicitGemm(rule, layout, conv, fused, target)
