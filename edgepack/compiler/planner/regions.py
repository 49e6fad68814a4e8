"""Ifs and loops of a program: the tensors of the graphs inside them are made tensors of the program.

ONNX's Loop and If say what these mean. A graph's inputs are what the call reads, and what a loop carries from
trip to trip; its outputs are what the call computes, and what is carried on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from edgepack.compiler.planner.program import Call, Program, Value

__all__ = ["Carried", "If", "Loop", "Region", "Stacked", "linked"]


@dataclass(frozen=True)
class Carried:
    """What a loop carries from trip to trip: ``start`` before the first one, then ``place``, in which each
    trip puts its ``result``; behind the last one it is a result of the loop."""

    start: Value
    place: Value
    result: Value


@dataclass(frozen=True)
class Stacked:
    """What each of a loop's trips adds to a result of the loop, ``whole``, of ``parts`` parts.

    Attributes:
        open: how many trips there are is known at run time only: parts that are left are 0, and those that
            would be more are left out.
    """

    part: Value
    whole: Value
    parts: int
    open: bool


@dataclass(frozen=True)
class Loop:
    """A loop.

    Attributes:
        calls: of one trip, in order.
        counter: int64, the number of trips that are done.
        trips: int64, how many there are, where that is known at run time only.
        condition: whether there is a first trip; None: that depends on the number of trips alone.
        goes_on: what a trip computes: whether there is another one; None as above.
        most: trips that there can be; ``bounded`` as in :class:`edgepack.plan.branch.Branch`.
        outer: what the calls read that was computed before.
    """

    calls: list[Call]
    counter: Value
    trips: Value | None
    condition: Value | None
    goes_on: Value | None
    most: int
    bounded: bool
    carried: tuple[Carried, ...]
    stacked: tuple[Stacked, ...]
    outer: tuple[Value, ...]


@dataclass(frozen=True)
class If:
    """An If.

    Attributes:
        condition: bool, one element.
        graphs: the calls of the one graph and of the other one, each with its results; or those of one.
        impossible: then, which one there is not, for no run can take it: 0 the one of a condition that is
            true; -1 elsewhere.
        results: what they become.
        outer: what the calls read that was computed before.
    """

    condition: Value
    graphs: tuple[tuple[list[Call], tuple[Value, ...]], ...]
    results: tuple[Value, ...]
    outer: tuple[Value, ...]
    impossible: int = -1


Region: TypeAlias = Loop | If


def linked(program: Program) -> dict[int, Region]:
    """The Ifs and loops of a program whose kernels are selected, by the ``id`` of their calls, also those
    inside others. Buffers and constants of their graphs become the program's; it is changed in place."""
    found: dict[int, Region] = {}
    for call in program.calls:
        if call.graphs:
            _link(program, call, found)
    return found


def _link(program: Program, call: Call, found: dict[int, Region]) -> None:
    """Adds the region of a call whose values are the program's, and those inside it."""
    assert call.fused.anchor is not None
    about = call.fused.anchor.attributes
    region = _if(program, call, about) if about["operator"] == "If" else _loop(program, call, about)
    found[id(call)] = region
    inside = [region.calls] if isinstance(region, Loop) else [calls for calls, _ in region.graphs]
    for calls in inside:
        for one in calls:
            if one.graphs:
                _link(program, one, found)


def _if(program: Program, call: Call, about: Mapping[str, Any]) -> If:
    condition, *outer = call.arguments
    made = tuple(_taken_in(program, graph, outer) for graph in call.graphs)
    graphs = tuple((graph.calls, outputs) for graph, outputs in zip(call.graphs, made, strict=True))
    impossible = int(about["impossible"])
    return If(condition, graphs, tuple(call.results), tuple(outer), impossible)


def _loop(program: Program, call: Call, about: Mapping[str, Any]) -> Loop:
    (graph,) = call.graphs
    given = iter(call.arguments)
    trips = next(given) if about["trips"] else None
    condition = next(given) if about["condition"] else None
    starts = [next(given) for _ in range(int(about["carried"]))]
    outer = list(given)
    places, wholes = call.results[: len(starts)], call.results[len(starts) :]
    counter = program.new_buffer((), "int64")
    outputs = _taken_in(program, graph, [counter, *places, *outer])
    goes_on = outputs[0] if about["goes_on"] else None
    results = outputs[1:] if about["goes_on"] else outputs
    carried = zip(starts, places, results[: len(starts)], strict=True)
    parts = zip(results[len(starts) :], wholes, strict=True)
    most, room = int(about["most"]), int(about["room"])
    return Loop(
        graph.calls,
        counter,
        trips,
        condition,
        goes_on,
        most,
        bool(about["bounded"]),
        tuple(Carried(*one) for one in carried),
        tuple(Stacked(part, whole, room or most, bool(room)) for part, whole in parts),
        tuple(outer),
    )


def _taken_in(program: Program, graph: Program, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Makes the values of a graph the program's, and its inputs those that are given; its outputs."""
    constants, buffers = len(program.constants), len(program.buffers)
    program.constants += graph.constants
    known: dict[int, tuple[Value, Value]] = {}  # with the key's own, that no other object gets its id

    def value(old: Value) -> Value:
        if id(old) not in known:
            if old.kind == "input":
                given = inputs[old.index]
                new = replace(given, offset=given.offset + old.offset) if old.offset else given
            else:
                new = replace(old, index=old.index + (constants if old.kind == "constant" else buffers))
            known[id(old)] = old, new
        return known[id(old)][1]

    program.buffers += [value(one) for one in graph.buffers]
    for call in graph.calls:
        call.arguments = [value(one) for one in call.arguments]
        call.results = [value(one) for one in call.results]
        call.between = None if call.between is None else value(call.between)
    return tuple(value(one) for one in graph.outputs)
