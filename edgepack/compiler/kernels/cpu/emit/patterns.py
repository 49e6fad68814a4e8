"""Positions that differ between lanes by known distances: x // 2 for neighbouring x is 0, 0, 1, 1, ...

They come of dividing positions whose remainder is known, and stay known under arithmetic with each other and
with affine positions. What is read at them is loaded as whole vectors and shuffled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables, constant
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.values import Pattern, Value

__all__ = ["Loaded", "combined_patterns", "flat_pattern", "load_pattern", "pattern_of"]

Expr = Any

#: Vectors that are loaded for one, at most.
MOST_VECTORS = 4


def pattern_of(x: Any, lanes: int) -> Pattern | None:
    """An affine position, or a value that is one, lane by lane; None for what is read or computed."""
    if isinstance(x, Affine):
        step = x.lane_step
        return Pattern(Affine(x.constant, x.terms), tuple(step * lane for lane in range(lanes)))
    return x.pattern if isinstance(x, Value) else None


def combined_patterns(
    name: str, a: Pattern | None, b: Pattern | None, variables: IndexVariables
) -> Pattern | None:
    """What an operation makes of two patterns: sums, differences, multiples, and what is greater or less in
    all lanes; None for all else."""
    if a is None or b is None:
        return None
    pairs = list(zip(a.offsets, b.offsets, strict=True))
    if name in {"add", "sub"}:
        sign = 1 if name == "add" else -1
        return Pattern(a.base + b.base * sign, tuple(m + n * sign for m, n in pairs))
    if name == "mul":
        factor, other = (a, b) if a.base.known and len(set(a.offsets)) == 1 else (b, a)
        if not factor.base.known or len(set(factor.offsets)) > 1:
            return None
        times = factor.base.constant + factor.offsets[0]
        return Pattern(other.base * times, tuple(n * times for n in other.offsets))
    if name in {"max", "min"}:
        low, high = variables.bounds(a.base - b.base)
        if all(low + m - n >= 0 for m, n in pairs):
            return a if name == "max" else b
        if all(high + m - n <= 0 for m, n in pairs):
            return b if name == "max" else a
    return None


def flat_pattern(shape: Sequence[Any], at: Sequence[Any], lanes: int) -> Pattern | None:
    """The flat address of an element of a buffer; None where a position of it is not known."""
    base, offsets = constant(0), [0] * lanes
    for dimension, position in zip(shape, at, strict=True):
        own = pattern_of(position, lanes)
        if own is None:
            return None
        base = base * int(dimension) + own.base
        offsets = [m * int(dimension) + n for m, n in zip(offsets, own.offsets, strict=True)]
    return Pattern(base, tuple(offsets))


@dataclass(frozen=True)
class Loaded:
    """Neighbouring elements in vectors, from a position on."""

    begin: Affine
    vectors: tuple[Expr, ...]
    elements: int

    def shuffled(self, base: Affine, offsets: Sequence[int]) -> Expr | None:
        """The elements at ``base`` and these offsets; None where some of them are not here."""
        if base.terms != self.begin.terms:
            return None
        at = [base.constant + offset - self.begin.constant for offset in offsets]
        return tirx.Shuffle(self.vectors, at) if min(at) >= 0 and max(at) < self.elements else None


def load_pattern(
    e: Emitter,
    array: Any,
    elements: int,
    pattern: Pattern,
    variables: IndexVariables,
    known: list[Loaded],
) -> Expr | None:
    """The elements at a pattern of addresses, by loads of what lies between the first and the last of them.

    Args:
        elements: of the array, beyond which nothing is read.
        known: what was loaded of the array before, to which what is loaded here is added.

    Returns:
        None where they lie too far apart.
    """
    lanes = len(pattern.offsets)
    first, last = min(pattern.offsets), max(pattern.offsets)
    span = last - first + 1
    if span > MOST_VECTORS * lanes:
        return None
    for loaded in known:
        if (found := loaded.shuffled(pattern.base, pattern.offsets)) is not None:
            return found
    width = lanes
    while width // 2 >= span:
        width //= 2
    whole = -(-span // width) * width
    low, high = variables.bounds(pattern.base)
    if high + first + whole <= elements:
        begin, widths = first, [width] * (whole // width)
    elif low + last + 1 - whole >= 0:
        begin, widths = last + 1 - whole, [width] * (whole // width)
    else:
        begin, widths = first, [width] * (span // width) + [span % width] * (span % width > 0)
    vectors, at = [], begin
    for own in widths:
        vectors.append(e.let(e.vload(array, variables.scalar(pattern.base.plus(at)), own)))
        at += own
    vectors *= -(-lanes // sum(widths))  # a shuffle has no more lanes than what it is made of
    known.append(Loaded(pattern.base.plus(begin), tuple(vectors), sum(widths)))
    return known[-1].shuffled(pattern.base, pattern.offsets)
