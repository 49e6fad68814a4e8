"""An arena in several memories of a microcontroller, where none of them has room for all of it.

Buffers are placed as in one arena whose offsets are those of the nearest memory, then those of the next, and
so on; none lies across the border of two memories.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from edgepack.compiler.planner.arena import Request, Shared, aligned, plan_arena
from edgepack.plan.types import ALIGNMENT, Arena

__all__ = ["plan_banks"]

#: What names of a request's buffer begin with that has to be in the nearest memory.
SCRATCH = "scratch"


def plan_banks(
    requests: Sequence[Request],
    room: Sequence[int],
    *,
    shared: Sequence[Shared],
    alignment: int,
    threads: int,
    scratch_bytes: int,
) -> Arena:
    """The arena for ``requests``: in one piece where a memory has room for it, or where several have none.

    Args:
        room: of each memory, in bytes, the nearest first; none: there is one, without a limit.
        shared, alignment, threads, scratch_bytes: as for :func:`edgepack.compiler.planner.arena.plan_arena`.
    """

    scratch = frozenset(i for i, one in enumerate(requests) if one.name.startswith(SCRATCH))

    def planned(borders: Sequence[int] = ()) -> Arena:
        return plan_arena(
            requests,
            shared=shared,
            alignment=alignment,
            threads=threads,
            scratch_bytes=scratch_bytes,
            borders=borders,
            first=scratch if borders else frozenset(),
        )

    whole = planned()
    if not room or whole.nbytes <= max(room) or len(room) == 1:
        return whole
    ends = list(accumulate(nbytes // ALIGNMENT * ALIGNMENT for nbytes in room))
    return _closed_up(planned(ends[:-1]), ends) or whole


def _closed_up(arena: Arena, ends: Sequence[int]) -> Arena | None:
    """An arena whose memories end at these offsets, without what is not used of each; None where the last one
    has no room, one is enough, or scratch is beyond the nearest."""
    if arena.nbytes > ends[-1]:
        return None
    banks: list[int] = []
    buffers = []
    for begin, end in pairwise([0, *ends]):
        inside = [one for one in arena.buffers if begin <= one.offset < end or one.offset == end == ends[-1]]
        if banks and any(one.name.startswith(SCRATCH) for one in inside):
            return None
        moved = sum(banks) - begin
        buffers += [replace(one, offset=one.offset + moved) for one in inside]
        banks.append(aligned(max((one.offset + one.nbytes for one in inside), default=begin) - begin))
    while banks and not banks[-1]:
        banks.pop()
    if len(banks) < 2 or not banks[0]:
        return None
    buffers.sort(key=lambda one: (one.first_step, one.offset))
    return replace(arena, nbytes=sum(banks), buffers=tuple(buffers), banks=tuple(banks))
