"""Parts of a fused group as fused groups of their own: some of its statements, in their order.

What one part computes and another reads becomes a tensor between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

import tvm_ffi
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import Buffer, BufferStore, PrimFunc, SeqStmt, Stmt

from edgepack.compiler.graph.fused_group import Anchor, FusedGroup

__all__ = ["GroupSplitter", "Statement", "SubGroup"]


@dataclass(frozen=True)
class Statement:
    """A loop nest of a fused function.

    Attributes:
        reads, writes: buffers, in order of their first use; what it also writes is not among its ``reads``.
    """

    body: Stmt
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]

    @classmethod
    def of(cls, body: Stmt) -> Statement:
        """Reads the loop nest."""
        reads: dict[Buffer, None] = {}
        writes: dict[Buffer, None] = {}
        tvm_ffi.structural_walk(
            body,
            [
                (TensorLoad, lambda load: reads.setdefault(load.source)),
                (BufferStore, lambda store: writes.setdefault(store.buffer)),
            ],
        )
        return cls(body, tuple(b for b in reads if b not in writes), tuple(writes))


@dataclass(frozen=True)
class SubGroup:
    """Some statements of a fused group.

    Attributes:
        fused: they as a group.
        numbers: which statements of the whole they are.
        operators: which operators of the whole they belong to; all where that is not known.
        reads, writes: the whole's buffers that are the group's parameters and outputs, in order.
    """

    fused: FusedGroup
    numbers: tuple[int, ...]
    operators: tuple[int, ...]
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]


class GroupSplitter:
    """A fused group that may be taken apart.

    Attributes:
        fused: the group.
        statements: those of its function, in order.
        params, outputs: its function's buffers.
    """

    def __init__(self, fused: FusedGroup) -> None:
        self.fused = fused
        buffers = tuple(fused.function.params)
        self.params, self.outputs = buffers[: -fused.outputs], buffers[-fused.outputs :]
        self.statements: tuple[Statement, ...] = ()
        body = fused.function.body
        if isinstance(body, SBlockRealize) and not body.block.iter_vars and not body.block.match_buffers:
            inner = body.block.body
            bodies = inner.seq if isinstance(inner, SeqStmt) else [inner]
            self.statements = tuple(Statement.of(statement) for statement in bodies)

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """For each statement the operator that it belongs to; () where that is not known."""
        sizes = self.fused.sizes
        if sum(sizes) != len(self.statements):
            return ()
        return tuple(operator for operator, size in enumerate(sizes) for _ in range(size))

    @cached_property
    def anchor(self) -> range:
        """The anchor's statements; empty where they are not known."""
        anchor = self.fused.anchor
        if anchor is None or anchor.operator is None or not self.owners:
            return range(0)
        ends = [0, *accumulate(self.fused.sizes)]
        return range(*list(pairwise(ends))[anchor.operator])

    def ancestors(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """The other statements whose results these need, directly or not, in order."""
        wanted = {buffer for i in numbers for buffer in self.statements[i].reads}
        found = []
        for i in reversed(range(len(self.statements))):
            if i not in numbers and wanted.intersection(self.statements[i].writes):
                found.append(i)
                wanted.update(self.statements[i].reads)
        return tuple(reversed(found))

    def descendants(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """The other statements that need results of these, directly or not, in order."""
        known = {buffer for i in numbers for buffer in self.statements[i].writes}
        found = []
        for i, statement in enumerate(self.statements):
            if i not in numbers and known.intersection(statement.reads):
                found.append(i)
                known.update(statement.writes)
        return tuple(found)

    def part(self, numbers: Sequence[int], suffix: int) -> SubGroup:
        """Some of the statements.

        Args:
            numbers: which, ascending.
            suffix: of the group's name, which tells the parts from each other.
        """
        inside = [self.statements[i] for i in numbers]
        chosen = set(numbers)
        written = dict.fromkeys(buffer for statement in inside for buffer in statement.writes)
        reads = dict.fromkeys(b for statement in inside for b in statement.reads if b not in written)
        outside = {
            buffer
            for i, statement in enumerate(self.statements)
            if i not in chosen
            for buffer in statement.reads
        }
        writes = tuple(b for b in written if b in outside or b in self.outputs)
        params = tuple(reads)
        function = _function(inside, params, writes, [b for b in written if b not in writes], self.fused)
        operators = tuple(sorted({self.owners[i] for i in numbers})) if self.owners else ()
        operators = operators or tuple(range(len(self.fused.operators)))
        half = {self.params[i] for i in self.fused.float16_params}
        narrow = {self.params[i]: dtype for i, dtype in self.fused.narrow_params}
        callers = {*(self.params[i] for i in self.fused.callers_params), *self.outputs}
        fused = replace(
            self.fused,
            name=f"{self.fused.name}_part{suffix}",
            function=function,
            outputs=len(writes),
            operators=tuple(self.fused.operators[i] for i in operators),
            anchor=self._anchor_within(chosen, operators, params),
            nodes=(),
            sizes=(),
            row_stride=None,
            origin=self.fused.title,
            float16_params=frozenset(i for i, b in enumerate(params) if b in half),
            narrow_params=frozenset((i, narrow[b]) for i, b in enumerate(params) if b in narrow),
            word_params=frozenset(),
            callers_params=frozenset(i for i, b in enumerate(params) if b in callers),
        )
        return SubGroup(fused, tuple(numbers), operators, params, writes)

    def _anchor_within(
        self, chosen: set[int], operators: Sequence[int], params: Sequence[Buffer]
    ) -> Anchor | None:
        """The anchor of a part that has all of its statements."""
        anchor = self.fused.anchor
        if anchor is None or not self.anchor or not chosen.issuperset(self.anchor):
            return None
        own = [self.statements[i] for i in self.anchor]
        written = {buffer for statement in own for buffer in statement.writes}
        read = dict.fromkeys(b for statement in own for b in statement.reads if b not in written)
        known = {self.params[i] for i in anchor.operands if i is not None}
        computed = [buffer for buffer in read if buffer not in known]
        if len(computed) != anchor.operands.count(None) or len(computed) > 1:
            return None
        operands = [computed[0] if i is None else self.params[i] for i in anchor.operands]
        assert anchor.operator is not None
        return replace(
            anchor,
            operands=tuple(params.index(b) if b in params else None for b in operands),
            operator=operators.index(anchor.operator),
        )


def _function(
    statements: Sequence[Statement],
    params: Sequence[Buffer],
    outputs: Sequence[Buffer],
    local: Sequence[Buffer],
    fused: FusedGroup,
) -> PrimFunc:
    """A function of these statements, with ``local`` between them."""
    bodies = [statement.body for statement in statements]
    body = bodies[0] if len(bodies) == 1 else SeqStmt(bodies)
    root = SBlock([], [], [], "root", body, alloc_buffers=list(local))
    return PrimFunc([*params, *outputs], SBlockRealize([], True, root), attrs=fused.function.attrs)
