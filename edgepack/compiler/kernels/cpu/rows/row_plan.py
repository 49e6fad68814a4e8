"""What a kernel of rows computes: which reductions, on which axes they depend, where the lanes run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.analysis.access_analysis import Survey, axis_variables, merged, survey
from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.cpu.emit.values import storage_dtype
from edgepack.compiler.kernels.cpu.emit.vector_math import maximum, minimum
from edgepack.plan.target import CpuTarget

__all__ = ["Demand", "Reduction", "RowPlan"]

#: What a row may keep in scratch, in bytes.
SCRATCH_BYTES = 256 * 1024


@dataclass(frozen=True)
class Reduction:
    """``combine`` is Add, Mul, Max or Min of the accumulator and ``value``."""

    block: Block
    combine: str
    value: Any
    identity: float

    @property
    def dtype(self) -> str:
        return str(self.block.target.dtype)

    @property
    def spatial(self) -> list[Any]:
        return [v for v in self.block.iters if not _among(v, self.block.reductions)]

    def axes(self) -> list[tuple[Any, int]]:
        """The reduced iteration variables and their extents."""
        pairs = zip(self.block.iters, self.block.extents, strict=True)
        return [(v, n) for v, n in pairs if _among(v, self.block.reductions)]

    def combined(self, e: Emitter, a: Any, b: Any) -> Any:
        """Two partial results as one."""
        if self.combine in {"Max", "Min"}:
            if self.dtype == "float32":
                return (maximum if self.combine == "Max" else minimum)(e, a, b)
            return (tirx.Max if self.combine == "Max" else tirx.Min)(a, b)
        return a + b if self.combine == "Add" else a * b


def _among(variable: Any, variables: Sequence[Any]) -> bool:
    return any(variable.same_as(v) for v in variables)


def _reduction(block: Block) -> Reduction:
    value = block.value
    combine = type(value).__name__
    if combine not in {"Add", "Mul", "Max", "Min"} or block.init is None:
        raise RuleError(f"{block.name} is not a sum, product, maximum or minimum")
    for accumulator, other in ((value.a, value.b), (value.b, value.a)):
        if type(accumulator).__name__ == "TensorLoad" and accumulator.source.same_as(block.target):
            init = getattr(block.init, "value", None)
            if init is None or (combine == "Add" and init != 0) or (combine == "Mul" and init != 1):
                raise RuleError(f"{block.name} does not start from the identity")
            return Reduction(block, combine, other, init)
    raise RuleError(f"{block.name} does not accumulate")


@dataclass
class Demand:
    """A reduction at a position of the output's axes."""

    reduction: Reduction
    position: tuple[Affine, ...]
    found: Survey
    runs: list[list[int]] = field(default_factory=list)


