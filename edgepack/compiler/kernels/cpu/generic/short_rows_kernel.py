"""Elementwise kernels of short rows with conditions on where a row lies: pixels of an image that is padded.

What a condition decides for each row outside of a vector or two takes longer than these. The rows along the
axis before the last one are cut where its conditions change instead, and within a piece nothing is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Expr

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.analysis.branch_splitting import (
    KnownConditions,
    emit_branches,
    emit_pieces,
)
from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables, constant
from edgepack.compiler.kernels.cpu.emit.indices import Index, index
from edgepack.compiler.kernels.cpu.emit.vectors import NeedsBranch, NeedsSplit
from edgepack.compiler.kernels.cpu.generic.elementwise_kernel import TASK_COST, ElementwiseKernel
from edgepack.compiler.kernels.cpu.generic.walked_rows import Row

__all__ = ["ShortRowsKernel", "has_short_rows"]

#: Vectors of the longest row that is short.
SHORT = 4

#: Name of the index variable along the axis before the last one.
ALONG = "r"


def has_short_rows(kernel: ElementwiseKernel) -> bool:
    """Whether rows of few vectors stand beside each other along an axis whose positions decide conditions."""
    if len(kernel.runs) < 2 or not kernel.walks_rows or kernel.lanes == 1:
        return False
    along = {name for i in kernel.runs[-2] if (name := kernel.axes.variable(i))}
    return (
        bool(along & kernel.unmergeable)
        and not along & kernel.computed
        and not kernel.tables
        and kernel.length <= SHORT * kernel.lanes
    )


class ShortRowsKernel(ElementwiseKernel):
    """Emits the kernel of one output, of which :func:`has_short_rows` holds.

    Attributes:
        cut: whether its rows are cut where conditions change.
    """

    cut = False

    def parameters(self) -> dict[str, Any]:
        return {**super().parameters(), **({"short rows": True} if self.cut else {})}

    def emit_rows(self) -> int:
        """Emits tasks of runs of rows along the axis before the last one; returns how many there are."""
        e, (*outer, width) = self.e, self.outer
        lines, cost = prod(outer), self.cost * self.length * width
        per_task, shares = max(1, TASK_COST // cost), 4 * self.target.threads
        if lines * cost > 2 * TASK_COST:
            if lines < shares:
                return super().emit_rows()  # too few for all threads
            per_task = min(per_task, lines // shares)

        def task(t: Expr) -> None:
            begin = e.let(t * per_task)
            e.loop(begin, e.let(tirx.min(begin + per_task, index(lines))), self._line)

        declared, depth = len(e.params), len(e.blocks)
        try:
            e.tasks(task)
        except RuleError:  # a condition on both axes at once
            del e.params[declared:], e.blocks[depth:]
            return super().emit_rows()
        self.cut = True
        return -(-lines // per_task)

    def _line(self, line: Index) -> None:
        """All rows along the axis before the last one."""
        variables = IndexVariables()
        *outer, width = self.outer
        position = self._outer(variables, outer, line)

        def body(conditions: KnownConditions) -> None:
            def rows(low: int, high: int) -> None:
                self._rows(variables, position, low, high, conditions)

            emit_pieces(self.e, 0, width, _cut(rows))

        emit_branches(self.e, body, variables)

    def _rows(
        self, variables: IndexVariables, position: list[Affine], low: int, high: int, known: KnownConditions
    ) -> None:
        def row(i: Expr) -> None:
            own = variables.child()
            along = own.add(ALONG, i, low, high - 1)
            place = Row(own, [*position, along], constant(0), constant(0))
            emit_pieces(self.e, 0, self.length, lambda first, last: self._vectors(place, first, last, known))

        self.e.loop(low, high, row)


def _cut(body: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """A body that asks for a cut where a condition on :data:`ALONG` alone changes."""

    def cut(low: int, high: int) -> None:
        try:
            body(low, high)
        except NeedsBranch as branch:
            if [name for name, _ in branch.position.terms] != [ALONG]:
                raise
            raise NeedsSplit(_changes(branch.position)) from None

    return cut


def _changes(position: Affine) -> int:
    """The least value of its variable from which on ``position <= 0`` is otherwise than before it."""
    ((_, step),) = position.terms
    return -position.constant // step + 1 if step > 0 else -(-position.constant // -step)
