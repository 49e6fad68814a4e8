"""Sizes that are known at run time only, as sums of whole multiples of numbers with bounds: of the number of
a trip, and of how many trips a loop made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Dim", "Extent", "Symbol", "least", "minus", "most", "plus", "times"]


@dataclass(frozen=True)
class Symbol:
    """A number that is known at run time only.

    Attributes:
        name: of the tensor that holds it, int64 of rank 0.
        least: that it can be.
        most: that it can be.
    """

    name: str
    least: int
    most: int


@dataclass(frozen=True)
class Extent:
    """``const`` and multiples of symbols, at least one of them; made by :func:`plus` and its like.

    Attributes:
        terms: each symbol once, by name, with its factor, which is not 0.
    """

    terms: tuple[tuple[Symbol, int], ...]
    const: int


#: A size that is known, or one that is not.
Dim: TypeAlias = "int | Extent"


def _made(terms: dict[Symbol, int], const: int) -> Dim:
    kept = sorted(((s, factor) for s, factor in terms.items() if factor), key=lambda one: one[0].name)
    return Extent(tuple(kept), const) if kept else const


def plus(*dims: Dim) -> Dim:
    """The sum."""
    terms: dict[Symbol, int] = {}
    const = 0
    for dim in dims:
        const += dim if isinstance(dim, int) else dim.const
        for symbol, factor in () if isinstance(dim, int) else dim.terms:
            terms[symbol] = terms.get(symbol, 0) + factor
    return _made(terms, const)


def times(dim: Dim, factor: int) -> Dim:
    """A multiple."""
    if isinstance(dim, int):
        return dim * factor
    return _made({symbol: own * factor for symbol, own in dim.terms}, dim.const * factor)


def minus(one: Dim, other: Dim) -> Dim:
    """The difference."""
    return plus(one, times(other, -1))


def most(dim: Dim) -> int:
    """The largest number that it can be."""
    if isinstance(dim, int):
        return dim
    return dim.const + sum(factor * (s.most if factor > 0 else s.least) for s, factor in dim.terms)


def least(dim: Dim) -> int:
    """The smallest number that it can be."""
    return -most(times(dim, -1))


def sizes(dims: Sequence[Dim]) -> bool:
    """Whether some of them are known at run time only."""
    return any(isinstance(dim, Extent) for dim in dims)