class RowPlan:
    """What a row is, and what it computes."""

    def __init__(self, blocks: Sequence[Block], buffers: Sequence[Any], target: CpuTarget) -> None:
        self.params, self.output = buffers[:-1], buffers[-1]
        self.reductions = {b.target: _reduction(b) for b in blocks if b.reductions}
        self.blocks = {b.target: b for b in blocks if not b.reductions}
        last = blocks[-1]
        if not last.target.same_as(self.output):
            raise RuleError("the output is not the last block's")
        self.extents = tuple(int(d) for d in self.output.shape)
        self.variables = IndexVariables()
        self.axes = axis_variables(self.variables, "a", self.extents)
        self.pure = bool(last.reductions)
        self.demands: list[Demand] = []
        self.found = Survey()
        if self.pure:
            self._demand(last.target, tuple(self.axes))
        else:
            self.last = last
            self.found = self._survey(last.value, dict(zip(last.iters, self.axes, strict=True)))
            self._follow(self.found)
        if not self.demands:
            raise RuleError("the output needs no reduction")
        self._choose(target)
        self.kept = self._kept()

    def _survey(
        self, value: Any, env: Mapping[Any, Affine], variables: IndexVariables | None = None
    ) -> Survey:
        e = Emitter(1)
        pointers = {
            p: e.pointer(prod(int(d) for d in p.shape), storage_dtype(str(p.dtype))) for p in self.params
        }
        return survey(value, env, variables or self.variables, self.blocks, pointers, set(self.reductions))

    def _follow(self, found: Survey) -> None:
        for buffer, position in found.demands:
            if not any(
                d.reduction.block.target.same_as(buffer) and d.position == position for d in self.demands
            ):
                self._demand(buffer, position)

    def _demand(self, buffer: Any, position: tuple[Affine, ...]) -> None:
        """Adds the reduction behind those that it needs itself."""
        if len(self.demands) > 16:
            raise RuleError("too many reductions")
        reduction = self.reductions[buffer]
        if any(n.startswith(("r", "v")) for p in position for n, _ in p.terms):
            raise RuleError("a reduction for each element of another")
        variables = self.variables.child()
        inner = axis_variables(variables, "r", [n for _, n in reduction.axes()])
        env = {
            **dict(zip(reduction.spatial, position, strict=True)),
            **{v: a for (v, _), a in zip(reduction.axes(), inner, strict=True)},
        }
        found = self._survey(reduction.value, env, variables)
        self._follow(found)
        self.demands.append(Demand(reduction, position, found))

    def _choose(self, target: CpuTarget) -> None:
        """Rows, lanes, and which axes are one."""
        needed = {n for d in self.demands for p in d.position for n, _ in p.terms}
        names = [f"a{i}" for i in range(len(self.extents))]
        self.outer = [i for i, n in enumerate(names) if n in needed]
        self.inner = [i for i, n in enumerate(names) if n not in needed and self.extents[i] > 1]
        lanes = target.lanes("float32")
        lane_axis = next((i for i in reversed(range(len(self.extents))) if self.extents[i] > 1), None)
        loads = [(b, x, d) for d in self.demands for b, x in d.found.addresses]
        innermost = [
            next((f"r{i}" for i, (_, n) in reversed(list(enumerate(d.reduction.axes()))) if n > 1), "")
            for d in self.demands
        ]
        along = sum(
            x.coefficient(r) == 1
            for d, r in zip(self.demands, innermost, strict=True)
            for _, x in d.found.addresses
        )
        across = (
            sum(x.coefficient(f"a{lane_axis}") == 1 for _, x, _ in loads) if lane_axis in self.outer else 0
        )
        self.horizontal = along >= across
        if not self.horizontal and lane_axis is None:
            raise RuleError("no axis for the lanes")
        if self.horizontal and lane_axis in self.outer and self.inner:
            raise RuleError("rows across the output's last axis")
        self.lane_axis = lane_axis
        self.lanes = lanes
        if not self.horizontal:
            while self.lanes > self.extents[lane_axis or 0]:
                self.lanes //= 2
        for d in self.demands:
            extents = [n for _, n in d.reduction.axes()]
            d.runs = merged([f"r{i}" for i in range(len(extents))], extents, d.found)
        inner_extents = [self.extents[i] for i in self.inner]
        self.inner_runs = (
            merged([names[i] for i in self.inner], inner_extents, self.found) if self.inner else []
        )

    def cost(self) -> int:
        """Operations of one row; where lanes are output positions, of one lane."""
        inner = prod(self.extents[i] for i in self.inner) * (self.found.cost + 2)
        return inner + sum(prod(n for _, n in d.reduction.axes()) * (d.found.cost + 1) for d in self.demands)

    def _kept(self) -> dict[Any, int]:
        """Blocks to keep in scratch: for each, the demand whose pass computes all of it."""
        if not self.horizontal:
            return {}
        kept = {}
        for target, block in self.blocks.items():
            if target.same_as(self.output) or str(target.dtype) != "float32":
                continue
            demand = _covering(block, self)
            if demand is not None:
                kept[target] = demand
        return kept


def _covering(block: Block, plan: RowPlan) -> int | None:
    """The demand whose pass reads all of a row of the block, each element at its own position; None where
    there is none or where computing the block again is cheaper than keeping it."""
    shape = tuple(int(d) for d in block.target.shape)
    row = prod(shape[i] for i in plan.inner) if shape == plan.extents else 0
    if not row or not _calls(block.value) or 4 * row > SCRATCH_BYTES:
        return None
    for number, demand in enumerate(plan.demands):
        axes = [v for v, _ in demand.reduction.axes()]
        for load in _loads_of(demand.reduction.value, block.target):
            varying = [i for i in load.indices if not _among(i, demand.reduction.spatial)]
            own = [load.indices[k] for k in plan.inner]
            if len(varying) == len(own) == len(axes) and all(
                a.same_as(v) and b.same_as(v) for a, b, v in zip(varying, own, axes, strict=True)
            ):
                return number
    return None


def _loads_of(x: Any, buffer: Any) -> list[Any]:
    found: list[Any] = []

    def visit(load: Any) -> None:
        if load.source.same_as(buffer):
            found.append(load)

    tvm_ffi.structural_walk(x, (TensorLoad, visit))
    return found


def _calls(x: Any) -> int:
    count = 0

    def visit(_: Any) -> None:
        nonlocal count
        count += 1

    tvm_ffi.structural_walk(x, (Call, visit))
    return count
