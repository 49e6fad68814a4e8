"""Positions as a kernel's generator knows them: a constant, plus multiples of loop variables, plus a multiple
of the vector lane. What stays affine folds while generating, and shows which loads are contiguous."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.indices import index

__all__ = ["Affine", "IndexVariables", "constant"]

Expr = Any

#: Bounds of an int32 of which nothing is known.
INT32 = (-(2**31), 2**31 - 1)


@dataclass(frozen=True)
class Affine:
    """``constant + sum(coefficient * variable) + lane_step * lane`` in int32.

    Attributes:
        terms: (name of a variable, coefficient other than 0), sorted by name.
        lane_step: difference between neighbouring lanes; 0 where all lanes have the same position.
    """

    constant: int
    terms: tuple[tuple[str, int], ...] = ()
    lane_step: int = 0

    def __add__(self, other: Affine) -> Affine:
        total = dict(self.terms)
        for name, coefficient in other.terms:
            total[name] = total.get(name, 0) + coefficient
        return Affine(
            self.constant + other.constant,
            tuple(sorted((n, c) for n, c in total.items() if c)),
            self.lane_step + other.lane_step,
        )

    def __mul__(self, factor: int) -> Affine:
        if factor == 0:
            return Affine(0)
        return Affine(
            self.constant * factor, tuple((n, c * factor) for n, c in self.terms), self.lane_step * factor
        )

    def __sub__(self, other: Affine) -> Affine:
        return self + other * -1

    def plus(self, value: int) -> Affine:
        return Affine(self.constant + value, self.terms, self.lane_step)

    def coefficient(self, variable: str) -> int:
        return dict(self.terms).get(variable, 0)

    @property
    def known(self) -> bool:
        """Whether it is a number."""
        return not self.terms and not self.lane_step

    @property
    def uniform(self) -> bool:
        """Whether all lanes have the same position."""
        return not self.lane_step


def constant(value: int) -> Affine:
    """A position that is a number."""
    return Affine(value)


@dataclass
class IndexVariables:
    """The variables that positions are made of: their TIR expressions and their least and largest values."""

    exprs: dict[str, Expr] = field(default_factory=dict)
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)

    def child(self) -> IndexVariables:
        """A scope inside of this one."""
        return IndexVariables(dict(self.exprs), dict(self.ranges))

    def add(self, name: str, expr: Expr, low: int = INT32[0], high: int = INT32[1]) -> Affine:
        """The position ``expr``, an int32 scalar of at least ``low`` and at most ``high``."""
        if low == high:
            return Affine(low)
        self.exprs[name], self.ranges[name] = expr, (low, high)
        return Affine(0, ((name, 1),))

    def bounds(self, x: Affine, lanes: int = 1) -> tuple[int, int]:
        """Least and largest value over all lanes."""
        low = high = x.constant
        parts = [(c, self.ranges[n]) for n, c in x.terms] + [(x.lane_step, (0, lanes - 1))]
        for c, (least, largest) in parts:
            low += min(c * least, c * largest)
            high += max(c * least, c * largest)
        return low, high

    def scalar(self, x: Affine) -> Expr:
        """The first lane's position as an int32 expression."""
        total: Expr = None
        for name, c in x.terms:
            if name not in self.exprs:
                raise RuleError(f"{name} is not known here")
            part = self.exprs[name] if c == 1 else self.exprs[name] * index(c)
            total = part if total is None else total + part
        if total is None:
            return index(x.constant)
        return total + index(x.constant) if x.constant else total

    def divide(self, x: Affine, divisor: int) -> tuple[Affine, Affine]:
        """(q, r) with x = q * divisor + r where r takes the parts that the divisor does not divide."""
        whole = Affine(
            x.constant // divisor,
            tuple((n, c // divisor) for n, c in x.terms if c % divisor == 0),
            x.lane_step // divisor if x.lane_step % divisor == 0 else 0,
        )
        return whole, x - whole * divisor
