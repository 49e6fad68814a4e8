"""Memory at work while the cores multiply: weights that a call would wait for are fetched by those before it.

A fully connected layer reads each weight for one multiply-add: memory bounds it, and the layers before it
leave memory idle. So they ask the caches for its weights, a cache line now and then, beside their own. What
is fetched waits in the cache that the cores share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgepack.compiler.kernels.cpu.conv.cost import idle_bytes
from edgepack.compiler.planner.program import Ahead, Call
from edgepack.plan.target import CpuTarget

__all__ = ["fetch_ahead"]

#: Part of the shared cache that waiting weights may fill; the rest is for others, and for what is at work.
PART = 4

#: Fraction of what memory has time for that is asked of it: what is known of its speed is an estimate, and a
#: call that waits for it loses what the later call gains.
ASKED = 0.6

#: Fewer bytes are not worth a kernel of their own.
LEAST = 64 * 1024

#: Bytes of a cache line; what is fetched is a multiple.
LINE = 64


@dataclass
class _Wanted:
    """The first ``nbytes`` of a call's weights, which nothing fetches yet.

    Attributes:
        between: bytes that the calls between it and the one looked at read: they push it out of the cache.
    """

    call: Call
    nbytes: int
    between: int = 0


def fetch_ahead(calls: Sequence[Call], target: CpuTarget) -> list[Call]:
    """Decides what calls fetch for later ones (:attr:`Call.ahead`); returns the calls that do.

    Goes from the last call to the first: weights that take at least twice as long to read as to multiply by
    are wanted of the calls before, each of which takes what memory has time for.

    Args:
        calls: whose implementations are chosen.
    """
    room = target.l3_bytes // PART
    made = [call.implementation for call in calls]
    if target.optimize == "size" or sum(m.weights for m in made if m is not None) <= target.l2_bytes:
        return []
    found: list[Call] = []
    wanted: list[_Wanted] = []
    for call, implementation in reversed(list(zip(calls, made, strict=True))):
        assert implementation is not None
        idle = idle_bytes(implementation.multiply_adds, implementation.weights, target)
        if implementation.with_prefetch is not None and wanted:
            most = max(wanted, key=lambda w: w.nbytes)
            nbytes = min(int(ASKED * idle), most.nbytes) // LINE * LINE
            if nbytes >= LEAST:
                most.nbytes -= nbytes
                call.ahead = Ahead(most.call, most.nbytes, nbytes)
                found.append(call)
        for one in wanted:
            one.between += implementation.weights
        wanted = [w for w in wanted if w.nbytes >= LEAST and w.between <= room]
        late = min(-idle, room - sum(w.nbytes for w in wanted)) // LINE * LINE
        if -2 * idle >= implementation.weights and late >= LEAST:
            wanted.append(_Wanted(call, late))
    return found
