"""What was measured beforehand and decides on a model's kernels."""

from __future__ import annotations

from dataclasses import dataclass

from edgepack.compiler.kernels.schedule import Schedules, nothing_given
from edgepack.plan.seen_values import NOTHING_SEEN, SeenValues

__all__ = ["NOTHING_MEASURED", "Measured"]


@dataclass(frozen=True)
class Measured:
    """What was measured.

    Attributes:
        seen: values of the model in runs, which say where float16 is safe.
        schedules: those that were fast, in place of what the rules would propose.
    """

    seen: SeenValues = NOTHING_SEEN
    schedules: Schedules = nothing_given


NOTHING_MEASURED = Measured()
