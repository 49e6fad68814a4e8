"""What a tuner is told of a program: by which schedules its calls are computed, in which steps, and what else
it may try."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgepack.compiler.kernels.candidates import candidates, plain_schedule
from edgepack.compiler.kernels.group_key import group_key
from edgepack.compiler.kernels.tuned import rule_of
from edgepack.compiler.planner.program import Program
from edgepack.compiler.planner.select import KernelSelector

__all__ = ["write_choices"]

#: Candidates of a group, at most.
MOST = 16


def write_choices(program: Program, selector: KernelSelector, path: Path) -> None:
    """Writes a JSON list: for each group with a schedule its key, rule, schedule, the symbols of its kernels,
    and candidates. Groups with one key are one."""
    found: dict[str, dict[str, Any]] = {}
    for call in program.calls:
        made = call.implementation
        if made is None or made.schedule is None or (rule := rule_of(made)) is None:
            continue
        key = group_key(call.fused_groups)
        if key in found:
            found[key]["symbols"] = sorted({*found[key]["symbols"], *call.symbols})
            continue
        constants = [selector.constants_of(group) for group in call.fused_groups]
        others = candidates(call.fused_groups, made, selector.target, constants, MOST)
        found[key] = {
            "group": key,
            "title": call.fused.title,
            "rule": rule.name,
            "schedule": plain_schedule(made.schedule),
            "symbols": sorted(call.symbols),
            "candidates": [{"rule": one.rule, "schedule": one.schedule} for one in others],
        }
    path.write_text(json.dumps(list(found.values()), indent=1), encoding="utf-8", newline="\n")
