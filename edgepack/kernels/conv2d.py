"""Dense and grouped convolution, and whatever product is one, by :class:`ImplicitGemm`."""

from __future__ import annotations

from edgepack.graph.lower import Group
from edgepack.kernels.contract import Implementation, Packing, RuleError
from edgepack.kernels.convolution import Conv2d, pack_weights
from edgepack.kernels.gemm import Tile, fitting, tile_for
from edgepack.kernels.group import AnchoredGroup, anchored
from edgepack.kernels.implicit_gemm import ImplicitGemm
from edgepack.target import CpuTarget

__all__ = ["conv2d", "product"]


def conv2d(group: Group, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Rule ``conv2d.igemm``."""
    found = anchored(group, ["conv2d"])
    conv = Conv2d.of(found)
    if found.operand(1) not in constants:
        raise RuleError("the weights are not constant")
    target = fitting(target, conv.group_out)
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
            scratch=builder.cut.scratch,
            parameters=builder.parameters(),
            flops=conv.flops,
            products=conv.flops // 2,
            weights=conv.depth * conv.out_channels * 4,
            fetching=made,
        )

    return made(0)
