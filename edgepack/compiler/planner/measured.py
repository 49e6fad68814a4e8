"""What was measured beforehand and decides on a model's kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.gpu.contract import HalfOperands
from edgepack.compiler.kernels.schedule import Given, Schedules, nothing_given
from edgepack.plan.calibration import NOT_CALIBRATED, CalibrationRanges

__all__ = ["NOTHING_MEASURED", "GpuSchedules", "Measured", "all_ahead", "nothing_given_on_gpu"]

#: What is given for a fused group that a GPU computes, of which some is float16 in memory.
GpuSchedules = Callable[[FusedGroup, HalfOperands], Given]


def nothing_given_on_gpu(fused: FusedGroup, half: HalfOperands) -> Given:
    """The rules decide."""
    return {}


def all_ahead(groups: Sequence[FusedGroup]) -> float:
    """The planner decides."""
    return 1.0


@dataclass(frozen=True)
class Measured:
    """What was measured.

    Attributes:
        calibration: how large the model's values were, which says where float16 is safe.
        schedules: those that were fast, in place of what the rules would propose; ``on_gpu`` those of the
            GPU's kernels.
        ahead: which part of what the planner would have fetched ahead of a call's weights is fetched, by the
            groups that the call computes.
    """

    calibration: CalibrationRanges = NOT_CALIBRATED
    schedules: Schedules = nothing_given
    on_gpu: GpuSchedules = nothing_given_on_gpu
    ahead: Callable[[Sequence[FusedGroup]], float] = all_ahead


NOTHING_MEASURED = Measured()
