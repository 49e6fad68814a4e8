"""Pairs of calls that are done by one kernel, so that what lies between them stays in the cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from edgepack.compiler.planner.program import Call, Program

__all__ = ["chain"]


def chain(program: Program, serves: Callable[[Call], bool]) -> None:
    """Makes one call of two where only the second reads what the first computes and a kernel does both.

    Args:
        program: changed in place.
        serves: chooses the kernels of a call with ``before``; False if there are none.
    """
    uses = Counter(id(v) for call in program.calls for v in call.arguments)
    uses.update(id(v) for v in program.outputs)
    producers = {id(call.results[0]): call for call in program.calls if len(call.results) == 1}
    for call in list(program.calls):
        before = producers.get(id(call.arguments[0])) if call.arguments else None
        if before is None or uses[id(call.arguments[0])] != 1:
            continue
        both = Call(
            call.group,
            [*before.arguments, *call.arguments[1:]],
            call.results,
            nodes=tuple(sorted({*before.nodes, *call.nodes})),
            before=before.group,
        )
        if serves(both):
            program.calls[program.calls.index(call)] = both
            program.calls.remove(before)
