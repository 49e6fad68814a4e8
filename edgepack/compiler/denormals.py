"""Denormal numbers among the constants: a float32 below 1.18e-38 (float64: 2.2e-308), which training leaves
where weights decayed. On many CPUs an operation on one takes 100 cycles more than on any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]

__all__ = ["denormals", "warning_of", "without_denormals"]

#: The least share of all weights that is worth a word, and the least number.
_SHARE, _LEAST = 1e-4, 1000
#: Elements that are looked at at once.
_CHUNK = 1 << 20


def denormals(array: Array) -> int:
    """How many of an array's elements are denormal; 0 for types other than float32 and float64."""
    if array.dtype not in (np.float32, np.float64):
        return 0
    bits = np.ascontiguousarray(array).reshape(-1).view(f"u{array.itemsize}")
    shift = np.array(1, bits.dtype)  # the sign's bit goes
    tiny = np.array(np.finfo(array.dtype).tiny).view(bits.dtype) << shift
    found = 0
    for start in range(0, len(bits), _CHUNK):
        plain = bits[start : start + _CHUNK] << shift
        found += int(np.count_nonzero((plain != 0) & (plain < tiny)))
    return found


def without_denormals(array: Array) -> Array:
    """The array with zeros, of the same sign, in the place of denormal elements; itself where there are
    none."""
    if not denormals(array):
        return array
    bits = np.ascontiguousarray(array).view(f"u{array.itemsize}")
    sign = np.array(1 << (8 * array.itemsize - 1), bits.dtype)
    tiny = np.array(np.finfo(array.dtype).tiny).view(bits.dtype)
    flushed: Array = np.where((bits & ~sign) < tiny, bits & sign, bits).view(array.dtype)
    return flushed


def warning_of(found: int, elements: int) -> str:
    """What is said of ``found`` denormal ones of all constants' ``elements``; "" where they are few."""
    if found < max(_LEAST, _SHARE * elements):
        return ""
    return (
        f"{found:,} of {elements:,} weights are denormal numbers, too small for a normal float, and count as "
        "zeros (--strict-math computes with them, many times slower)"
    )
