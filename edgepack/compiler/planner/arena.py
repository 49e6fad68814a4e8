"""Place buffers with known lifetimes in one arena, as tightly as the most bytes that are live at once allow.

Greedy best fit over several orders (first fit where buffers may lie over each other), then squeaky wheel
optimisation (Joslin and Clements, 1999): the buffer that ends highest is moved to the front of the order and
all are placed again, for a fixed number of rounds. The result depends on the requests only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from edgepack.plan.types import ALIGNMENT, Arena, ArenaBuffer

__all__ = ["Request", "Shared", "aligned", "lower_bound", "plan_arena"]

#: Rounds of improvement; each places every buffer once.
ROUNDS = 300


@dataclass(frozen=True)
class Request:
    """A buffer of ``nbytes`` that is in use from ``first_step`` to ``last_step``, both included."""

    name: str
    nbytes: int
    first_step: int
    last_step: int


@dataclass(frozen=True)
class Shared:
    """Two requests, the last use of one being the first one of the other, that may lie over each other.

    Attributes:
        read: index of the one that is read in that step, and ``written`` of the one that is written.
        most: bytes from the first one's beginning to the other's, at most; None: they begin at one place.
    """

    read: int
    written: int
    most: int | None

    def saved(self, sizes: Sequence[int]) -> int:
        """Bytes that both have in common at most."""
        read, written = sizes[self.read], sizes[self.written]
        return max(0, read + written - max(written, read + max(0, -(self.most or 0))))


def aligned(nbytes: int, alignment: int = ALIGNMENT) -> int:
    """Rounded up."""
    return -(-nbytes // alignment) * alignment


def lower_bound(
    requests: Sequence[Request], shared: Sequence[Shared] = (), alignment: int = ALIGNMENT
) -> tuple[int, int]:
    """(most bytes live at once, the first step at which they are); (0, -1) if there are none."""
    if not requests:
        return 0, -1
    sizes = [aligned(r.nbytes, alignment) for r in requests]
    live = [0] * (max(r.last_step for r in requests) + 1)
    for r, size in zip(requests, sizes, strict=True):
        for step in range(r.first_step, r.last_step + 1):
            live[step] += size
    saved: dict[int, int] = {}  # by what is written
    for pair in shared:
        saved[pair.written] = saved.get(pair.written, 0) + pair.saved(sizes)
    for written, common in saved.items():
        live[requests[written].first_step] -= min(common, sizes[written])
    best = max(live)
    return (best, live.index(best)) if best else (0, -1)


def _overlaps(requests: Sequence[Request]) -> list[list[int]]:
    """For each request those that are in use at the same time, itself left out."""
    found: list[list[int]] = [[] for _ in requests]
    live: list[int] = []
    for i in sorted(range(len(requests)), key=lambda i: requests[i].first_step):
        live = [j for j in live if requests[j].last_step >= requests[i].first_step]
        for j in live:
            found[i].append(j)
            found[j].append(i)
        live.append(i)
    return found


def _place(
    sizes: Sequence[int], overlaps: Sequence[Sequence[int]], order: Sequence[int]
) -> tuple[list[int], int]:
    """Offsets of the requests, and the arena's size. Each goes into the smallest gap that holds it."""
    offsets = [-1] * len(sizes)
    total = 0
    for i in order:
        size = sizes[i]
        taken = sorted((offsets[j], offsets[j] + sizes[j]) for j in overlaps[i] if offsets[j] >= 0)
        best_gap, best_at, cursor = -1, -1, 0
        for begin, end in taken:
            gap = begin - cursor
            if gap >= size and (best_gap < 0 or gap < best_gap):
                best_gap, best_at = gap, cursor
            cursor = max(cursor, end)
        offsets[i] = best_at if best_at >= 0 else cursor
        total = max(total, offsets[i] + size)
    return offsets, total


