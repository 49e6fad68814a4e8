"""Place buffers with known lifetimes in one arena, as tightly as the most bytes that are live at once allow.

Greedy best fit over several orders, then squeaky wheel optimisation (Joslin and Clements, 1999): the buffer
that ends highest is moved to the front of the order and all are placed again, for a fixed number of rounds.
The result depends on the requests only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgepack.plan.types import ALIGNMENT, Arena, ArenaBuffer

__all__ = ["Request", "aligned", "lower_bound", "plan_arena"]

#: Rounds of improvement; each places every buffer once.
ROUNDS = 300


@dataclass(frozen=True)
class Request:
    """A buffer of ``nbytes`` that is in use from ``first_step`` to ``last_step``, both included."""

    name: str
    nbytes: int
    first_step: int
    last_step: int

    @property
    def size(self) -> int:
        return aligned(self.nbytes)


def aligned(nbytes: int) -> int:
    """Rounded up to the arena's alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def lower_bound(requests: Sequence[Request]) -> tuple[int, int]:
    """(most bytes live at once, the first step at which they are); (0, -1) if there are none."""
    if not requests:
        return 0, -1
    steps = max(r.last_step for r in requests) + 1
    change = [0] * (steps + 1)
    for r in requests:
        change[r.first_step] += r.size
        change[r.last_step + 1] -= r.size
    best, at, live = 0, -1, 0
    for step in range(steps):
        live += change[step]
        if live > best:
            best, at = live, step
    return best, at


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


def _orders(requests: Sequence[Request]) -> list[list[int]]:
    keys: list[Callable[[Request], tuple[int, ...]]] = [
        lambda r: (-r.size, r.first_step),
        lambda r: (r.first_step, -r.size),
        lambda r: (r.first_step - r.last_step, -r.size),
        lambda r: (-r.size * (r.last_step - r.first_step + 1), r.first_step),
    ]
    return [sorted(range(len(requests)), key=lambda i, key=key: (*key(requests[i]), i)) for key in keys]  # type: ignore[misc]


def plan_arena(requests: Sequence[Request], *, threads: int = 1, scratch_bytes: int = 0) -> Arena:
    """The arena for ``requests``.

    Args:
        threads, scratch_bytes: handed through; ``requests`` holds the scratch of so many threads.
    """
    bound, peak = lower_bound(requests)
    best: tuple[list[int], int] | None = None
    sizes, overlaps = [r.size for r in requests], _overlaps(requests)
    for order in _orders(requests):
        offsets, total = _place(sizes, overlaps, order)
        if best is None or total < best[1]:
            best = offsets, total
        for _ in range(ROUNDS):
            if best[1] == bound:
                break
            highest = max(range(len(requests)), key=lambda i: (offsets[i] + sizes[i], -i))
            position = order.index(highest)
            order.insert(position // 2, order.pop(position))
            offsets, total = _place(sizes, overlaps, order)
            if total < best[1]:
                best = offsets, total
    offsets, total = best if best is not None else ([], 0)
    buffers = tuple(
        ArenaBuffer(r.name, offset, r.nbytes, r.first_step, r.last_step)
        for r, offset in sorted(zip(requests, offsets, strict=True), key=lambda p: (p[0].first_step, p[1]))
    )
    return Arena(total, bound, peak, threads, aligned(scratch_bytes), buffers)
