"""Rule ``attention``: softmax(scores) @ values, a block of queries of one head at a time, in the cache.

A task transposes its block of queries into scratch and computes the scores with them as columns, see
``scores.py``. The exponentials stay in scratch, where the product with the values reads them as its left
operand; rows are divided by their sums when they are stored, see ``weighted_values.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Expr

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.analysis.operands import declare_param
from edgepack.compiler.kernels.cpu.attention.attention_form import AttentionForm
from edgepack.compiler.kernels.cpu.attention.query_block import AttentionBuffers, Head, QueryBlock
from edgepack.compiler.kernels.cpu.attention.scores import Scores
from edgepack.compiler.kernels.cpu.attention.weighted_values import WeightedValues
from edgepack.compiler.kernels.cpu.builder import KernelBuilder
from edgepack.compiler.kernels.cpu.emit.affine import IndexVariables
from edgepack.compiler.kernels.cpu.emit.indices import Index, balanced_split, div, index, mod, unravel
from edgepack.compiler.kernels.cpu.emit.vector_parts import MATH_DTYPE
from edgepack.compiler.kernels.rule import FLOAT32, Rule
from edgepack.compiler.kernels.schedule import Schedule, ScheduleError
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.opt_level import ALL
from edgepack.plan.target import CpuTarget

__all__ = ["attention"]

#: Queries of a task: enough that keys and values, which each task reads, come from the last cache seldom.
BLOCK = 64


@dataclass(frozen=True)
class AttentionSchedule(Schedule):
    """What is decided about attention.

    Attributes:
        block: queries of a task, at most.
        lanes: queries of a vector.
    """

    block: int | None = None
    lanes: int | None = None


#: All is left to the cost model.
OPEN = AttentionSchedule()


def propose(form: AttentionForm, target: CpuTarget, given: AttentionSchedule) -> AttentionSchedule:
    """What is decided, but for what is given. ScheduleError if that does not fit."""
    widest = target.lanes(MATH_DTYPE)
    while widest > form.rows:
        widest //= 2
    lanes = given.lanes or widest
    if lanes & (lanes - 1) or lanes > widest:
        raise ScheduleError(f"vectors of {lanes} queries: no power of 2 up to {widest}")
    largest = form.rows // lanes * lanes  # of a remainder, the last block overlaps the one before
    if given.block is not None and (given.block % lanes or given.block > largest):
        raise ScheduleError(f"blocks of {given.block} queries, of {form.rows} in vectors of {lanes}")
    most = (given.block or BLOCK) // lanes
    row = DTYPE_BYTES[MATH_DTYPE] * lanes * form.keys
    while given.block is None and most > 1 and most * row > target.l2_bytes // 2:
        most -= 1
    sizes = balanced_split(-(-form.rows // lanes), max(1, min(most, largest // lanes)))
    return AttentionSchedule(sizes[0][0] * lanes, lanes)


def attention(
    fused: FusedGroup, target: CpuTarget, constants: frozenset[int], given: AttentionSchedule = OPEN
) -> Implementation:
    """Applies the rule to a fused group whose anchor is of that kind."""
    if fused.anchor is None or fused.anchor.kind != "attention":
        raise RuleError("another operator")
    form = AttentionForm.of(fused)
    return AttentionKernel(form, target, propose(form, target, given)).build()


class AttentionKernel(KernelBuilder):
    """Emits the kernel; a task is a block of queries of one head.

    Attributes:
        sizes: (queries of a block, how many blocks of that size), the larger size first.
        block: queries of the largest block, and ``blocks`` of one head.
    """

    def __init__(self, form: AttentionForm, target: CpuTarget, schedule: AttentionSchedule) -> None:
        block, lanes = schedule.block, schedule.lanes
        assert block is not None and lanes is not None
        super().__init__("attention", target, dtype=MATH_DTYPE, lanes=lanes)
        self.form, self.schedule = form, schedule
        vectors = -(-form.rows // lanes)
        self.sizes = [(size * lanes, count) for size, count in balanced_split(vectors, block // lanes)]
        self.block = self.sizes[0][0]
        self.blocks = sum(count for _, count in self.sizes)
        buffers = self._declare()
        self.scores = Scores(self.e, form, buffers, target)
        self.values = WeightedValues(self.e, form, buffers, target)

    def _declare(self) -> AttentionBuffers:
        e, form = self.e, self.form
        params = {p: declare_param(e, i, p) for i, p in enumerate(form.params)}
        query, key, value = (params[p] for p in form.operands)
        output = e.output(0, prod(form.batch) * form.rows * form.columns)
        # Never rebased: LLVM is told that buffers do not overlap, and these are written and read.
        panel, scores, sums = (e.scratch(n * self.block) for n in (form.depth, form.keys, 1))
        return AttentionBuffers(params, query, key, value, output, panel, scores, sums)

    def parameters(self) -> dict[str, Any]:
        return {}

    def build(self) -> Implementation:
        form = self.form
        self.e.tasks(self._task)
        return Implementation(
            self.rule,
            (self.e.stage(prod(form.batch) * self.blocks),),
            scratch=tuple(self.e.scratch_bytes),
            schedule=self.schedule,
            flops=2 * prod(form.batch) * form.rows * form.keys * (form.depth + form.columns),
        )

    def _task(self, task: Expr) -> None:
        e, form = self.e, self.form
        number, block = e.let(div(task, self.blocks)), e.let(mod(task, self.blocks))
        variables = IndexVariables()
        places = [e.let(i) for i in unravel(number, form.batch)]
        batch = tuple(
            variables.add(f"b{axis}", at, 0, n - 1)
            for axis, (at, n) in enumerate(zip(places, form.batch, strict=True))
        )

        def start(view: Sequence[int]) -> Index:
            offset, *strides = view
            total: Index = index(offset)
            for at, stride in zip(places, strides, strict=False):
                total = total + at * index(stride)
            return e.let(total)

        query, key, value, output = (start(v) for v in (form.query, form.key, form.value, form.output))
        self._sized_block(Head(query, key, value, output, variables, batch), block)

    def _sized_block(self, head: Head, number: Index) -> None:
        """Branches on the block's size. A last block that is not full begins earlier, and stores its own rows
        only."""
        e, done, row = self.e, 0, 0
        for size, count in self.sizes:

            def body(size: int = size, done: int = done, row: int = row) -> None:
                first = e.let((number - index(done)) * index(size) + index(row))
                begin = e.let(tirx.min(first, index(self.form.rows - size)))
                self._block(QueryBlock(head, begin, size), number)

            if len(self.sizes) == 1:
                body()
            else:
                e.branch(tirx.all(number >= index(done), number < index(done + count)), body)
            done, row = done + count, row + size * count

    def _block(self, block: QueryBlock, number: Index) -> None:
        exponentials = self.scores.emit(block)
        size, (last_size, last_count) = block.size, self.sizes[-1]
        own = self.form.rows - sum(s * n for s, n in self.sizes) + size  # rows that the last block stores
        if own == size or size != last_size:
            self.values.emit(block, 0, exponentials)
        elif last_count == 1:
            self.values.emit(block, size - own, exponentials)
        else:
            self.e.branch(
                tirx.EQ(index(number), index(self.blocks - 1)),
                lambda: self.values.emit(block, size - own, exponentials),
                lambda: self.values.emit(block, 0, exponentials),
            )


RULE = Rule(
    "attention",
    order=600,
    dtypes=FLOAT32 | {"bool"},
    apply=attention,
    schedule=AttentionSchedule,
    level=ALL,
)
