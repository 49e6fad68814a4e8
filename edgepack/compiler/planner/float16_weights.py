"""Which constants are stored as float16: large ones whose values all are float16 numbers.

The frontend has rounded the weights of convolutions, products and tables to such numbers
(frontend/onnx/weights.py), and folding keeps most of them what they are. What is no float16 number any more
stays float32, so that storing never changes a result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.planner.program import Program

__all__ = ["LEAST", "is_float16", "lost", "mark_float16_weights", "said"]

#: Largest error of a rounded constant, by Euclidean norm: normal numbers are off by at most 2**-11 each.
MOST_LOST = 2.0**-10

#: Elements of the smallest constant that is worth converting at each use (frontend/onnx/weights.py).
LEAST = 512


def mark_float16_weights(program: Program) -> None:
    """Sets :attr:`FusedGroup.float16_params` of all groups: those that are such constants at each call."""
    half = [is_float16(array) for array in program.constants]
    found: dict[str, frozenset[int]] = {}
    for call in program.calls:
        arguments = enumerate(call.arguments)
        here = frozenset(i for i, value in arguments if value.kind == "constant" and half[value.index])
        found[call.fused.name] = found.get(call.fused.name, here) & here
    for call in program.calls:
        call.fused = replace(call.fused, float16_params=found[call.fused.name])


def is_float16(array: Array) -> bool:
    if array.dtype != np.float32 or array.size < LEAST:
        return False
    with np.errstate(over="ignore"):
        return bool((array.astype(np.float16) == array).all())


def lost(array: Array) -> str:
    """What is wrong with the rounded array, or ""."""
    with np.errstate(over="ignore", invalid="ignore"):
        half = array.astype(np.float16)
    if not np.isfinite(half[np.isfinite(array)]).all():
        return f"reaches {float(np.abs(array[np.isfinite(array)]).max()):.3g}"
    if np.array_equal(half, array, equal_nan=True):
        return ""
    finite = np.where(np.isfinite(array), array, 0)
    with np.errstate(invalid="ignore"):
        off = np.where(np.isfinite(array), half.astype(np.float32) - array, 0)
    lost = np.linalg.norm(off) > MOST_LOST * np.linalg.norm(finite)
    return f"is at most {float(np.abs(finite).max()):.3g}" if lost else ""


def said(lost: Mapping[int, str], program: Program, names: Sequence[str]) -> Iterator[str]:
    """A sentence about the constants that stay float32."""
    for call in program.calls:
        for value in call.arguments:
            if value.kind == "constant" and value.index in lost:
                named = [names[i] for i in call.nodes if i < len(names)]
                node = f"of {named[0]!r}" if named else f"of {call.fused.title}"
                more = f", and {len(lost) - 1} more" if len(lost) > 1 else ""
                why = lost[value.index]
                yield f"A weight {node} {why}, so it stays float32{more}: float16 holds 6e-8 to 65504."
                return
