"""Integers of 8, 16 and 24 bits, of which constants of int32 are stored where flash is short."""

from __future__ import annotations

import numpy as np

from edgepack.compiler.kernels.contract import Array

__all__ = ["INT24", "NARROW", "as_narrow"]

#: Numbers of 24 bits: the lower 16 bits of all of them, then the upper 8, signed.
INT24 = "int24"

#: From the narrowest on, and how many bits each has.
NARROW = {"int8": 8, "int16": 16, INT24: 24, "int32": 32}


def as_narrow(values: Array, dtype: str) -> Array:
    """Numbers of int32, which fit, as those of a narrower type; of :data:`INT24` as bytes."""
    if dtype != INT24:
        return values.astype(dtype)
    flat = values.reshape(-1)
    planes = (flat & 0xFFFF).astype("<u2"), (flat >> 16).astype(np.int8)
    return np.concatenate([plane.view(np.uint8) for plane in planes])