def _place_over(
    sizes: Sequence[int],
    overlaps: Sequence[Sequence[int]],
    shared: Mapping[tuple[int, int], Shared],
    alignment: int,
    order: Sequence[int],
    borders: Sequence[int] = (),
) -> tuple[list[int], int]:
    """As :func:`_place`, where some buffers may lie over others: each goes to the lowest place.

    Args:
        shared: by what is read and what is written.
        borders: offsets that no buffer may lie across, multiples of the alignment.
    """
    offsets = [-1] * len(sizes)
    total = 0
    for i in order:
        refused: list[tuple[int, int, int]] = []  # between two places, but at one
        refused += [(border - sizes[i], border, -1) for border in borders]
        for j in overlaps[i]:
            if offsets[j] < 0:
                continue
            begin, end, but = offsets[j] - sizes[i], offsets[j] + sizes[j], -1
            if (over := shared.get((j, i))) is not None:  # i is written
                but = offsets[j] if over.most is None else -1
                begin = begin if over.most is None else max(begin, offsets[j] + over.most)
            elif (over := shared.get((i, j))) is not None:  # i is read
                but = offsets[j] if over.most is None else -1
                end = end if over.most is None else min(end, offsets[j] - over.most)
            refused.append((begin, end, but))
        places = {0, *(aligned(end, alignment) for _, end, _ in refused), *(but for *_, but in refused)}
        offsets[i] = min(
            at
            for at in places
            if at >= 0 and all(at <= begin or at >= end or at == but for begin, end, but in refused)
        )
        total = max(total, offsets[i] + sizes[i])
    return offsets, total


def _orders(requests: Sequence[Request], sizes: Sequence[int], *, over: bool) -> list[list[int]]:
    """Orders in which they are placed; ``over``: some may lie over others, and each below what it is made
    of."""
    keys: list[Callable[[Request, int], tuple[int, ...]]] = [
        lambda r, size: (-size, r.first_step),
        lambda r, size: (r.first_step, -size),
        lambda r, size: (r.first_step - r.last_step, -size),
        lambda r, size: (-size * (r.last_step - r.first_step + 1), r.first_step),
    ]
    if over:
        keys += [lambda r, size: (-r.last_step, -size), lambda r, size: (-r.first_step, size)]
    every = range(len(requests))
    return [sorted(every, key=lambda i, key=key: (*key(requests[i], sizes[i]), i)) for key in keys]  # type: ignore[misc]


def plan_arena(
    requests: Sequence[Request],
    *,
    shared: Sequence[Shared] = (),
    alignment: int = ALIGNMENT,
    threads: int = 1,
    scratch_bytes: int = 0,
    borders: Sequence[int] = (),
    first: frozenset[int] = frozenset(),
) -> Arena:
    """The arena for ``requests``.

    Args:
        shared: which of them may lie over each other.
        alignment: of each buffer, in bytes.
        threads, scratch_bytes: handed through; ``requests`` holds the scratch of so many threads.
        borders: offsets that no buffer may lie across, multiples of the alignment.
        first: indices of those that are placed before the others, so below them.
    """
    bound, peak = lower_bound(requests, shared, alignment)
    best: tuple[list[int], int] | None = None
    sizes, overlaps = [aligned(r.nbytes, alignment) for r in requests], _overlaps(requests)
    pairs = {(pair.read, pair.written): pair for pair in shared}

    def placed(order: Sequence[int]) -> tuple[list[int], int]:
        if pairs or borders:
            before = sorted(order, key=lambda i: i not in first)
            return _place_over(sizes, overlaps, pairs, alignment, before, borders)
        return _place(sizes, overlaps, order)

    for order in _orders(requests, sizes, over=bool(pairs)):
        offsets, total = placed(order)
        if best is None or total < best[1]:
            best = offsets, total
        for _ in range(ROUNDS):
            if best[1] == bound:
                break
            highest = max(range(len(requests)), key=lambda i: (offsets[i] + sizes[i], -i))
            position = order.index(highest)
            order.insert(position // 2, order.pop(position))
            offsets, total = placed(order)
            if total < best[1]:
                best = offsets, total
    offsets, total = best if best is not None else ([], 0)
    buffers = tuple(
        ArenaBuffer(r.name, offset, r.nbytes, r.first_step, r.last_step)
        for r, offset in sorted(zip(requests, offsets, strict=True), key=lambda p: (p[0].first_step, p[1]))
    )
    return Arena(total, bound, peak, threads, aligned(scratch_bytes), buffers)
