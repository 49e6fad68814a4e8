"""Rule ``selection``: operators that choose among elements; scalar, but for what is told of each of them."""

from __future__ import annotations

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.graph.selection import Selection
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.selection.builder import SelectionKernel
from edgepack.compiler.kernels.cpu.selection.non_zero import CompressKernel, NonZeroKernel
from edgepack.compiler.kernels.cpu.selection.suppression import SuppressionKernel
from edgepack.compiler.kernels.cpu.selection.top_k import TopKKernel
from edgepack.compiler.kernels.cpu.selection.unique import UniqueKernel
from edgepack.compiler.kernels.rule import EVERY_DTYPE, Rule
from edgepack.plan.opt_level import PLAIN
from edgepack.plan.target import CpuTarget

__all__ = ["selection"]

KERNELS: dict[str, type[SelectionKernel]] = {
    "Compress": CompressKernel,
    "NonMaxSuppression": SuppressionKernel,
    "NonZero": NonZeroKernel,
    "TopK": TopKKernel,
    "Unique": UniqueKernel,
}


def selection(fused: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Applies the rule to a fused group whose anchor is of that kind."""
    del constants
    if fused.anchor is None or fused.anchor.kind != "selection":
        raise RuleError("another operator")
    form = Selection.of(fused.anchor.attributes)
    return KERNELS[form.operator](fused, form, target).build()


RULE = Rule("selection", order=670, dtypes=EVERY_DTYPE, apply=selection, level=PLAIN)
