"""Writes the data of a params file: constants at their offsets, zeros between them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgepack.plan.types import Plan

__all__ = ["write_params_data"]


def write_params_data(plan: Plan, arrays: Sequence[Any], path: Path) -> None:
    """Writes ``plan.params_bytes`` bytes; ``arrays`` are numpy arrays in the order of ``plan.constants``."""
    with path.open("wb") as file:
        for constant, array in zip(plan.constants, arrays, strict=True):
            file.write(b"\0" * (constant.offset - file.tell()))
            file.write(array.reshape(-1).view("uint8"))  # no copy: arrays are contiguous
