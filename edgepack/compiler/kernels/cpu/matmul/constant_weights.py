"""Matrix products by constant weights.

With weights [K, N] the product is a 1x1 convolution over the rows of the left operand and uses its kernel.
"""

from __future__ import annotations

from math import prod

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.analysis.anchored_group import anchored
from edgepack.compiler.kernels.cpu.conv.gemm_schedule import GemmSchedule
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.implicit_gemm import OPEN
from edgepack.compiler.kernels.cpu.conv.tile_gemm import implicit_product
from edgepack.compiler.kernels.cpu.micro.registry import micro_kernel_for
from edgepack.compiler.kernels.rule import PRODUCTS, Rule
from edgepack.plan.target import CpuTarget

__all__ = ["dense"]


def dense(
    fused: FusedGroup, target: CpuTarget, constants: frozenset[int], given: GemmSchedule = OPEN
) -> Implementation:
    """Applies the rule to a product whose right operand is a constant matrix."""
    found = anchored(fused, ["matmul"])
    left, right = found.operand_shape(0), found.operand_shape(1)
    if found.operand(1) not in constants or len(right) != 2:
        raise RuleError("the right operand is not a constant matrix")
    if len(left) < 2 or len(found.output_shape) != len(left):
        raise RuleError("a vector product")
    rows, depth, columns = prod(left[:-1]), left[-1], right[1]
    conv = Conv2d.product(rows, depth, columns, found.types)
    micro = micro_kernel_for(found.products, conv.group_sizes, target, constant=True)
    return implicit_product("matmul.packed", "matmul", conv, found, micro, given).build()


RULE = Rule("matmul.packed", order=700, dtypes=PRODUCTS, apply=dense, schedule=GemmSchedule)
