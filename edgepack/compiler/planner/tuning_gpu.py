"""What a tuner is told of a program on a GPU: the same as on a CPU, of the groups that the GPU computes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgepack.compiler.kernels.candidates_gpu import gpu_candidates
from edgepack.compiler.kernels.estimate import work_of
from edgepack.compiler.kernels.group_key import group_key
from edgepack.compiler.planner.build_gpu import SelectedOnGpu
from edgepack.compiler.planner.placement import computing
from edgepack.compiler.planner.tuning import MOST, WORTH_LOOKING

__all__ = ["write_gpu_choices"]


def write_gpu_choices(selected: SelectedOnGpu, path: Path, wanted: Sequence[str] = ()) -> None:
    """Writes what :func:`edgepack.compiler.planner.tuning.write_choices` does, no cycles predicted.

    Args:
        wanted: keys of the groups that get candidates; by default all that are estimated to take more than a
            little of a run.
    """
    found: dict[str, dict[str, Any]] = {}
    asked = set(wanted) or _worth_looking(selected)
    for call in selected.program.calls:
        if (made := call.gpu) is None:
            continue
        half = selected.half.of_call(call)
        key = group_key([call.fused], half)
        if key in found:
            found[key]["symbols"] = sorted({*found[key]["symbols"], *call.symbols})
            continue
        others = gpu_candidates(call.fused, half, made, selected.gpu.target, MOST) if key in asked else []
        found[key] = {
            "group": key,
            "title": call.fused.title,
            "rule": made.schedule.rule,
            "schedule": made.schedule.to_json(),
            "symbols": sorted(call.symbols),
            "cycles": 0.0,
            "candidates": [{"rule": one.rule, "schedule": one.schedule, "cycles": 0.0} for one in others],
            "more": False,
        }
    path.write_text(json.dumps(list(found.values()), indent=1), encoding="utf-8", newline="\n")


def _worth_looking(selected: SelectedOnGpu) -> set[str]:
    """Keys of the groups that are estimated to take a part of a run that is worth it."""
    times: dict[str, float] = defaultdict(float)
    for call in selected.program.calls:
        if call.gpu is not None:
            work, key = work_of(call.fused.function), group_key([call.fused], selected.half.of_call(call))
            times[key] += computing(call.gpu, work, selected.gpu.target)
    least = WORTH_LOOKING * sum(times.values())
    return {key for key, value in times.items() if value >= least}
