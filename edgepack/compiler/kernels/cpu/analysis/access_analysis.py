"""Access analysis: what an expression over the axes of a loop nest reads, and at which addresses.

An expression is evaluated once with a symbolic position along each axis, before any code is emitted. Its
loads then have addresses that are affine in these positions, which tells along which axis a load is
contiguous, what one element costs, and which neighbouring axes can be walked as one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Buffer

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables, constant
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.cpu.emit.values import Value, storage_dtype
from edgepack.compiler.kernels.cpu.emit.vectors import NeedsBranch, Vectors
from edgepack.compiler.kernels.expressions.nodes import Node
from edgepack.compiler.kernels.expressions.operations import Operation

__all__ = ["Accesses", "Axes", "analyse_accesses", "gathers", "merge_axes"]

#: Branches that the analysis of one expression follows.
MOST_BRANCHES = 64


@dataclass(frozen=True)
class Axes:
    """The axes of a loop nest with a symbolic position along each.

    Attributes:
        extents: how many elements each axis has, outermost first.
        positions: an index variable for each axis; the number 0 for an axis of one element.
    """

    extents: tuple[int, ...]
    positions: tuple[Affine, ...]

    @classmethod
    def declare(cls, variables: IndexVariables, prefix: str, extents: Sequence[int]) -> Axes:
        """Declares an index variable for each axis, in ``variables``, for analysis only: code that uses it
        cannot be compiled.

        Args:
            prefix: of the variables' names, which tells these axes from others in the same expression.
        """
        e = Emitter(1)
        dummy = e.param(0, 1, "int32")
        positions = [
            variables.add(f"{prefix}{i}", e.load(dummy, 0), 0, extent - 1) if extent > 1 else constant(0)
            for i, extent in enumerate(extents)
        ]
        return cls(tuple(extents), tuple(positions))

    def picked(self, axes: Sequence[int]) -> Axes:
        """These of the axes, in this order."""
        return Axes(tuple(self.extents[i] for i in axes), tuple(self.positions[i] for i in axes))

    def variable(self, axis: int) -> str | None:
        """Name of the index variable along an axis; None for one of one element."""
        terms = self.positions[axis].terms
        return terms[0][0] if terms else None

    def axis(self, variable: str) -> int | None:
        """The axis along which an index variable runs; None where it runs along none of these."""
        return next((i for i in range(len(self.extents)) if self.variable(i) == variable), None)

    def step(self, address: Affine, axis: int) -> int:
        """How far an address moves from one element of an axis to the next."""
        variable = self.variable(axis)
        return 0 if variable is None else address.coefficient(variable)


@dataclass
class Accesses:
    """What the evaluation of an expression reads and costs.

    Attributes:
        addresses: (buffer, flat address in elements) of each load.
        computed_reads: (buffer, position) of each read of a buffer that is computed beforehand.
        unmergeable: index variables that decide a branch or are computed with: their axes cannot be merged
            with others.
        computed: index variables whose value is computed, from what is read or otherwise than as a multiple.
        cost: operations of one element.
    """

    addresses: list[tuple[Buffer, Affine]] = field(default_factory=list)
    computed_reads: list[tuple[Buffer, tuple[Affine, ...]]] = field(default_factory=list)
    unmergeable: set[str] = field(default_factory=set)
    computed: set[str] = field(default_factory=set)
    cost: int = 1


class _Recorder(Vectors):
    """Evaluates one element into an emitter that is thrown away, and records what it reads.

    Args:
        pointers: flat arrays of that emitter, by buffer.
        computed: buffers that are computed beforehand.
        conditions: as for :class:`Vectors`.
    """

    def __init__(
        self,
        variables: IndexVariables,
        blocks: Mapping[Buffer, Block],
        pointers: Mapping[Buffer, Buffer],
        computed: set[Buffer],
        conditions: Mapping[Affine, bool],
    ) -> None:
        super().__init__(Emitter(1), 1, variables, blocks, pointers, conditions)
        self.found = Accesses()
        self.computed = computed

    def read(self, buffer: Buffer, at: list[Any]) -> Any:
        if buffer in self.computed:
            positions = tuple(self.position(i) for i in at)
            self.found.computed_reads.append((buffer, positions))
            return Value(tirx.const(0, str(buffer.dtype)), 1, str(buffer.dtype))
        return super().read(buffer, at)

    def load_flat(self, buffer: Buffer, address: Affine) -> Value:
        self.found.addresses.append((buffer, address))
        return super().load_flat(buffer, address)

    def look_up(self, table: Buffer, x: Value) -> Value:
        self.found.addresses.append((table, constant(0)))
        return super().look_up(table, x)

    def value(self, x: Any, dtype: str) -> Value:
        if isinstance(x, Affine):
            self._mark_unmergeable(x)
        return super().value(x, dtype)

    def _mark_unmergeable(self, *positions: Affine) -> None:
        self.found.unmergeable |= {name for p in positions for name, _ in p.terms}

    def _at_most(self, d: Affine) -> bool:
        """What the bounds of axes decide is decided for these axes by themselves."""
        self._mark_unmergeable(d)
        return super()._at_most(d)

    def _variable(self, expr: Expr, low: int, high: int) -> Affine:
        made = super()._variable(expr, low, high)
        self._mark_unmergeable(made)
        self.found.computed |= {name for name, _ in made.terms}
        return made

    def _positions(self, operation: Operation, a: Affine, b: Affine) -> Any:
        if operation.name not in {"add", "sub", "mul"}:
            self._mark_unmergeable(a, b)
        return super()._positions(operation, a, b)

    def operate(self, node: Node, operands: Sequence[Any]) -> Any:
        if not all(isinstance(x, Affine) for x in operands):
            self.found.cost += node.operation.cost
        return super().operate(node, operands)


def analyse_accesses(
    value: Expr,
    env: Mapping[Any, Affine],
    variables: IndexVariables,
    blocks: Mapping[Buffer, Block],
    params: Sequence[Buffer],
    computed: set[Buffer] | frozenset[Buffer] = frozenset(),
) -> Accesses:
    """What one element of an expression reads, on both sides of every branch.

    Args:
        env: position of each iteration variable of the expression, in terms of ``variables``.
        blocks: elementwise blocks by the buffer that they write; reading that evaluates the block.
        params: buffers that lie in memory.
        computed: buffers that are computed beforehand; reads of them are recorded, not evaluated.

    Raises:
        RuleError: if the expression has no vector form.
    """
    e = Emitter(1)
    pointers = {
        p: e.param(i, prod(int(d) for d in p.shape), storage_dtype(str(p.dtype)))
        for i, p in enumerate(params)
    }
    total = Accesses()
    pending: list[dict[Affine, bool]] = [{}]
    branches = 0
    while pending:
        conditions = pending.pop()
        branches += 1
        if branches > MOST_BRANCHES:
            raise RuleError("too many branches")
        recorder = _Recorder(variables.child(), blocks, pointers, set(computed), conditions)
        recorder.found.unmergeable = total.unmergeable
        try:
            recorder.visit(value, env)
        except NeedsBranch as branch:
            total.unmergeable |= {name for name, _ in branch.position.terms}
            pending += [{**conditions, branch.position: True}, {**conditions, branch.position: False}]
            continue
        total.addresses += recorder.found.addresses
        total.computed_reads += recorder.found.computed_reads
        total.computed |= recorder.found.computed
        total.cost = max(total.cost, recorder.found.cost)
    return total


def gathers(axes: Axes, axis: int, accesses: Accesses) -> bool:
    """Whether a load is neither contiguous along an axis nor the same along it, as far as that is known: one
    at a computed position is taken for gathered, but where it moves on by one."""

    def scattered(address: Affine) -> bool:
        step = axes.step(address, axis)
        return step not in {0, 1} or (
            not step and any(name in accesses.computed for name, _ in address.terms)
        )

    return any(scattered(address) for _, address in accesses.addresses)


def merge_axes(axes: Axes, accesses: Accesses) -> list[list[int]]:
    """Runs of neighbouring axes that all loads walk as one axis.

    Returns:
        The axes' indices, in runs; axes of one element join any run.
    """
    runs: list[list[int]] = []
    for axis in range(len(axes.extents)):
        if runs and _merges(runs[-1], axis, axes, accesses):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return runs


def _merges(run: Sequence[int], axis: int, axes: Axes, accesses: Accesses) -> bool:
    before = next((k for k in reversed(run) if axes.extents[k] > 1), None)
    if before is None or axes.extents[axis] == 1:
        return True
    if {axes.variable(before), axes.variable(axis)} & accesses.unmergeable:
        return False
    if any(axes.step(p, i) for _, at in accesses.computed_reads for p in at for i in (before, axis)):
        return False
    extent = axes.extents[axis]
    return all(axes.step(x, before) == axes.step(x, axis) * extent for _, x in accesses.addresses)
