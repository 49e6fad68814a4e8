"""What was measured beforehand and decides on a model's kernels."""

from __future__ import annotations

from dataclasses import dataclass

from edgepack.compiler.kernels.schedule import Schedules, nothing_given
from edgepack.plan.calibration import NOT_CALIBRATED, CalibrationRanges

__all__ = ["NOTHING_MEASURED", "Measured"]


@dataclass(frozen=True)
class Measured:
    """What was measured.

    Attributes:
        calibration: how large the model's values were, which says where float16 is safe.
        schedules: those that were fast, in place of what the rules would propose.
    """

    calibration: CalibrationRanges = NOT_CALIBRATED
    schedules: Schedules = nothing_given


NOTHING_MEASURED = Measured()
