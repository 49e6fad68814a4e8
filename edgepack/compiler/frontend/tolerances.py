"""What an output of a bundle may be off by: a rule for what is known of it, whatever the model's format.

A frontend says in :class:`OutputFacts` how an output is computed; the numbers are here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "CONDITION_FACTOR",
    "CONDITION_LIMIT",
    "FLIP_FACTOR",
    "ROUNDING_FACTOR",
    "ROUNDING_LIMIT",
    "TOLERANCES",
    "OutputFacts",
    "Tolerance",
    "limits_of",
    "tolerance_of",
]


@dataclass(frozen=True)
class Tolerance:
    """Allowed error: ``relative * max|ref|``, at least ``floor``, plus ``relative_each * |ref|``."""

    relative: float
    floor: float
    relative_each: float


#: By the coarsest arithmetic that an output depends on.
#:
#: float32: a sum of K products, added up in any order, is off by at most about K u of the sum of magnitudes
#: (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1; u = 6e-8), and K is some
#: thousands: 1e-4 of the output's range. What is measured is far less: 6e-7 for whole networks with direct
#: convolutions, 1.3e-5 for one Winograd F(4x4, 3x3) layer. float16 has u = 5e-4, and each layer of the
#: reference rounds once more (edgepack computes in float32): 1e-2, and for bfloat16, u = 4e-3, 5e-2.
#: quantised, where it is not measured (FLIP_FACTOR): a value next to the middle of two steps may be rounded
#: to the other one: two steps of 1/127.
#: tf32: the factors of a product are off by up to u = 5e-4 each, 3e-4 together on average, and so is a sum of
#: such products, however many they are, for they are off independently: 2e-3, and ROUNDING_FACTOR.
TOLERANCES = {
    "float64": Tolerance(1e-9, 1e-12, 1e-9),
    "float32": Tolerance(1e-4, 1e-7, 1e-3),
    "tf32": Tolerance(2e-3, 1e-6, 1e-3),
    "quantised": Tolerance(2 / 127, 1e-6, 1e-3),
    "float16": Tolerance(1e-2, 1e-4, 1e-2),
    "bfloat16": Tolerance(5e-2, 1e-3, 5e-2),
}

_COARSENESS = list(TOLERANCES)

#: Some networks amplify rounding errors. How much is seen from ONNX Runtime itself: the same model, run with
#: its fusions and with the terms of all products reversed, adds up in another order. An output may be off by
#: this many times what that changes, but never by more than CONDITION_LIMIT of its range. Measured over the
#: test networks, edgepack's results are off by 0.6 to 4.5 times what that changes.
CONDITION_FACTOR = 30.0
CONDITION_LIMIT = 1e-2

#: What rounding the factors of products to TF32 adds up to over the layers of a network is seen from ONNX
#: Runtime too, given rounded factors. An output may be off by this many times what that changes, for a GPU
#: multiplies other numbers where it fused or rearranged, but never by more than ROUNDING_LIMIT of its range.
ROUNDING_FACTOR = 3.0
ROUNDING_LIMIT = 5e-2

#: Where values are rounded to steps, a few elements may be one step off, and what that adds up to is seen
#: from ONNX Runtime too, run with values next to the middle of two steps rounded to the other one. An output
#: may be off by this many times what that changes at most. Measured over quantised networks, edgepack's
#: results are off by at most 0.8 times that.
FLIP_FACTOR = 2.0


@dataclass(frozen=True)
class OutputFacts:
    """What decides on how far an output may be off.

    Attributes:
        is_float: whether it has floats; otherwise integers, or truth values.
        arithmetic: the types that it is computed in, keys of :data:`TOLERANCES`: those of all floats that it
            depends on.
        rounds_to_steps: it depends on a value that is rounded to integers, or to steps of a quantised type.
        stored_as_bytes: its type is one that bundles hold as bytes: a value next to the middle of two may
            become the other one.
    """

    is_float: bool
    arithmetic: frozenset[str]
    rounds_to_steps: bool = False
    stored_as_bytes: bool = False


def tolerance_of(facts: OutputFacts, rounded: str | None = None) -> Tolerance | int:
    """What an output may be off by: a :class:`Tolerance`, or a number of integer steps for integers.

    Args:
        rounded: where the exact model is the reference, what the bundle's weights, all that lies between its
            kernels, or the factors of its products ("tf32") are rounded to.
    """
    if not facts.is_float:
        return 1 if facts.rounds_to_steps or facts.stored_as_bytes else 0
    kinds = {*facts.arithmetic, *(["quantised"] if facts.rounds_to_steps else [])}
    if rounded is not None:
        kinds.add(rounded)
    return TOLERANCES[max(kinds, key=_COARSENESS.index)]


def limits_of(
    array: NDArray[Any],
    allowed: Tolerance | int,
    other: NDArray[Any] | None,
    coarse: NDArray[Any] | None = None,
    flipped: Sequence[NDArray[Any]] = (),
) -> dict[str, float]:
    """What is recorded of an output: ``atol``, ``rtol``, and its largest magnitude ``max_abs``.

    Args:
        array: the reference.
        allowed: by :func:`tolerance_of`.
        other: what adding up in another order makes of it.
        coarse: what rounded factors of products make of it.
        flipped: what other steps make of it where values are rounded to steps, of several runs.
    """
    import math

    import numpy as np

    values = np.abs(array.astype(np.float64))
    finite = np.isfinite(values)
    largest = float(values[finite].max()) if finite.any() else 0.0
    flips = max((_spread(results, array, finite) for results in flipped), default=0.0)
    if isinstance(allowed, int):
        steps = math.ceil(FLIP_FACTOR * flips) if flips > 1 else allowed
        return {"atol": float(max(allowed, steps)), "rtol": 0.0, "max_abs": largest}
    if allowed == TOLERANCES["tf32"] and coarse is None:  # a factor has as many bits as one in float16
        allowed = TOLERANCES["float16"]
    if allowed == TOLERANCES["quantised"] and len(flipped):
        allowed = TOLERANCES["float32"]
    atol = max(allowed.floor, allowed.relative * largest, FLIP_FACTOR * flips)
    measured = ((other, CONDITION_FACTOR, CONDITION_LIMIT), (coarse, ROUNDING_FACTOR, ROUNDING_LIMIT))
    for results, factor, limit in measured:
        if results is not None:
            atol = max(atol, min(factor * _spread(results, array, finite), limit * largest))
    # Two digits, so that the limits read well.
    return {"atol": float(f"{atol:.1e}"), "rtol": allowed.relative_each, "max_abs": largest}


def _spread(results: NDArray[Any], array: NDArray[Any], finite: NDArray[np.bool_]) -> float:
    """The largest difference of two outputs where one is finite; 0 if it is nowhere."""
    import numpy as np

    changed = np.abs(results.astype(np.float64) - array.astype(np.float64))[finite]
    return float(np.nan_to_num(changed, posinf=0.0).max(initial=0.0))
