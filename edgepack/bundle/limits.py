"""Bounds of what a bundle or its program says, so that whoever reads on need not think of them."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["check_limits"]

_DEEPEST = 32
_LARGEST = 2**63


def check_limits(data: Any) -> None:
    """Look through plain data of JSON.

    Raises:
        ValueError: it is nested more than 32 deep, or has a whole number of more than 63 bits or one that is
            not finite.
    """
    level = [data]
    for _ in range(_DEEPEST):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
                raise ValueError("it has a whole number of more than 63 bits")
            elif isinstance(value, float) and not math.isfinite(value):
                raise ValueError("it has a number that is not finite")
        if not below:
            return
        level = below
    raise ValueError(f"it is nested more than {_DEEPEST} deep")
