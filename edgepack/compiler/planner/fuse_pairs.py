"""Pairs of calls that one kernel computes, so that what lies between them stays in the cache."""

from __future__ import annotations

from collections.abc import Callable

from edgepack.compiler.planner.program import Call, Program

__all__ = ["fuse_pairs"]


def fuse_pairs(program: Program, select: Callable[[Call], bool]) -> None:
    """Makes one call of two where only the second reads what the first computes and a kernel does both.

    Args:
        program: changed in place.
        select: selects the kernels of a call with a :attr:`Call.first`; False if no rule serves the pair.
    """
    uses = program.use_counts()
    producers = program.producers()
    for call in list(program.calls):
        before = producers.get(id(call.arguments[0])) if call.arguments else None
        if before is None or uses[id(call.arguments[0])] != 1:
            continue
        both = Call(
            call.fused,
            [*before.arguments, *call.arguments[1:]],
            call.results,
            nodes=tuple(sorted({*before.nodes, *call.nodes})),
            first=before.fused,
        )
        if select(both):
            program.calls[program.calls.index(call)] = both
            program.calls.remove(before)
