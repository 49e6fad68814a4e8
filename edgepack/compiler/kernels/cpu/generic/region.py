"""Rule ``region``: an If or a loop, which is no kernel; the planner puts the steps of its graphs there."""

from __future__ import annotations

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.graph.opaque import REGION
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.rule import EVERY_DTYPE, Rule
from edgepack.plan.opt_level import PLAIN
from edgepack.plan.target import CpuTarget

__all__ = ["region"]


def region(fused: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Applies the rule to a fused group whose anchor is of that kind."""
    del target, constants
    if fused.anchor is None or fused.anchor.kind != REGION:
        raise RuleError("another operator")
    return Implementation("region", ())


RULE = Rule("region", order=661, dtypes=EVERY_DTYPE, apply=region, level=PLAIN)
