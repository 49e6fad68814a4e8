"""Small models of one operator whose shapes, scales and options a seed draws."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np

from workbench.models.tflite import operators
from workbench.models.tflite.operators.values import Draw

__all__ = ["DRAWN", "drawn"]


def _all() -> dict[str, Draw]:
    found: dict[str, Draw] = {}
    for info in pkgutil.iter_modules(operators.__path__, f"{operators.__name__}."):
        found.update(getattr(importlib.import_module(info.name), "DRAWN", {}))
    return found


#: How a model of each operator is drawn.
DRAWN = _all()


def drawn(kind: str, seed: int) -> bytes:
    """A TFLite file of one operator of :data:`DRAWN`."""
    return DRAWN[kind](np.random.default_rng([seed, *kind.encode()]))
