"""Dense and grouped convolution, and whatever product is one, by :class:`ImplicitGemm`."""

from __future__ import annotations

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, Packing, RuleError
from edgepack.compiler.kernels.cpu.analysis.fused_group import AnchoredGroup, anchored
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d, pack_weights
from edgepack.compiler.kernels.cpu.conv.implicit_gemm import ImplicitGemm
from edgepack.compiler.kernels.cpu.emit.register_tile import Tile, narrow_vectors, tile_for
from edgepack.compiler.kernels.rule import FLOAT32, Rule
from edgepack.plan.target import CpuTarget

__all__ = ["conv2d", "product"]


def conv2d(group: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Rule ``conv2d.igemm``."""
    found = anchored(group, ["conv2d"])
    conv = Conv2d.of(found)
    if found.operand(1) not in constants:
        raise RuleError("the weights are not constant")
    target = narrow_vectors(target, conv.group_out)
    tile = tile_for(target, conv.pixels, conv.group_out)
    zeros = ImplicitGemm(conv, tile, found, target).zeros
    packing = Packing(
        found.operand(1),
        f"conv2d:{conv.groups}:{tile.columns}:{zeros}",
        lambda w: pack_weights(w, conv.groups, tile.columns, zeros),
    )
    return product("conv2d.igemm", conv, tile, found, target, packing)


def product(
    rule: str, conv: Conv2d, tile: Tile, group: AnchoredGroup, target: CpuTarget, packing: Packing
) -> Implementation:
    """The implementation of a convolution by :class:`ImplicitGemm`.

    Args:
        rule: its name, for reports.
        packing: of the weights, see :attr:`ImplicitGemm.zeros`.
    """

    def made(ahead: int) -> Implementation:
        builder = ImplicitGemm(conv, tile, group, target, ahead=ahead)
        return Implementation(
            rule,
            (builder.build(),),
            (packing,),
            scratch=builder.blocking.scratch,
            parameters=builder.parameters(),
            flops=conv.flops,
            multiply_adds=conv.flops // 2,
            weights=conv.depth * conv.out_channels * 4,
            with_prefetch=made,
        )

    return made(0)


RULE = Rule("conv2d.igemm", order=400, dtypes=FLOAT32, apply=conv2d, heeds_pitch=True)
