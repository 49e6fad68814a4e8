"""Walks a kernel as it runs, and counts the instructions that it executes.

All that decides about a kernel's loops and conditions are whole numbers: the thread's tasks, constants, and
what is computed of them. A loop is gone through with its counter, but for one whose iterations are alike,
which is gone through once, and for a long one, of which some iterations stand for all. What was seen with the
same numbers is not done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad
from tvm.tirx import BufferStore, Evaluate, For, IfThenElse, PrimFunc, SeqStmt, While
from tvm.tirx.stmt import Bind

from edgepack.compiler.kernels.predict.cycles import Block, BlockCost
from edgepack.compiler.kernels.predict.instructions import InstructionCounter, Instructions
from edgepack.compiler.kernels.predict.scalars import Scalar, UnknownError, compiled, variables
from edgepack.plan.target import CpuTarget

__all__ = ["Executed", "KernelWalk"]

#: Iterations of a loop that are gone through one by one; of more, so many that are evenly far apart.
MOST_ITERATIONS = 64

#: Blocks that have as many multiply-adds as the one that has most, but for this factor, are inner ones.
MOST_TIMES = 2.0

Values = dict[str, int]


@dataclass(frozen=True)
class Executed:
    """What a kernel executes.

    Attributes:
        cycles: of one core, if all that it reads is in its nearest cache.
        inner: of the instructions those of the blocks that multiply most.
    """

    instructions: Instructions = field(default_factory=Instructions)
    cycles: float = 0.0
    inner: Instructions = field(default_factory=Instructions)

    def __add__(self, other: Executed) -> Executed:
        return Executed(
            self.instructions + other.instructions, self.cycles + other.cycles, self.inner + other.inner
        )

    def times(self, count: float) -> Executed:
        """So many times."""
        return Executed(self.instructions.times(count), self.cycles * count, self.inner.times(count))


NOTHING = Executed()


@dataclass(eq=False)
class _Part:
    """A part of a kernel, with the names of the numbers from outside that decide how it runs."""

    needs: tuple[str, ...] = ()
    known: dict[tuple[int | None, ...], Executed] = field(default_factory=dict)

    def executed(self, values: Values) -> Executed:
        key = tuple(values.get(name) for name in self.needs)
        if key not in self.known:
            self.known[key] = self.walked(values)
        return self.known[key]

    def walked(self, values: Values) -> Executed:
        raise NotImplementedError


@dataclass(eq=False)
class _Run(_Part):
    """Statements without loops and conditions, which are executed as a whole."""

    cost: Executed = NOTHING

    def walked(self, values: Values) -> Executed:
        return self.cost


@dataclass(eq=False)
class _Let(_Part):
    """A name for a number that decides something."""

    name: str = ""
    value: Scalar = lambda values: 0
    reads: frozenset[str] = frozenset()


@dataclass(eq=False)
class _Sequence(_Part):
    parts: Sequence[_Part] = ()

    def walked(self, values: Values) -> Executed:
        inside, total = dict(values), NOTHING
        for part in self.parts:
            if isinstance(part, _Let):
                try:
                    inside[part.name] = part.value(inside)
                except UnknownError:
                    inside.pop(part.name, None)
            else:
                total += part.executed(inside)
        return total


@dataclass(eq=False)
class _Loop(_Part):
    name: str = ""
    begin: Scalar = lambda values: 0
    extent: Scalar = lambda values: 1
    body: _Part = field(default_factory=_Part)
    each: Executed = NOTHING

    def walked(self, values: Values) -> Executed:
        try:
            begin, count = self.begin(values), self.extent(values)
        except UnknownError:
            begin, count = 0, 1
        if count <= 0:
            return NOTHING
        if self.name not in self.body.needs:
            return (self.body.executed(values) + self.each).times(count)
        taken = min(count, MOST_ITERATIONS)
        total = NOTHING
        for number in range(taken):
            total += self.body.executed({**values, self.name: begin + number * count // taken})
        return total.times(count / taken) + self.each.times(count)


@dataclass(eq=False)
class _Choice(_Part):
    condition: Scalar = lambda values: 0
    then: _Part = field(default_factory=_Part)
    otherwise: _Part | None = None
    itself: Executed = NOTHING

    def walked(self, values: Values) -> Executed:
        try:
            taken = self.then if self.condition(values) else self.otherwise
        except UnknownError:
            sides = [one.executed(values) for one in (self.then, self.otherwise) if one is not None]
            return max(sides, key=lambda one: one.cycles) + self.itself
        return (taken.executed(values) if taken is not None else NOTHING) + self.itself


class KernelWalk:
    """A kernel, to be walked for some of its tasks.

    Args:
        function: the kernel, see :mod:`edgepack.compiler.kernels.contract`.
        target: the CPU.
    """

    def __init__(self, function: PrimFunc, target: CpuTarget) -> None:
        self.counter, self.cost = InstructionCounter(target), BlockCost(target)
        self._depth = 0
        self._runs: list[tuple[int, _Run]] = []
        self.lo, self.hi = (str(p.name) for p in list(function.params)[-2:])
        self.counter.positions |= {self.lo, self.hi}
        self.decides = _deciding(function.body)
        self.whole = self._part(function.body)
        self._mark_inner()

    def _mark_inner(self) -> None:
        """Tells the blocks in the innermost loops that multiply that they are such."""
        products = [(at, run, run.cost.instructions.multiply_adds) for at, run in self._runs]
        deepest = max((at for at, _, count in products if count), default=0)
        most = max((count for at, _, count in products if at == deepest), default=0.0)
        for at, run, count in products:
            if at == deepest and 0 < most <= MOST_TIMES * count:
                run.cost = replace(run.cost, inner=run.cost.instructions)

    def executed(self, first: int, last: int) -> Executed:
        """What tasks ``first`` to ``last`` - 1 execute, as one call."""
        return self.whole.executed({self.lo: first, self.hi: last})

    def _part(self, statement: Any) -> _Part:
        parts: list[_Part] = []
        block = Block()

        def end() -> None:
            nonlocal block
            if block.statements:
                spilled = Instructions(spills=self.cost.spilled(block))
                run = _Run(cost=Executed(block.instructions + spilled, self.cost.of(block)))
                parts.append(run)
                self._runs.append((self._depth, run))
                block = Block()

        for one in _flat(statement):
            kind = type(one)
            if kind in (For, IfThenElse, While):
                end()
                parts.append(self._loop_or_choice(one))
                continue
            if kind is Bind:
                self._bind(one, parts, block)
            elif kind is BufferStore:
                block.add_store(one, self.counter.of_store(one))
            elif kind is Evaluate:
                block.add_value(one.value, self.counter.of_value(one.value))
        end()
        needs: set[str] = set()
        for part in reversed(parts):
            if isinstance(part, _Let):
                if part.name in needs:
                    needs = (needs - {part.name}) | part.reads
            else:
                needs |= set(part.needs)
        return _Sequence(tuple(sorted(needs)), parts=parts)

    def _bind(self, one: Any, parts: list[_Part], block: Block) -> None:
        name = str(one.var.name)
        if self.counter.is_position(one.value):
            self.counter.positions.add(name)
        if type(one.value) is TensorLoad:
            self.counter.loaded.add(name)
        if name in self.decides:
            parts.append(_Let(name=name, value=compiled(one.value), reads=frozenset(variables(one.value))))
        block.add_let(one.var, one.value, self.counter.of_value(one.value))

    def _loop_or_choice(self, one: Any) -> _Part:
        again = Executed(Instructions(branches=1, scalars=1), self.cost.branch)
        if type(one) is IfThenElse:
            counts = self.counter.of_value(one.condition) + Instructions(branches=1)
            then = self._part(one.then_case)
            otherwise = self._part(one.else_case) if one.else_case is not None else None
            needs = variables(one.condition) | set(then.needs) | set(otherwise.needs if otherwise else ())
            cost = Executed(counts, self.cost.branch)
            return _Choice(tuple(sorted(needs)), {}, compiled(one.condition), then, otherwise, cost)
        if type(one) is For:
            name, begin, extent, statement = str(one.loop_var.name), one.min, one.extent, one.body
        else:  # its counter lies in memory, see Emitter.no_unroll_loop
            name, begin, extent, statement = _counted(one)
        self.counter.positions.add(name)
        self._depth += 1
        body = self._part(statement)
        self._depth -= 1
        needs = variables(begin) | variables(extent) | (set(body.needs) - {name})
        return _Loop(tuple(sorted(needs)), {}, name, compiled(begin), compiled(extent), body, again)


def _flat(statement: Any) -> list[Any]:
    """Statements in their order."""
    if isinstance(statement, list):
        return [one for part in statement for one in _flat(part)]
    if type(statement) is SeqStmt:
        return [one for part in statement.seq for one in _flat(part)]
    return [statement]


def _counted(loop: Any) -> tuple[str, Any, Any, Any]:
    """Counter, begin, extent and body of a ``While`` that :meth:`Emitter.no_unroll_loop` made."""
    statements = _flat(loop.body)
    first = next(one for one in statements if type(one) is Bind)
    counter = first.value.source
    rest = [
        one
        for one in statements
        if one is not first and not (type(one) is BufferStore and one.buffer.same_as(counter))
    ]
    return str(first.var.name), tirx.IntImm("int32", 0), loop.condition.b, rest


def _deciding(body: Any) -> set[str]:
    """The names that ends of loops and conditions depend on."""
    found: set[str] = set()
    lets: dict[str, Any] = {}
    pending = [body]
    while pending:
        for one in _flat(pending.pop()):
            kind = type(one)
            if kind is Bind:
                lets[str(one.var.name)] = one.value
            elif kind is For:
                found |= variables(one.min) | variables(one.extent)
                pending.append(one.body)
            elif kind is IfThenElse:
                found |= variables(one.condition)
                pending += [one.then_case] + ([one.else_case] if one.else_case is not None else [])
            elif kind is While:
                found |= variables(one.condition)
                pending.append(one.body)
    todo = list(found)
    while todo:
        value = lets.get(todo.pop())
        more = variables(value) - found if value is not None else set()
        found |= more
        todo += more
    return found
