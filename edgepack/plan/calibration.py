"""Calibration ranges: how large a model's float32 values were in the recorded run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["LARGEST_FLOAT16", "NOT_CALIBRATED", "CalibrationRanges"]

#: The largest number of float16.
LARGEST_FLOAT16 = 65504.0


@dataclass(frozen=True)
class CalibrationRanges:
    """How large values are, for what would be float16.

    Attributes:
        large: names of the nodes with a result beyond float16.
        read: the largest magnitude of what each node reads and is no constant, by its name.
    """

    large: frozenset[str] = frozenset()
    read: Mapping[str, float] = field(default_factory=dict)


NOT_CALIBRATED = CalibrationRanges()
