"""Prefetch of weights: those that a call would wait for are fetched into the caches by the calls before it.

A fully connected layer reads each weight for one multiply-add: memory bounds it, and the layers before it
leave memory idle. So they ask the caches for its weights, a cache line now and then, beside their own. What
is fetched waits in the cache that the cores share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.cpu.conv.cost import idle_bytes
from edgepack.compiler.planner.measured import all_ahead
from edgepack.compiler.planner.program import Call, Prefetch
from edgepack.plan.target import CACHE_LINE_BYTES, CpuTarget

__all__ = ["plan_weight_prefetch"]

#: One in so many bytes of the shared cache may be filled by weights that wait; the rest is for others, and
#: for what is at work.
CACHE_PART = 4

#: Fraction of what memory has time for that is asked of it: what is known of its speed is an estimate, and a
#: call that waits for it loses what the later call gains.
BANDWIDTH_ASKED = 0.6

#: Fewer bytes are not worth a kernel of their own.
LEAST_BYTES = 64 * 1024


@dataclass
class _Wanted:
    """The first ``nbytes`` of a call's weights, which nothing fetches yet.

    Attributes:
        between: bytes that the calls between it and the one looked at read: they push it out of the cache.
    """

    call: Call
    nbytes: int
    between: int = 0


def plan_weight_prefetch(
    calls: Sequence[Call],
    target: CpuTarget,
    part_of: Callable[[Sequence[FusedGroup]], float] = all_ahead,
) -> list[Call]:
    """Decides what calls fetch for later ones (:attr:`Call.prefetch`); returns the calls that do.

    Goes from the last call to the first: weights that take at least twice as long to read as to multiply by
    are wanted of the calls before, each of which takes what memory has time for.

    Args:
        calls: whose implementations are selected.
        part_of: which part of that is fetched, of a call that computes these groups.
    """
    room = target.l3_bytes // CACHE_PART
    made = [call.implementation for call in calls]
    asks = target.prefetches and target.optimize != "size"
    if not asks or sum(m.weights for m in made if m is not None) <= target.l2_bytes:
        return []
    found: list[Call] = []
    wanted: list[_Wanted] = []
    for call, implementation in reversed(list(zip(calls, made, strict=True))):
        assert implementation is not None
        computing = implementation.multiply_adds / implementation.rate
        idle = idle_bytes(computing, implementation.weights, target)
        if implementation.with_prefetch is not None and wanted:
            most = max(wanted, key=lambda w: w.nbytes)
            nbytes = min(int(BANDWIDTH_ASKED * idle), most.nbytes) // CACHE_LINE_BYTES * CACHE_LINE_BYTES
            if nbytes >= LEAST_BYTES:
                most.nbytes -= nbytes
                call.prefetch = Prefetch(most.call, most.nbytes, nbytes)
                found.append(call)
        for one in wanted:
            one.between += implementation.weights
        wanted = [w for w in wanted if w.nbytes >= LEAST_BYTES and w.between <= room]
        late = int(min(-idle, room - sum(w.nbytes for w in wanted)) * part_of(call.fused_groups))
        late = late // CACHE_LINE_BYTES * CACHE_LINE_BYTES
        if -2 * idle >= implementation.weights and late >= LEAST_BYTES:
            wanted.append(_Wanted(call, late))
    return found
