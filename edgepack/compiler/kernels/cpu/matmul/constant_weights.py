"""Matrix products by constant weights.

With weights [K, N] the product is a 1x1 convolution over the rows of the left operand and uses its kernel.
"""

from __future__ import annotations

from math import prod
from typing import Any

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, Packing, RuleError
from edgepack.compiler.kernels.cpu.analysis.fused_group import anchored
from edgepack.compiler.kernels.cpu.conv.dense import product
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d, pack_weights
from edgepack.compiler.kernels.cpu.conv.implicit_gemm import ImplicitGemm
from edgepack.compiler.kernels.cpu.emit.register_tile import tile_for
from edgepack.compiler.kernels.rule import FLOAT32, Rule
from edgepack.plan.target import CpuTarget

__all__ = ["dense"]


def dense(group: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Rule ``matmul.packed``: the right operand is a constant matrix."""
    found = anchored(group, ["matmul"])
    left, right = found.operand_shape(0), found.operand_shape(1)
    if found.operand(1) not in constants or len(right) != 2:
        raise RuleError("the right operand is not a constant matrix")
    if len(left) < 2 or len(found.output_shape) != len(left):
        raise RuleError("a vector product")
    rows, depth, columns = prod(left[:-1]), left[-1], right[1]
    conv = Conv2d(1, 1, rows, depth, 1, rows, columns, (1, 1), (1, 1), (1, 1), 0, 0, 0, 0, 1)
    tile = tile_for(target, rows, columns)
    zeros = ImplicitGemm(conv, tile, found, target).zeros

    def pack(weights: Any) -> Any:
        return pack_weights(weights.reshape(1, 1, depth, columns), 1, tile.columns, zeros)

    packing = Packing(found.operand(1), f"matmul:{tile.columns}:{zeros}", pack)
    return product("matmul.packed", conv, tile, found, target, packing)


RULE = Rule("matmul.packed", order=700, dtypes=FLOAT32, apply=dense)
