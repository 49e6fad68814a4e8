"""Tables of positions whose elements are known while generating: of a resize, of a gather by constants.

A vector that begins at a known position of a row then reads lanes at known distances (``patterns.py``). So
does one in a loop, where the table repeats itself: the same distances, moved on by the same number each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables
from edgepack.compiler.kernels.cpu.emit.values import Pattern

__all__ = ["LONGEST_PERIOD", "Period", "looked_up", "periods"]

#: Vectors of the longest period that is looked for.
LONGEST_PERIOD = 16

#: Vectors of a row whose code is written out, at most.
MOST_WRITTEN = 64


@dataclass(frozen=True)
class Period:
    """Neighbouring vectors of a row: ``times`` times the ``vectors`` vectors from number ``first`` on."""

    first: int
    vectors: int
    times: int


def looked_up(
    table: Sequence[int], at: Affine, variables: IndexVariables, lanes: int
) -> Affine | Pattern | None:
    """What a table has at a position; None where that is not known.

    Args:
        at: a number, or the lanes from one on; or these and a multiple of one variable, where each step of
            that moves all lanes on by the same number.
    """
    low, high = variables.bounds(at, lanes)
    if low < 0 or high >= len(table) or len(at.terms) > 1:
        return None
    name, step = at.terms[0] if at.terms else ("", 0)
    begin, end = variables.ranges[name] if name else (0, 0)
    rows = [
        [table[at.constant + step * i + at.lane_step * lane] for lane in range(lanes if at.lane_step else 1)]
        for i in range(begin, end + 1)
    ]
    first = rows[0]
    moved = rows[1][0] - first[0] if name else 0
    if any([n + moved * i for n in first] != row for i, row in enumerate(rows)):
        return None
    base = Affine(first[0] - moved * begin, ((name, moved),) if moved else ())
    apart = first[1] - first[0] if len(first) > 1 else 0
    if first == [first[0] + apart * lane for lane in range(len(first))]:
        return Affine(base.constant, base.terms, apart)
    return Pattern(base, tuple(n - first[0] for n in first))


def periods(tables: Sequence[Sequence[int]], count: int, lanes: int, longest_period: int) -> list[Period]:
    """How ``count`` vectors of a row are emitted, so that what they look up is known; empty where that would
    be too much code.

    Args:
        tables: what the row's elements look up, in order, each from the first vector on.
        longest_period: vectors that an iteration of a loop may have.
    """
    rows = [[list(table[v * lanes : (v + 1) * lanes]) for table in tables] for v in range(count)]
    found: list[Period] = []
    at = 0
    while at < count:
        best = Period(at, 1, 1)
        for vectors in range(1, longest_period + 1):
            times = _repeated(rows[at:], vectors)
            if (times - 1) * vectors > (best.times - 1) * best.vectors:
                best = Period(at, vectors, times)
        found.append(best)
        at += best.vectors * best.times
    return found if sum(period.vectors for period in found) <= MOST_WRITTEN else []


def _repeated(rows: Sequence[Sequence[Sequence[int]]], period: int) -> int:
    """How many times the first ``period`` vectors come one after the other, each table moved on by a number
    of its own."""
    if len(rows) < 2 * period:
        return 1
    moved = [b[0] - a[0] for a, b in zip(rows[0], rows[period], strict=True)]
    times = 1
    while (times + 1) * period <= len(rows):
        before, now = (rows[n * period : (n + 1) * period] for n in (times - 1, times))
        for old, new in zip(before, now, strict=True):
            if any([n + m for n in a] != b for a, b, m in zip(old, new, moved, strict=True)):
                return times
        times += 1
    return times
