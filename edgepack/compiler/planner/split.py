"""Fused groups that no fast rule serves as a whole, in parts that fast rules serve.

An anchor is computed by its own rule with the longest tail that this rule takes; what stands before and
beside it, and the rest of its tail, by the rules for blocks. A group without an anchor is cut into the
longest runs of statements that the rules for blocks serve. What no fast rule serves even alone stays with
the slow ones. All this is done where its estimated time is less than that of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from tvm.tirx import Buffer

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.estimate import slow_cycles, work_of
from edgepack.compiler.planner.group_splitter import GroupSplitter, SubGroup
from edgepack.compiler.planner.program import Call, Program, Value
from edgepack.compiler.planner.select import KernelSelector
from edgepack.plan.opt_level import ALL

__all__ = ["select_or_split"]


def select_or_split(program: Program, selector: KernelSelector) -> None:
    """Selects the kernels of all calls that have none, after taking some apart at the highest level of
    optimisation.

    Args:
        program: changed in place.

    Raises:
        RuleError: if no rule serves a group.
    """
    cuts: dict[str, list[tuple[int, ...]]] = {}
    for call in list(program.calls):
        if call.implementation is not None or call.gpu is not None:
            continue
        if selector.try_select(call, fast_only=True):
            continue
        name = call.fused.name
        if name not in cuts:
            apart = selector.target.opt_level >= ALL
            cuts[name] = _cheapest_cuts(call.fused, selector) if apart else []
        for part in _split(program, call, cuts[name], selector) if cuts[name] else [call]:
            selector.select(part)


def _cheapest_cuts(fused: FusedGroup, selector: KernelSelector) -> list[tuple[int, ...]]:
    """The statements of each part; none where the group is better left whole."""
    whole = GroupSplitter(fused)
    if len(whole.statements) < 2:
        return []
    parts = [whole.part(numbers, i) for i, numbers in enumerate(_Cutter(whole, selector).cuts())]
    if len(parts) < 2:
        return []
    for part in parts:
        selector.register(fused, part)
    apart = sum(selector.cycles(part.fused) for part in parts)
    # No fast rule serves the whole, so it need not be lowered where even one slow kernel would take longer.
    better = not whole.anchor and apart < slow_cycles(work_of(fused.function), selector.target)
    return [part.numbers for part in parts] if better or apart < selector.cycles(fused) else []


class _Cutter:
    """Cuts a fused group into parts that fast rules serve, as far as there are such."""

    def __init__(self, whole: GroupSplitter, selector: KernelSelector) -> None:
        self.whole, self.selector = whole, selector

    def cuts(self) -> list[tuple[int, ...]]:
        """The statements of each part, in an order in which the parts can be computed."""
        numbers = tuple(range(len(self.whole.statements)))
        if not self.whole.anchor:
            return list(self._runs(numbers))
        return self._around_anchor()

    def _serves(self, numbers: Sequence[int]) -> bool:
        part = self.whole.part(numbers, 0)
        self.selector.register(self.whole.fused, part)
        return self.selector.cycles(part.fused, fast_only=True) < inf

    def _around_anchor(self) -> list[tuple[int, ...]]:
        whole, own = self.whole, tuple(self.whole.anchor)
        before = whole.ancestors(own)
        behind = whole.descendants(own)
        beside = tuple(i for i in range(len(whole.statements)) if i not in {*own, *before, *behind})
        chosen, first = self._longest_tail(own, behind, before, beside)
        later = tuple(i for i in (*behind, *beside) if i not in {*chosen, *first})
        return [*self._runs(first), chosen, *self._runs(tuple(sorted(later)))]

    def _longest_tail(
        self,
        own: tuple[int, ...],
        behind: tuple[int, ...],
        before: tuple[int, ...],
        beside: tuple[int, ...],
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The anchor's statements with the longest tail that its rule takes, and what is computed before."""
        for length in range(len(behind), -1, -1):
            tail = behind[:length]
            joining = tuple(i for i in self.whole.ancestors(tail) if i in beside)
            for inside in dict.fromkeys((joining, ())):
                numbers = tuple(sorted((*own, *tail, *inside)))
                if length == 0 or self._serves(numbers):
                    first = {*before, *joining} - {*inside}
                    return numbers, tuple(sorted(first))
        raise AssertionError("an anchor without a tail is always a part")

    def _runs(self, numbers: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """The longest runs of statements that fast rules serve, and what lies between these."""
        slow: list[int] = []
        at = 0
        while at < len(numbers):
            end = self._end_of_run(numbers, at)
            if end == at:
                slow.append(numbers[at])
                at += 1
                continue
            if slow:
                yield tuple(slow)
                slow = []
            yield numbers[at:end]
            at = end
        if slow:
            yield tuple(slow)

    def _end_of_run(self, numbers: tuple[int, ...], begin: int) -> int:
        """The end of the longest run from ``begin`` on that a fast rule serves; ``begin`` if none does."""
        last = begin
        while last < len(numbers) and self._serves(numbers[last : last + 1]):
            last += 1
        return next((end for end in range(last, begin, -1) if self._serves(numbers[begin:end])), begin)


def _split(
    program: Program, call: Call, cuts: Sequence[Sequence[int]], selector: KernelSelector
) -> list[Call]:
    """Puts a call for each part in the place of the whole's."""
    whole = GroupSplitter(call.fused)
    values: dict[Buffer, Value] = dict(zip(whole.params, call.arguments, strict=True))
    values.update(zip(whole.outputs, call.results, strict=True))
    made = []
    for i, numbers in enumerate(cuts):
        part = whole.part(numbers, i)
        selector.register(call.fused, part)
        for buffer in part.writes:
            if buffer not in values:
                values[buffer] = program.new_buffer(tuple(int(d) for d in buffer.shape), str(buffer.dtype))
        arguments, results = ([values[b] for b in buffers] for buffers in (part.reads, part.writes))
        made.append(Call(part.fused, arguments, results, nodes=_nodes(call, part)))
    place = program.calls.index(call)
    program.calls[place : place + 1] = made
    return made


def _nodes(call: Call, part: SubGroup) -> tuple[int, ...]:
    """The model's nodes that a part computes."""
    own = call.fused.operator_nodes
    if not own or len(part.operators) == len(own):
        return call.nodes
    nodes = {own[i] for i in part.operators} - {None}
    if len(own) - 1 in part.operators:
        nodes |= set(call.nodes) - set(call.fused.nodes)
    return tuple(sorted(node for node in nodes if node is not None))
