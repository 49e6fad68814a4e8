"""Inputs that nobody would give a model on purpose: numbers at their ends, no numbers, any bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["KINDS", "hostile_inputs"]

_Array = np.ndarray[Any, Any]

#: By kind, what floats are drawn from; "bytes" are any bits, and "some" leaves about half of the inputs.
_FLOATS = {
    "infinities": (np.inf, -np.inf, 0.0),
    "no numbers": (np.nan,),
    "largest": (3.4e38, -3.4e38, 65504.0, -65504.0),
    "as large as integers": (2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 2.0**32, 255.5),
    "denormal": (1e-45, -1e-45, 1e-39, -0.0),
}

#: By kind, what integers are drawn from: parts of the range, counted from the ends (0 and -1) and from 0.
_FROM_LEAST, _FROM_LARGEST, _FROM_ZERO = "least", "largest", "zero"
_INTEGERS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "infinities": ((_FROM_LEAST, 0), (_FROM_LARGEST, 0)),
    "no numbers": ((_FROM_LEAST, 0),),
    "largest": ((_FROM_LARGEST, 0),),
    "as large as integers": (
        (_FROM_LEAST, 1),
        (_FROM_LARGEST, -1),
        (_FROM_ZERO, 2**31),
        (_FROM_ZERO, -(2**31)),
    ),
    "denormal": ((_FROM_ZERO, 0), (_FROM_ZERO, -1), (_FROM_ZERO, 1)),
}

KINDS = (*_FLOATS, "bytes", "some")


def hostile_inputs(inputs: Mapping[str, _Array], kind: str, seed: int) -> dict[str, _Array]:
    """Inputs of the same shapes and types.

    Args:
        kind: one of :data:`KINDS`.
    """
    rng = np.random.default_rng(seed)
    if kind == "some":
        kinds = [*_FLOATS, "bytes"]
        return {
            name: array if rng.integers(2) else _drawn(array, kinds[int(rng.integers(len(kinds)))], rng)
            for name, array in inputs.items()
        }
    return {name: _drawn(array, kind, rng) for name, array in inputs.items()}


def _drawn(array: _Array, kind: str, rng: np.random.Generator) -> _Array:
    if kind == "bytes" or array.dtype.kind not in "fiu":
        found = rng.integers(0, 256, array.nbytes, dtype=np.uint8)
        return found.view(array.dtype).reshape(array.shape)
    if array.dtype.kind == "f":
        with np.errstate(all="ignore"):
            values = np.array(_FLOATS[kind]).astype(array.dtype)
    else:
        about = np.iinfo(array.dtype)
        start = {_FROM_LEAST: int(about.min), _FROM_LARGEST: int(about.max), _FROM_ZERO: 0}
        exact = [start[base] + offset for base, offset in _INTEGERS[kind]]
        values = np.array([min(max(one, int(about.min)), int(about.max)) for one in exact], array.dtype)
    return values[rng.integers(0, len(values), array.shape)]
