"""Integers of 8, 16 and 24 bits, of which constants of int32 are stored where flash is short, and words that
have two such numbers: a factor of 2^30 to 2^31 - 1, whose upper bits are known, and one of four others."""

from __future__ import annotations

import numpy as np

from edgepack.compiler.kernels.contract import Array

__all__ = ["INT24", "NARROW", "as_narrow", "as_words", "least_beside"]

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


def least_beside(factors: Array, others: Array) -> range:
    """What may be subtracted from ``others`` so that they lie in words with ``factors`` (:func:`as_words`);
    nothing where they do not fit."""
    known = factors.shape == others.shape and bool((factors >= 1 << 30).all())
    return range(int(others.max()) - 3, int(others.min()) + 1) if known else range(0)


def as_words(factors: Array, others: Array, least: int) -> Array:
    """Of each word the upper 30 bits are the lower ones of a factor, in [2^30, 2^31), and the lower two an
    other number less ``least``."""
    return (factors.astype(np.uint32) << 2) | (others - least).astype(np.uint32)
