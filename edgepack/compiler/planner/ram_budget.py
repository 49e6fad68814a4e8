"""Layers become cascades where a plan takes more RAM than it may: where that costs the least, and no more of
them than it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from edgepack.compiler.planner.arena import aligned
from edgepack.compiler.planner.built import Built
from edgepack.compiler.planner.cascade import RowCall, by_rows, cascade_of, merged, reads_rows, window_bytes
from edgepack.compiler.planner.fuse_pairs import fuse_pairs, take_pairs_apart
from edgepack.compiler.planner.program import Call, Program
from edgepack.compiler.planner.select import KernelSelector
from edgepack.plan.cascade import Cascade
from edgepack.plan.target import CpuTarget
from edgepack.plan.types import Arena, Plan, Signature

__all__ = ["arena_limit", "fit_ram"]

#: Bytes of RAM that are neither arena nor inputs and outputs: the stack of a run, the library's variables.
OTHER_BYTES = 1024

#: A limit of so few bytes stands for none at all (:func:`arena_limit`).
NO_ROOM = 1

#: Rows that a layer computes at a time, as they are tried.
STEPS = (8, 4, 2, 1)

#: Instructions of a call of a layer, and of moving four bytes of rows.
CALL_INSTRUCTIONS, MOVE_INSTRUCTIONS = 250, 4

#: Placements that are tried of those that the estimate says fit, and cascades of a plan.
TRIED, MOST_CASCADES = 8, 4


def arena_limit(target: CpuTarget, signature: Signature) -> int:
    """Bytes that the arena may take, inputs and outputs being in RAM too; 0 where that is not limited."""
    tensors = sum(spec.nbytes for spec in (*signature.inputs, *signature.outputs))
    if target.arena_room:
        return max(NO_ROOM, sum(target.arena_room) - (tensors if target.tensors_beside >= 0 else 0))
    return max(NO_ROOM, target.ram_bytes - tensors - OTHER_BYTES) if target.ram_bytes else 0


@dataclass(frozen=True)
class _Candidate:
    """A run of calls that may become a cascade.

    Attributes:
        first, last: their indices in the program.
        nbytes: of the arena, estimated.
    """

    first: int
    last: int
    cascade: Cascade
    nbytes: int

    @cached_property
    def cost(self) -> int:
        """Instructions beside those of the layers, estimated."""
        calls = sum(1 for _ in self.cascade.visits())
        return calls * CALL_INSTRUCTIONS + self.cascade.moved() // 4 * MOVE_INSTRUCTIONS


def fit_ram(
    program: Program,
    selector: KernelSelector,
    limit: int,
    laid_out: Callable[[Program], Built],
) -> Built:
    """The plan, with cascades where its arena is larger than ``limit`` bytes; one that is too large all the
    same is the smallest that was found.

    Args:
        laid_out: the plan of a program whose kernels are selected.
    """
    return _Fitting(program, selector, limit, laid_out).fitted()


class _Fitting:
    """The search, step by step: each makes one run of calls a cascade."""

    def __init__(
        self,
        program: Program,
        selector: KernelSelector,
        limit: int,
        laid_out: Callable[[Program], Built],
    ) -> None:
        self.program, self.selector, self.limit, self.laid_out = program, selector, limit, laid_out
        self.alignment = selector.target.data_alignment
        #: By the call's ``id``, with the call, which so lives as long.
        self._row_calls: dict[int, tuple[Call, RowCall | None]] = {}

    def fitted(self) -> Built:
        whole = self.laid_out(self.program)
        before = whole.plan.arena.nbytes
        if before <= self.limit:
            return whole
        program = take_pairs_apart(self.program, self.selector.select)
        built = self.laid_out(program)
        made: list[_Candidate] = []
        while built.plan.arena.nbytes > self.limit and len(made) < MOST_CASCADES:
            found = self._better(program, built)
            if found is None:
                break
            candidate, program, built = found
            made.append(candidate)
        if not made:
            return whole
        program = self._with_pairs(program, max(self.limit, built.plan.arena.nbytes))
        self._tell(made, before, built.plan)
        return self.laid_out(program)

    def _with_pairs(self, program: Program, limit: int) -> Program:
        """The program with pairs of calls, where these fit too."""
        paired = replace(program, calls=list(program.calls))
        fuse_pairs(paired, self.selector.try_select)
        return paired if self.laid_out(paired).plan.arena.nbytes <= limit else program

    def _better(self, program: Program, built: Built) -> tuple[_Candidate, Program, Built] | None:
        """The program with one more cascade: the cheapest that fits, else the smallest; None where none is
        smaller."""
        candidates = list(self._candidates(program, built.plan))
        fitting = sorted((c for c in candidates if c.nbytes <= self.limit), key=lambda c: (c.cost, c.nbytes))[
            :TRIED
        ]
        smallest = sorted(candidates, key=lambda c: (c.nbytes, len(c.cascade.layers), -c.cascade.step))[
            :TRIED
        ]
        best: tuple[_Candidate, Program, Built] | None = None
        least = built.plan.arena.nbytes
        for candidate in dict.fromkeys((*fitting, *smallest)):
            tried = self._with(program, candidate)
            made = self.laid_out(tried)
            if made.plan.arena.nbytes <= self.limit:
                return candidate, tried, made
            if made.plan.arena.nbytes < least:
                best, least = (candidate, tried, made), made.plan.arena.nbytes
        return best

    def _with(self, program: Program, candidate: _Candidate) -> Program:
        """The program with a run of calls as one."""
        first, last = candidate.first, candidate.last
        calls = [self._by_rows(call) for call in program.calls[first : last + 1]]
        one = merged([call for call in calls if call is not None], candidate.cascade, self.selector)
        return replace(program, calls=[*program.calls[:first], one, *program.calls[last + 1 :]])

    # What may become a cascade -----------------------------------------------------------------------------

    def _by_rows(self, call: Call) -> RowCall | None:
        if id(call) not in self._row_calls:
            cascaded = call.implementation is not None and call.implementation.cascade is not None
            self._row_calls[id(call)] = call, None if cascaded else by_rows(call, self.selector)
        return self._row_calls[id(call)][1]

    def _candidates(self, program: Program, plan: Plan) -> Iterator[_Candidate]:
        live, at = _live_bytes(plan.arena, len(plan.steps)), _first_steps(program)
        for first, last, calls in self._runs(program):
            inside = range(at[first], at[last + 1])
            outside = max((n for step, n in enumerate(live) if step not in inside), default=0)
            around = self._around(plan.arena, inside)
            scratch = sum(max((aligned(n) for n in kinds), default=0) for kinds in _scratches(calls))
            for step in STEPS:
                if step >= calls[-1].rows:
                    continue
                cascade = cascade_of(calls, step, self.alignment)
                nbytes = around + aligned(window_bytes(cascade)) + scratch
                yield _Candidate(first, last, cascade, max(outside, nbytes))

    def _runs(self, program: Program) -> Iterator[tuple[int, int, list[RowCall]]]:
        """Runs of two and more calls by rows; nothing else reads what all but the last compute."""
        outputs = {id(value) for value in program.outputs}
        readers: dict[int, int] = {}
        for index, call in enumerate(program.calls):
            readers |= {id(value): index for value in call.arguments}
        for first, start in enumerate(program.calls):
            calls: list[RowCall] = []
            needed = first  # the last call that reads what is inside
            for last in range(first, len(program.calls)):
                one = self._by_rows(program.calls[last]) if last > first or self._by_rows(start) else None
                if one is None or not all(reads_rows(one, other) for other in calls):
                    break
                calls.append(one)
                if last > first and needed <= last:
                    yield first, last, list(calls)
                result = one.call.results[0]
                if id(result) in outputs:
                    break
                needed = max(needed, readers.get(id(result), last))

    def _around(self, arena: Arena, inside: range) -> int:
        """Bytes of the buffers that are live beside a run of calls, what it reads and its result included."""
        return sum(
            aligned(b.nbytes, self.alignment)
            for b in arena.buffers
            if b.first_step < inside.stop
            and b.last_step >= inside.start
            and (b.first_step < inside.start or b.last_step >= inside.stop)
        )

    def _tell(self, made: Sequence[_Candidate], before: int, plan: Plan) -> None:
        layers = sum(len(c.cascade.layers) for c in made)
        cost = sum(c.cost for c in made)
        moved = sum(c.cascade.moved() for c in made)
        rows = ", ".join(dict.fromkeys(str(c.cascade.step) for c in made))
        over = ""
        if plan.arena.nbytes > self.limit:
            over = f", which is more than the {_kib(self.limit)} that it may take"
            if self.limit <= NO_ROOM:
                over = ", which is more than inputs and outputs leave of the RAM"
        moves = f"each run moves {_kib(moved)} for that, " if moved else "for that each run takes "
        self.selector.warn(
            f"{layers} layers are computed {rows} row{'s' if rows != '1' else ''} at a time, for an arena of "
            f"{_kib(plan.arena.nbytes)} instead of {_kib(before)}{over}; {moves}about "
            f"{_millions(cost)} instructions"
        )


def _kib(nbytes: int) -> str:
    return f"{nbytes / 1024:.1f} KiB" if nbytes >= 1024 else f"{nbytes} B"


def _millions(count: int) -> str:
    return f"{count / 1e6:.2f} million" if count >= 10_000 else f"{count:,}"


def _scratches(calls: Sequence[RowCall]) -> list[list[int]]:
    """Bytes of each scratch buffer of the calls, by number."""
    most = max(len(one.implementation.scratch) for one in calls)
    return [
        [one.implementation.scratch[i] for one in calls if i < len(one.implementation.scratch)]
        for i in range(most)
    ]


def _first_steps(program: Program) -> list[int]:
    """The step with which each call begins, and the one behind all."""
    found = [0]
    for call in program.calls:
        assert call.implementation is not None
        found.append(found[-1] + len(call.implementation.stages))
    return found


def _live_bytes(arena: Arena, steps: int) -> list[int]:
    """Bytes of the arena that are in use at each step; those once that several buffers share."""
    found = []
    for step in range(steps):
        used = (b for b in arena.buffers if b.first_step <= step <= b.last_step)
        live = sorted((b.offset, b.offset + b.nbytes) for b in used)
        total, end = 0, 0
        for begin, stop in live:
            total += max(0, stop - max(begin, end))
            end = max(end, stop)
        found.append(total)
    return found
