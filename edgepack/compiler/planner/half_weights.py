"""Which constants are stored as float16: large ones whose values all are float16 numbers.

The frontend has rounded the weights of convolutions, products and tables to such numbers
(frontend/weights.py), and folding keeps most of them what they are. What is no float16 number any more stays
float32, so that storing never changes a result.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.planner.program import Program

__all__ = ["LEAST", "is_half", "mark_half_weights"]

#: Elements of the smallest constant that is worth converting at each use (frontend/weights.py).
LEAST = 512


def mark_half_weights(program: Program) -> None:
    """Sets :attr:`FusedGroup.half` of the groups of all calls: parameters that are such constants at each."""
    half = [is_half(array) for array in program.constants]
    found: dict[str, frozenset[int]] = {}
    for call in program.calls:
        arguments = enumerate(call.arguments)
        here = frozenset(i for i, value in arguments if value.kind == "constant" and half[value.index])
        found[call.fused.name] = found.get(call.fused.name, here) & here
    for call in program.calls:
        call.fused = replace(call.fused, half=found[call.fused.name])


def is_half(array: Array) -> bool:
    if array.dtype != np.float32 or array.size < LEAST:
        return False
    with np.errstate(over="ignore"):
        return bool((array.astype(np.float16) == array).all())
