"""Convolutions of integers by 3x3, and the tiles by which Winograd's form of them is exact.

Whether sums wrap around, and transformed operands fit their type, depends on the values that the input may
have and on the weights. Both are known in the graph; how a form computes, its kernels know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgepack.compiler.graph.integer_ranges import Range
from edgepack.compiler.graph.rewrite import Array

__all__ = ["EXACT", "ExactTiles", "IntegerBounds", "bounds_of"]

#: Name of an anchor's attribute: the sides of the tiles by which Winograd's form is exact.
EXACT = "exact"


@dataclass(frozen=True)
class IntegerBounds:
    """What values a convolution's integers may have: its input's, with the padding, its weights, its sums."""

    left: Range
    right: Range
    sums: Range


#: The sides of the square tiles by which Winograd's form of a convolution within such bounds is exact.
ExactTiles = Callable[[IntegerBounds], tuple[int, ...]]


def bounds_of(left: Range, weights: Array) -> IntegerBounds:
    """The bounds of a convolution.

    Args:
        left: of the input, and of what windows read outside of it.
        weights: integers, the output channels last.
    """
    whole = weights.astype(np.int64).reshape(-1, weights.shape[-1])
    lower, upper = whole * left[0], whole * left[1]
    least, most = np.minimum(lower, upper).sum(0), np.maximum(lower, upper).sum(0)
    right = int(whole.min(initial=0)), int(whole.max(initial=0))
    return IntegerBounds(left, right, (int(least.min(initial=0)), int(most.max(initial=0))))
