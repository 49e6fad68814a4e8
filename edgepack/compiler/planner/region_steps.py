"""The steps of Ifs and loops: those of the graphs inside them, and the branches between them.

An If is ``unless`` (to the second graph), the first graph's steps, ``always`` (behind it), the second one's;
of one that has a graph that no run can take, ``require`` or ``forbid`` and the other graph's steps.
A loop is ``begin`` (behind it), a trip's steps, ``again`` (to the first of these). What is carried from trip
to trip has one place; a trip's result is computed there where nothing of that trip reads the old value any
more, and copied there otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, Protocol

from edgepack.compiler.kernels.contract import Implementation
from edgepack.compiler.kernels.cpu.generic.copy import clear, stack
from edgepack.compiler.planner.arena import Request
from edgepack.compiler.planner.program import Call, Value
from edgepack.compiler.planner.regions import Carried, If, Loop, Region
from edgepack.compiler.planner.select import KernelSelector
from edgepack.plan.branch import Branch, BranchKind
from edgepack.plan.types import AnyStep, Argument, Step

__all__ = ["RegionSteps"]


class Steps(Protocol):
    """What steps are added to: :class:`edgepack.compiler.planner.layout.Layout`, which says what it does."""

    cpu: KernelSelector
    steps: list[AnyStep]
    requests: dict[Literal["gpu", "cpu"], list[Request]]

    def on(self, side: Literal["cpu"], value: Value) -> Argument: ...

    def nbytes(self, value: Value) -> int: ...

    def alias(self, value: Value, place: Argument) -> None: ...

    def touch(self, argument: Argument, step: int) -> None: ...

    def numbered(self, side: Literal["cpu"], name: str) -> str: ...

    def request(self, side: Literal["cpu"], name: str, nbytes: int) -> Argument: ...

    def names(self, nodes: Sequence[int]) -> tuple[str, ...]: ...

    def add(self, step: AnyStep, arguments: Sequence[Argument]) -> None: ...

    def copy(self, source: Argument, target: Argument, nbytes: int) -> None: ...

    def kernel(
        self, implementation: Implementation, bytes_moved: int, arguments: tuple[Argument, ...]
    ) -> None: ...

    def host_steps(self, call: Call) -> None: ...


class RegionSteps:
    """Adds the steps of regions to a layout. Their kernels are the CPU's.

    Args:
        regions: by the ``id`` of their calls.
    """

    def __init__(self, layout: Steps, regions: Mapping[int, Region]) -> None:
        self.layout, self.regions = layout, regions

    def add(self, call: Call) -> None:
        """The steps of an If or a loop."""
        region = self.regions[id(call)]
        for value in region.outer:  # what a branch leaves out must not bring them from the GPU
            self._place(value)
        if isinstance(region, If):
            self._if(call, region)
        else:
            self._loop(call, region)

    def _place(self, value: Value) -> Argument:
        return self.layout.on("cpu", value)

    # If ------------------------------------------------------------------------------------------------

    def _if(self, call: Call, region: If) -> None:
        layout = self.layout
        places = [self._place(value) for value in region.results]
        kind: BranchKind = "unless"
        if region.impossible >= 0:
            kind = "forbid" if region.impossible == 0 else "require"
        unless = always = self._branch(Branch(kind, condition=True), call, [self._place(region.condition)])
        for number, (calls, results) in enumerate(region.graphs):
            if number:
                always = self._branch(Branch("always"), call, [])
                self._aim(unless, len(layout.steps))
            aliased = self._aliased(calls, results, places)
            self._calls(calls)
            for result, place, there in zip(results, places, aliased, strict=True):
                if not there:
                    layout.copy(self._place(result), place, layout.nbytes(result))
        self._aim(always, len(layout.steps))
        for place in places:
            layout.touch(place, len(layout.steps) - 1)

    def _aliased(
        self, calls: Sequence[Call], results: Sequence[Value], places: Sequence[Argument]
    ) -> list[bool]:
        """Has results that the calls compute computed in their places; for each whether it is."""
        taken: set[int] = set()
        there = []
        for result, place in zip(results, places, strict=True):
            made = result.index not in taken and _computed_alone(calls, result)
            there.append(made)
            if made:
                taken.add(result.index)
                self.layout.alias(result, place)
        return there

    # Loop ----------------------------------------------------------------------------------------------

    def _loop(self, call: Call, region: Loop) -> None:
        layout = self.layout
        first = len(layout.steps)
        places = [self._place(one.place) for one in region.carried]
        wholes = [self._place(one.whole) for one in region.stacked]
        counter = self._place(region.counter)
        carried = list(zip(region.carried, places, strict=True))
        for stacked, whole in zip(region.stacked, wholes, strict=True):
            if stacked.open:
                nbytes = layout.nbytes(stacked.whole)
                layout.kernel(clear(nbytes), nbytes, (whole,))
        for one, place in carried:
            layout.copy(self._place(one.start), place, layout.nbytes(one.place))
        begin = self._branch(
            self._decision(region, "begin"), call, self._decided(region, counter, region.condition)
        )
        body = len(layout.steps)
        computed = [self._in_place(region, one, place) for one, place in carried]
        self._calls(region.calls)
        for stacked, whole in zip(region.stacked, wholes, strict=True):
            nbytes = layout.nbytes(stacked.part)
            kernel = stack(nbytes, stacked.parts, more=stacked.open)
            layout.kernel(kernel, 2 * nbytes, (self._place(stacked.part), counter, whole))
        self._carry_on([one for one, there in zip(carried, computed, strict=True) if not there])
        again = self._branch(
            self._decision(region, "again"), call, self._decided(region, counter, region.goes_on)
        )
        self._aim(again, body)
        self._aim(begin, len(layout.steps))
        self._keep(first, body, [counter, *places, *wholes])

    @staticmethod
    def _decision(region: Loop, kind: str) -> Branch:
        condition = region.condition if kind == "begin" else region.goes_on
        decided = Branch(
            "begin" if kind == "begin" else "again",
            trips=region.trips is not None,
            condition=condition is not None,
            most=region.most,
            bounded=region.bounded,
        )
        return decided

    def _decided(self, region: Loop, counter: Argument, condition: Value | None) -> list[Argument]:
        read = [value for value in (region.trips, condition) if value is not None]
        return [counter, *(self._place(value) for value in read)]

    def _in_place(self, region: Loop, one: Carried, place: Argument) -> bool:
        """Has a trip's result computed in its place, where that can be; whether it is."""
        result = one.result
        if not _computed_alone(region.calls, result):
            return False
        buffers = [other.result for other in region.carried if _is_buffer(other.result)]
        if sum(other.index == result.index for other in buffers) > 1:
            return False
        if any(other.result is one.place for other in region.carried):  # copied behind all calls
            return False
        if any(stacked.part is one.place for stacked in region.stacked) or region.goes_on is one.place:
            return False
        at = next(i for i, call in enumerate(region.calls) if _writes(call, result))
        if any(_reads(call, one.place) for call in region.calls[at:]):
            return False
        self.layout.alias(result, place)
        return True

    def _carry_on(self, moved: Sequence[tuple[Carried, Argument]]) -> None:
        """Copies a trip's results to their places: first aside what lies in another one's place."""
        layout = self.layout
        places = {(place.kind, place.index) for _, place in moved}
        sources: list[Argument] = []
        for one, place in moved:
            source = self._place(one.result)
            if (source.kind, source.index) in places - {(place.kind, place.index)}:
                nbytes = layout.nbytes(one.place)
                aside = layout.request("cpu", layout.numbered("cpu", f"aside{len(layout.steps)}_"), nbytes)
                layout.copy(source, aside, nbytes)
                source = aside
            sources.append(source)
        for (one, place), source in zip(moved, sources, strict=True):
            if source != place:
                layout.copy(source, place, layout.nbytes(one.place))

    def _keep(self, first: int, body: int, places: Sequence[Argument]) -> None:
        """Has what a trip reads of what was computed before the loop kept until its end, and the places of
        what is carried from before it."""
        layout, last = self.layout, len(self.layout.steps) - 1
        for place in places:
            layout.touch(place, first)
            layout.touch(place, last)
        requests = layout.requests["cpu"]
        for index, request in enumerate(requests):
            if request.first_step < body <= request.last_step:
                requests[index] = replace(request, last_step=max(request.last_step, last))

    # Steps ---------------------------------------------------------------------------------------------

    def _calls(self, calls: Sequence[Call]) -> None:
        for call in calls:
            if call.graphs:
                self.add(call)
            else:
                self.layout.host_steps(call)

    def _branch(self, branch: Branch, call: Call, arguments: Sequence[Argument]) -> int:
        """Adds a branch; its step. It goes nowhere yet."""
        layout = self.layout
        assert call.fused.anchor is not None
        symbol = layout.cpu.add_branch(branch, str(call.fused.anchor.attributes["operator"]).lower())
        layout.add(Step(symbol, 1, tuple(arguments), layout.names(call.nodes), target=0), arguments)
        return len(layout.steps) - 1

    def _aim(self, step: int, target: int) -> None:
        """Says where a branch goes."""
        branch = self.layout.steps[step]
        assert isinstance(branch, Step)
        self.layout.steps[step] = replace(branch, target=target)


def _is_buffer(value: Value) -> bool:
    return value.kind == "buffer"


def _flat(calls: Sequence[Call]) -> Iterator[Call]:
    """The calls, and those of the graphs inside them."""
    for call in calls:
        yield call
        for graph in call.graphs:
            yield from _flat(graph.calls)


def _writes(call: Call, value: Value) -> bool:
    """Whether a call, or one inside it, writes to a tensor, or to a part of what it is a part of."""
    return any(r.kind == value.kind and r.index == value.index for one in _flat([call]) for r in one.results)


def _reads(call: Call, value: Value) -> bool:
    read = (argument for one in _flat([call]) for argument in one.arguments)
    return any(one.kind == value.kind and one.index == value.index for one in read)


def _computed_alone(calls: Sequence[Call], value: Value) -> bool:
    """Whether one of the calls computes all of a tensor, which is no result of an If or a loop."""
    writers = [call for call in calls if _writes(call, value)]
    return (
        _is_buffer(value)
        and value.offset == 0
        and len(writers) == 1
        and not writers[0].graphs
        and any(result is value for result in writers[0].results)
    )
