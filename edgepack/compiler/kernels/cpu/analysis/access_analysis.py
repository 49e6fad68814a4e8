"""Look at a block before its kernel is emitted: where it reads, what that costs, which axes are one axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables, constant
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.cpu.emit.values import Value
from edgepack.compiler.kernels.cpu.emit.vectors import NeedsBranch, Vectors

__all__ = ["Survey", "axis_variables", "merged", "survey"]

#: What an elementary function costs, in additions.
CALL_COST = 20

#: Branches that a survey follows.
MOST_BRANCHES = 64


@dataclass
class Survey:
    """What one evaluation of a block does.

    Attributes:
        addresses: (buffer, flat address) of each load.
        demands: (buffer, position) of each read of a buffer that is computed beforehand.
        fixed: variables that decide a branch or are computed with: their axes cannot be merged with others.
        cost: operations of one element.
    """

    addresses: list[tuple[Any, Affine]] = field(default_factory=list)
    demands: list[tuple[Any, tuple[Affine, ...]]] = field(default_factory=list)
    fixed: set[str] = field(default_factory=set)
    cost: int = 1


class _Surveyor(Vectors):
    """Evaluates scalars into an emitter that is thrown away."""

    def __init__(
        self, variables: IndexVariables, blocks: Mapping[Any, Block], pointers: Mapping[Any, Any]
    ) -> None:
        super().__init__(Emitter(1), 1, variables, blocks, pointers)
        self.found = Survey()
        self.computed: set[Any] = set()

    def read(self, buffer: Any, at: list[Any]) -> Any:
        if buffer in self.computed:
            positions = tuple(self.position(i) for i in at)
            self.found.demands.append((buffer, positions))
            return Value(self.e.f32(0, 1), 1, str(buffer.dtype))
        return super().read(buffer, at)

    def load_flat(self, buffer: Any, address: Affine) -> Value:
        self.found.addresses.append((buffer, address))
        return super().load_flat(buffer, address)

    def value(self, x: Any, dtype: str) -> Value:
        if isinstance(x, Affine):
            self.found.fixed |= {name for name, _ in x.terms}
        return super().value(x, dtype)

    def _variable(self, expr: Any, low: int, high: int) -> Affine:
        made = super()._variable(expr, low, high)
        self.found.fixed |= {name for name, _ in made.terms}
        return made

    def _positions(self, kind: str, a: Affine, b: Affine) -> Any:
        if kind not in {"Add", "Sub", "Mul"}:
            self.found.fixed |= {name for p in (a, b) for name, _ in p.terms}
        return super()._positions(kind, a, b)

    def _binary(self, kind: str, x: Any, a: Any, b: Any) -> Any:
        self.found.cost += not (isinstance(a, Affine) and isinstance(b, Affine))
        return super()._binary(kind, x, a, b)

    def _call(self, x: Any, env: Mapping[Any, Affine]) -> Any:
        if not str(getattr(x.op, "name", "")).endswith(".if_then_else"):
            self.found.cost += CALL_COST
        return super()._call(x, env)


def axis_variables(variables: IndexVariables, prefix: str, extents: Sequence[int]) -> list[Affine]:
    """A variable for each axis, whose expression is only good for a survey."""
    e = Emitter(1)
    dummy = e.pointer(1, "int32")
    return [
        variables.add(f"{prefix}{i}", e.load(dummy, 0), 0, extent - 1) if extent > 1 else constant(0)
        for i, extent in enumerate(extents)
    ]


def survey(
    value: Any,
    env: Mapping[Any, Affine],
    variables: IndexVariables,
    blocks: Mapping[Any, Block],
    pointers: Mapping[Any, Any],
    computed: set[Any] | frozenset[Any] = frozenset(),
) -> Survey:
    """Evaluates ``value`` with symbolic positions, on both sides of every branch.

    Args:
        computed: buffers that are computed beforehand; reading them is a demand.

    Raises:
        RuleError: if it has no vector form.
    """
    total = Survey()
    pending: list[dict[Affine, bool]] = [{}]
    branches = 0
    while pending:
        facts = pending.pop()
        branches += 1
        if branches > MOST_BRANCHES:
            raise RuleError("too many branches")
        surveyor = _Surveyor(variables.child(), blocks, pointers)
        surveyor.facts, surveyor.computed, surveyor.found = facts, set(computed), Survey(fixed=total.fixed)
        try:
            surveyor.evaluate(value, env)
        except NeedsBranch as needed:
            total.fixed |= {name for name, _ in needed.position.terms}
            pending += [{**facts, needed.position: True}, {**facts, needed.position: False}]
            continue
        total.addresses += surveyor.found.addresses
        total.demands += surveyor.found.demands
        total.cost = max(total.cost, surveyor.found.cost)
    return total


def merged(names: Sequence[str], extents: Sequence[int], found: Survey) -> list[list[int]]:
    """Runs of neighbouring axes that all loads walk as one axis.

    Args:
        names: the axes' variables, outermost first.

    Returns:
        The axes' indices, in runs; axes of one element join any run.
    """
    runs: list[list[int]] = []
    for i in range(len(names)):
        if runs and _joins(runs[-1], i, names, extents, found):
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


def _joins(run: Sequence[int], i: int, names: Sequence[str], extents: Sequence[int], found: Survey) -> bool:
    before = next((k for k in reversed(run) if extents[k] > 1), None)
    if before is None or extents[i] == 1:
        return True
    a, b = names[before], names[i]
    if (
        a in found.fixed
        or b in found.fixed
        or any(p.coefficient(n) for _, at in found.demands for p in at for n in (a, b))
    ):
        return False
    return all(x.coefficient(a) == x.coefficient(b) * extents[i] for _, x in found.addresses)
