"""Rule ``rowwise``: reductions and the elementwise blocks around them, one row per step of a task.

The axes of the output on which its reductions depend are the rows; along the others the reductions' results
stay the same. A row computes its reductions in order and then its outputs. Two forms:

* The reduced axis is contiguous (softmax, LayerNorm, RMSNorm, means of the last axis): lanes run along it in
  each pass, with several accumulators, which are added up across their lanes at the end of the pass.
* Another axis is (a global average in NHWC, InstanceNorm over pixels): lanes run along that one, several
  vectors side by side, and each lane reduces for itself.

An elementwise block that calls elementary functions and is needed by more than one pass (the exponential of
a softmax) is kept in the thread's scratch. Where lanes run along the reduced axis, quotients by a row's
result are products by factors that are computed once a row.
"""

from __future__ import annotations

from math import prod

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.analysis.branch_splitting import writes_its_own_position
from edgepack.compiler.kernels.cpu.emit.tir_blocks import blocks_of
from edgepack.compiler.kernels.cpu.rows.row_kernel import RowKernel
from edgepack.compiler.kernels.cpu.rows.row_parts import PartedRows, parts_of
from edgepack.compiler.kernels.cpu.rows.row_plan import RowPlan
from edgepack.compiler.kernels.rule import EVERY_DTYPE, Rule
from edgepack.plan.target import CpuTarget

__all__ = ["rowwise"]


def rowwise(fused: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Applies the rule. RuleError for a fused group without a reduction or of another form."""
    blocks = blocks_of(fused.function)
    if fused.outputs != 1 or not all(writes_its_own_position(block) for block in blocks):
        raise RuleError("not one output of elementwise blocks and reductions")
    if not any(block.reductions for block in blocks):
        raise RuleError("no reduction")
    plan = RowPlan(blocks, tuple(fused.function.params), target)
    flops = sum(prod(block.extents) for block in blocks)
    parts = parts_of(plan, target)
    return (PartedRows(plan, target, flops, parts) if parts > 1 else RowKernel(plan, target, flops)).build()


RULE = Rule("rowwise", order=900, dtypes=EVERY_DTYPE, apply=rowwise, kind="blocks")
