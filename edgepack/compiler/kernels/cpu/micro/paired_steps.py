"""The loop of micro-kernels that take two steps of the reduction at a time."""

from __future__ import annotations

from collections.abc import Callable
from math import lcm

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index
from edgepack.compiler.kernels.cpu.emit.register_tile import Steps

__all__ = ["in_pairs"]

#: Iterations of a loop that LLVM would unroll whole, and mix with each other.
SHORT = 8


def in_pairs(e: Emitter, steps: Steps, body: Callable[[Index, int], None]) -> None:
    """``body(first, count)`` for all steps, two at a time, and for a last one.

    Args:
        steps: an iteration of the loop has an even number of times their ``unroll``.
    """
    depth, unroll = steps.depth, lcm(2, steps.unroll)

    def iteration(k: Index) -> None:
        for first in range(0, unroll, steps.unroll):
            if steps.prefetch is not None:
                steps.prefetch(k * unroll + first)
        for first in range(0, unroll, 2):
            body(k * unroll + first, 2)

    count = depth // unroll
    if 1 < count <= SHORT // 2 and e.target is not None and e.target.in_order:
        e.no_unroll_loop(count, iteration)
    else:
        e.loop(0, e.opaque_bound(count) if 1 < count <= SHORT else count, iteration)
    for first in range(count * unroll, depth, 2):
        body(first, min(2, depth - first))
