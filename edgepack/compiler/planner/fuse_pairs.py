"""Pairs of calls that one kernel computes, so that what lies between them stays in the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from edgepack.compiler.planner.program import Call, Program

__all__ = ["fuse_pairs", "possible_pairs", "take_pairs_apart"]


def possible_pairs(program: Program) -> Iterator[tuple[Call, Call, Call]]:
    """The first and the second of two calls, of which only the second reads what the first computes, and one
    for both, without kernels."""
    uses = program.use_counts()
    producers = program.producers()
    for call in list(program.calls):
        before = producers.get(id(call.arguments[0])) if call.arguments else None
        if before is None or uses[id(call.arguments[0])] != 1 or _is_several(before) or _is_several(call):
            continue
        both = Call(
            call.fused,
            [*before.arguments, *call.arguments[1:]],
            call.results,
            nodes=tuple(sorted({*before.nodes, *call.nodes})),
            first=before.fused,
            between=call.arguments[0],
        )
        yield before, call, both


def fuse_pairs(program: Program, select: Callable[[Call], bool]) -> None:
    """Makes one call of two where only the second reads what the first computes and a kernel does both.

    Args:
        program: changed in place.
        select: selects the kernels of a call with a :attr:`Call.first`; False if no rule serves the pair.
    """
    for before, call, both in possible_pairs(program):
        if select(both):
            program.calls[program.calls.index(call)] = both
            program.calls.remove(before)


def take_pairs_apart(program: Program, select: Callable[[Call], None]) -> Program:
    """The program with two calls for each that is a pair.

    Args:
        select: selects a call's kernels.
    """
    calls = []
    for call in program.calls:
        if call.first is None:
            calls.append(call)
            continue
        assert call.between is not None
        count = len(call.first.function.params) - call.first.outputs
        parts = [
            Call(call.first, call.arguments[:count], [call.between], nodes=call.nodes),
            Call(call.fused, [call.between, *call.arguments[count:]], call.results, nodes=call.nodes),
        ]
        for part in parts:
            select(part)
        calls += parts
    return replace(program, calls=calls)


def _is_several(call: Call) -> bool:
    """Whether a call is a pair or a cascade."""
    return call.first is not None or (call.implementation is not None and bool(call.implementation.cascade))
