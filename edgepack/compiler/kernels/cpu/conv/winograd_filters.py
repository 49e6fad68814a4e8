"""Winograd's minimal filtering in one dimension, F(m, r): weights in numpy, transforms as vector TIR.

m outputs of r taps are computed from a = m + r - 1 inputs by a products: Y = A^T [(G g) * (B^T d)] with the
matrices of Toom and Cook for a - 1 finite points and infinity (Lavin and Gray, Fast Algorithms for
Convolutional Neural Networks, 2016; Blahut, Fast Algorithms for Signal Processing, chapter 5). Points come in
pairs +-p, and 0 where there is an even number of products: sums of even and of odd elements then serve both
of a pair.

The points are those with the least error that were found among simple ones, for normally distributed inputs,
weights and 64 channels: 1.4 to 3 times that of the direct sum (Barabasz et al., Error Analysis and Improving
the Accuracy of Winograd Convolution for Deep Neural Networks, 2020, on why it depends on them).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod, sqrt
from typing import Any

import numpy as np

from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.kernels.cpu.conv.winograd_transforms import Transform

__all__ = ["FILTERS", "LineFilter"]


@dataclass(frozen=True)
class LineFilter:
    """F(m, r) by the points +-p of ``pairs``, 0 where ``zero``, and infinity.

    Products are in this order: 0, the first pair's +p and -p, the second's, ..., infinity.

    Attributes:
        m: outputs, and ``r`` taps.
    """

    m: int
    r: int
    pairs: tuple[float, ...]
    zero: bool

    @property
    def a(self) -> int:
        """Inputs of a tile, and products: m + r - 1."""
        return self.m + self.r - 1

    @cached_property
    def weights(self) -> Array:
        """G, (a, r)."""
        points = [0.0] * self.zero + [sign * p for p in self.pairs for sign in (1, -1)]
        finite = [
            [p**i / prod(p - q for n, q in enumerate(points) if n != j) for i in range(self.r)]
            for j, p in enumerate(points)
        ]
        return np.array([*finite, [0.0] * (self.r - 1) + [1.0]])

    def transform_inputs(self, t: Transform, d: Sequence[Any]) -> list[Any]:
        """B^T d of the a vectors ``d``."""
        squares = [p * p for p in self.pairs]
        every = _polynomial(squares)
        found = [_sum(t, every, d, 0)] if self.zero else []
        for number, point in enumerate(self.pairs):
            others = _polynomial(squares[:number] + squares[number + 1 :])
            low, high = (_sum(t, others, d, first + self.zero) for first in (0, 1))
            found += [t.mad(point, low, high), t.mad(-point, low, high)]
        return [*found, _sum(t, every, d, int(self.zero))]

    def transform_outputs(self, t: Transform, x: Sequence[Any]) -> list[Any]:
        """A^T x of the a vectors ``x``."""
        pairs = [(x[n], x[n + 1]) for n in range(int(self.zero), self.a - 1, 2)]
        sums = [t.add(plus, minus) for plus, minus in pairs]
        differences = [t.sub(plus, minus) for plus, minus in pairs]
        found = []
        for i in range(self.m):
            value = x[0] if self.zero and i == 0 else x[-1] if i == self.m - 1 else None
            for point, term in zip(self.pairs, differences if i % 2 else sums, strict=True):
                power = point**i
                value = t.add(value, term) if power == 1 else t.mad(power, term, value)
            found.append(value)
        return found


def _polynomial(squares: Sequence[float]) -> list[float]:
    """The coefficients of x^0, x^2, x^4, ... of the product of (x^2 - s)."""
    return [float(c) for c in np.poly(squares)[::-1]]


def _sum(t: Transform, coefficients: Sequence[float], d: Sequence[Any], first: int) -> Any:
    """The sum of c[k] * d[first + 2 k]; the last coefficient is 1."""
    value = d[first + 2 * (len(coefficients) - 1)]
    for k, coefficient in enumerate(coefficients[:-1]):
        value = t.mad(coefficient, d[first + 2 * k], value)
    return value


#: By taps, those of fewer products for each output last.
FILTERS = {
    2: (LineFilter(4, 2, (1 / 2, 5 / 4), zero=False),),
    3: (LineFilter(4, 3, (1 / sqrt(2), sqrt(2)), zero=True), LineFilter(6, 3, (1 / 2, 1, 2), zero=True)),
    4: (LineFilter(4, 4, (1 / 3, 4 / 5, 2), zero=False),),
    5: (LineFilter(4, 5, (1 / 2, 1, 2), zero=True),),
}
