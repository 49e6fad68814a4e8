"""How far apart two tensors are, over any number of samples."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, log10, sqrt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Difference", "decibels"]

#: Of a result that is all noise, or whose reference is 0.
_LEAST = -99.0


@dataclass
class Difference:
    """Sums over all samples of a tensor.

    Attributes:
        signal, other, product: of the squares of the exact values, those of the other's, and of the products.
        noise, error: of the squares and the magnitudes of the differences.
        max_error, largest: largest difference, and largest magnitude of the exact values.
        unlike: elements of which one is NaN or infinite and the other is not the same.
        outside: elements beyond the range of quantised values.
        elements: all.
        rows, same_rows: of scores, and those whose largest is the same one.
    """

    signal: float = 0.0
    other: float = 0.0
    product: float = 0.0
    noise: float = 0.0
    error: float = 0.0
    max_error: float = 0.0
    largest: float = 0.0
    unlike: int = 0
    outside: int = 0
    elements: int = 0
    rows: int = 0
    same_rows: int = 0

    def add(self, exact: NDArray[Any], other: NDArray[Any]) -> None:
        """Take in a sample: two arrays of one shape."""
        import numpy as np

        a, b = exact, other
        sums = _sums(a, b) if exact.dtype == other.dtype == np.float32 else (inf,)
        if not all(map(isfinite, sums)):
            a, b = exact.astype(np.float64), other.astype(np.float64)
            odd = ~(np.isfinite(a) & np.isfinite(b))
            self.unlike += int((odd & (a != b) & ~(np.isnan(a) & np.isnan(b))).sum())
            a, b = (np.nan_to_num(one, posinf=0.0, neginf=0.0) for one in (a, b))
            sums = _sums(a, b)
        error = np.abs(a - b)
        self.signal, self.other, self.product, self.noise = (
            before + more
            for before, more in zip((self.signal, self.other, self.product, self.noise), sums, strict=True)
        )
        self.error += float(error.sum(dtype=np.float64))
        self.max_error = max(self.max_error, float(error.max(initial=0.0)))
        self.largest = max(self.largest, float(np.abs(a).max(initial=0.0)))
        self.elements += a.size
        if a.ndim == 2 and a.shape[1] > 1 and exact.dtype.kind == "f":
            self.rows += len(a)
            self.same_rows += int((np.argmax(a, 1) == np.argmax(b, 1)).sum())

    @property
    def sqnr(self) -> float | None:
        """The signal-to-noise ratio in dB of what is finite; None where there is no noise, nor any element
        that is not finite in one of the two alone."""
        return _LEAST if self.unlike and not self.noise else decibels(self.signal, self.noise)

    @property
    def cosine(self) -> float | None:
        """The similarity of the two as vectors; None where one is all 0."""
        if not self.signal or not self.other:
            return None
        return min(max(self.product / sqrt(self.signal) / sqrt(self.other), -1.0), 1.0)

    @property
    def top1(self) -> float | None:
        """The share of rows whose largest element is the same one; None where there are no rows."""
        return self.same_rows / self.rows if self.rows else None


def _sums(a: NDArray[Any], b: NDArray[Any]) -> tuple[float, ...]:
    """Of the squares of both, of their products, and of the squares of their differences."""
    import numpy as np

    with np.errstate(invalid="ignore", over="ignore"):
        error = a - b
    return tuple(float(np.vdot(one, two)) for one, two in ((a, a), (b, b), (a, b), (error, error)))


def decibels(signal: float, noise: float) -> float | None:
    """The signal-to-noise ratio of two sums of squares; None where there is no noise."""
    if noise == 0:
        return None
    return max(10 * log10(signal / noise), _LEAST) if signal else _LEAST
