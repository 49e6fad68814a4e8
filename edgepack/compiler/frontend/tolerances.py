"""What an output of a bundle may be off by: a rule for what is known of it, whatever the model's format.

A frontend says in :class:`OutputFacts` how an output is computed; the numbers are here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "CONDITION_FACTOR",
    "CONDITION_LIMIT",
    "FLIP_FACTOR",
    "LITTLE",
    "NOISE_FACTOR",
    "ROUNDING_FACTOR",
    "ROUNDING_LIMIT",
    "TOLERANCES",
    "OutputFacts",
    "Tolerance",
    "limits_of",
    "share_of",
    "tightened",
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

#: The reference is off itself, by as much as it differs from the same model in float64, or as rounding alone
#: moves it. An output may be off by this many times that: by what the reference is off, and by three times
#: that for another program, which rounds elsewhere. Measured over networks that enlarge rounding, edgepack's
#: results are off by 0.5 to 1.5 times that (workbench/models/unsteady.py; magika 1.0.3, a classifier).
NOISE_FACTOR = 4.0

#: A run proves little of an output whose tolerance is, for noise, on average more than this part of what its
#: elements differ by from their mean.
LITTLE = 0.1


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
    noise: Sequence[NDArray[Any]] = (),
) -> dict[str, float]:
    """What is recorded of an output: ``atol``, ``rtol``, its largest magnitude ``max_abs``; where it was
    measured, how far off the reference is itself (``noise``), and whether that widened the rest (``noisy``).

    Args:
        array: the reference.
        allowed: by :func:`tolerance_of`.
        other: what adding up in another order makes of it.
        coarse: what rounded factors of products make of it.
        flipped: what other steps make of it where values are rounded to steps, of several runs.
        noise: what float64, or rounding alone, makes of it, of several runs.
    """
    limits = _without_noise(array, allowed, other, coarse, flipped)
    if not len(noise):
        return limits
    import numpy as np

    finite = np.isfinite(array.astype(np.float64))
    off = np.maximum.reduce([_difference(results, array, finite) for results in noise])
    wider = _with_noise(array, off, limits, isinstance(allowed, int))
    return {**wider, "noise": float(off.max(initial=0.0)), "noisy": wider != limits}


def share_of(array: NDArray[Any], limits: Mapping[str, float]) -> float:
    """Which part the tolerance is, on average, of what the elements of an output differ by from their mean:
    from 1 on, nearly any result would pass. Of an output that is one number, of that number.

    Args:
        limits: by :func:`limits_of`.
    """
    import numpy as np

    values = array.astype(np.float64)
    values = values[np.isfinite(values)]
    if not values.size:
        return 0.0
    allowed = limits["atol"] + limits["rtol"] * float(np.abs(values).mean())
    apart = float(np.abs(values - values.mean()).mean()) or float(np.abs(values).mean())
    return allowed / apart if apart else float(allowed > 0)


def tightened(
    array: NDArray[Any], allowed: Tolerance | int, limits: Mapping[str, float], noise: Sequence[NDArray[Any]]
) -> Mapping[str, float]:
    """Limits by the median magnitude of an output in place of its largest, so that a few large numbers leave
    the others compared; as they were where rounding moves an element by more than these allow.

    Args:
        limits: by :func:`limits_of`, of the same noise.
    """
    import numpy as np

    values = np.abs(array.astype(np.float64))
    finite = np.isfinite(values)
    if isinstance(allowed, int) or not finite.any():
        return limits
    typical = float(np.median(values[finite]))
    tight = {**limits, "atol": _two_digits(max(allowed.floor, allowed.relative * typical))}
    if tight["atol"] >= limits["atol"]:
        return limits
    off = np.maximum.reduce([_difference(results, array, finite) for results in noise])
    within = NOISE_FACTOR * off <= tight["atol"] + tight["rtol"] * np.where(finite, values, 0)
    return tight if within.all() else limits


def _without_noise(
    array: NDArray[Any],
    allowed: Tolerance | int,
    other: NDArray[Any] | None,
    coarse: NDArray[Any] | None,
    flipped: Sequence[NDArray[Any]],
) -> dict[str, float]:
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


def _with_noise(
    array: NDArray[Any], off: NDArray[np.float64], limits: dict[str, float], integers: bool
) -> dict[str, float]:
    """Limits within which every element may be NOISE_FACTOR times as far off as the reference is: by a wider
    ``atol``, or by a wider ``rtol`` where that allows less in all.

    Args:
        off: how far each element of the reference is off.
        integers: whether it has integers, of which a step is a step.
    """
    import math

    import numpy as np

    values = np.abs(np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0))
    wanted = off if integers else NOISE_FACTOR * off
    if (wanted <= limits["atol"] + limits["rtol"] * values).all():
        return limits
    most = float(wanted.max(initial=0.0))
    if integers:
        return {**limits, "atol": float(math.ceil(most))}
    flat = {**limits, "atol": _two_digits(most)}
    above = wanted - limits["atol"]
    if (values[above > 0] == 0).any():
        return flat
    with np.errstate(divide="ignore", invalid="ignore"):
        steepest = float(np.where(above > 0, above / values, 0.0).max(initial=0.0))
    steep = {**limits, "rtol": _two_digits(max(limits["rtol"], steepest))}
    return min(flat, steep, key=lambda one: one["atol"] + one["rtol"] * float(values.mean()))


def _two_digits(value: float) -> float:
    """Not less than ``value``, so that the limits read well."""
    rounded = float(f"{value:.1e}")
    return rounded if rounded >= value else float(f"{value * 1.05:.1e}")


def _spread(results: NDArray[Any], array: NDArray[Any], finite: NDArray[np.bool_]) -> float:
    """The largest difference of two outputs where one is finite; 0 if it is nowhere."""
    return float(_difference(results, array, finite).max(initial=0.0))


def _difference(results: NDArray[Any], array: NDArray[Any], finite: NDArray[np.bool_]) -> NDArray[np.float64]:
    """How far apart two outputs are, element by element; 0 where one of them is not finite."""
    import numpy as np

    with np.errstate(invalid="ignore", over="ignore"):
        changed = np.abs(results.astype(np.float64) - array.astype(np.float64))
    return np.where(finite, np.nan_to_num(changed, nan=0.0, posinf=0.0), 0.0)
