"""The plan of a row kernel: which reductions a row needs, in which order, and along which axis the lanes run.

The axes of the output on which the reductions depend are the rows ("outer" axes); along the others ("inner"
axes) the reductions' results stay the same. Where lanes run along the reduced axis, the kernel is called
horizontal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import tvm_ffi
from tvm.ir import Call, Expr, TensorLoad
from tvm.tirx import Buffer, Var

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.analysis.access_analysis import (
    Accesses,
    Axes,
    analyse_accesses,
    gathers,
    merge_axes,
)
from edgepack.compiler.kernels.cpu.analysis.operands import mixed_lanes
from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.cpu.rows.reduction import Reduction, is_among
from edgepack.compiler.kernels.expressions.operations import FLOATS
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget

__all__ = ["PlannedReduction", "RowPlan"]

#: What a row may keep in scratch, in bytes.
SCRATCH_BYTES = 256 * 1024

#: Reductions of one row.
MOST_REDUCTIONS = 16


@dataclass(frozen=True)
class PlannedReduction:
    """A reduction that a row needs.

    Attributes:
        reduction: what is reduced.
        position: where the row needs its result, in terms of the output's axes.
        axes: those that are reduced.
        accesses: of the reduced expression.
        runs: indices of ``axes``, in runs that are walked as one axis.
    """

    reduction: Reduction
    position: tuple[Affine, ...]
    axes: Axes
    accesses: Accesses
    runs: list[list[int]]

    def contiguous_loads(self) -> int:
        """Loads that are contiguous along the innermost reduced axis of more than one element."""
        innermost = [i for i, n in enumerate(self.axes.extents) if n > 1][-1:]
        return sum(self.axes.step(x, i) == 1 for i in innermost for _, x in self.accesses.addresses)

    def gathers(self) -> bool:
        """Whether a load is neither contiguous along the innermost reduced axis nor the same along it."""
        innermost = [i for i, n in enumerate(self.axes.extents) if n > 1][-1:]
        return any(gathers(self.axes, i, self.accesses) for i in innermost)


class RowPlan:
    """What a row is, and what it computes.

    Args:
        blocks: of the fused function, the last of which writes the output; every one writes at its own
            iteration variables.
        buffers: the function's parameters, then its output.

    Attributes:
        params, output: the buffers.
        reductions, blocks: the blocks by the buffer that they write, reductions apart.
        axes: of the output, and ``extents`` of them.
        last: the elementwise block that writes the output; None where a reduction does.
        accesses: of the last block's expression.
        needed: the reductions of a row, each behind those that it needs itself.
        horizontal: whether lanes run along the reduced axis, rather than along an axis of the output.
        lanes: elements of a vector.
        lane_axis: the output's last axis of more than one element.
        outer, inner: axes on which the reductions depend, and the others of more than one element.
        inner_runs: indices of ``inner``, in runs that are walked as one axis.
        materialised: blocks whose rows are kept in scratch, each with the number of the reduction that
            computes it.

    Raises:
        RuleError: for what has no such plan.
    """

    def __init__(self, blocks: Sequence[Block], buffers: Sequence[Buffer], target: CpuTarget) -> None:
        self.params, self.output = buffers[:-1], buffers[-1]
        self.reductions = {b.target: Reduction.of(b) for b in blocks if b.reductions}
        self.blocks = {b.target: b for b in blocks if not b.reductions}
        if not blocks[-1].target.same_as(self.output):
            raise RuleError("the output is not the last block's")
        self.last = None if blocks[-1].reductions else blocks[-1]
        self.extents = tuple(int(d) for d in self.output.shape)
        self._variables = IndexVariables()
        self.axes = Axes.declare(self._variables, "a", self.extents)
        self.needed: list[PlannedReduction] = []
        self.accesses = Accesses()
        if self.last is None:
            self._need(self.output, self.axes.positions)
        else:
            env = dict(zip(self.last.iters, self.axes.positions, strict=True))
            self.accesses = self._analyse(self.last.value, env, self._variables)
            self._need_all(self.accesses)
        if not self.needed:
            raise RuleError("the output needs no reduction")
        dependent = {self.axes.axis(n) for r in self.needed for p in r.position for n, _ in p.terms}
        rank = range(len(self.extents))
        self.outer = [i for i in rank if i in dependent]
        self.inner = [i for i in rank if i not in dependent and self.extents[i] > 1]
        self.inner_runs = merge_axes(self.axes.picked(self.inner), self.accesses)
        self.lane_axis = next((i for i in reversed(rank) if self.extents[i] > 1), None)
        self.horizontal = self._is_horizontal()
        self.lanes = mixed_lanes(target)
        if not self.horizontal:
            while self.lanes > self.extents[self.lane_axis or 0]:
                self.lanes //= 2
        self.materialised = self._materialised()

    def _analyse(self, value: Expr, env: Mapping[Var, Affine], variables: IndexVariables) -> Accesses:
        return analyse_accesses(value, env, variables, self.blocks, self.params, set(self.reductions))

    def _need_all(self, accesses: Accesses) -> None:
        """Adds the reductions that an expression reads."""
        for buffer, position in accesses.computed_reads:
            if not any(
                r.reduction.block.target.same_as(buffer) and r.position == position for r in self.needed
            ):
                self._need(buffer, position)

    def _need(self, buffer: Buffer, position: tuple[Affine, ...]) -> None:
        """Adds a reduction behind those that it needs itself."""
        if len(self.needed) > MOST_REDUCTIONS:
            raise RuleError("too many reductions")
        reduction = self.reductions[buffer]
        if any(self.axes.axis(n) is None for p in position for n, _ in p.terms):
            raise RuleError("a reduction for each element of another")
        variables = self._variables.child()
        axes = Axes.declare(variables, "r", [n for _, n in reduction.axes()])
        env = {
            **dict(zip(reduction.spatial, position, strict=True)),
            **{v: at for (v, _), at in zip(reduction.axes(), axes.positions, strict=True)},
        }
        accesses = self._analyse(reduction.value, env, variables)
        self._need_all(accesses)
        self.needed.append(PlannedReduction(reduction, position, axes, accesses, merge_axes(axes, accesses)))

    def _is_horizontal(self) -> bool:
        """Whether more loads are contiguous along the reduced axis than along the output's last one."""
        along = sum(r.contiguous_loads() for r in self.needed)
        across = 0
        if self.lane_axis is not None and self.lane_axis in self.outer:
            addresses = [x for r in self.needed for _, x in r.accesses.addresses]
            across = sum(self.axes.step(x, self.lane_axis) == 1 for x in addresses)
        if along < across:
            return False
        if self.lane_axis in self.outer and self.inner:
            raise RuleError("rows across the output's last axis")
        return True

    def cost(self) -> int:
        """Operations of one row; where lanes are output positions, of one lane."""
        inner = prod(self.extents[i] for i in self.inner) * (self.accesses.cost + 2)
        return inner + sum(prod(r.axes.extents) * (r.accesses.cost + 1) for r in self.needed)

    def gathers(self) -> bool:
        """Whether a reduction reads anything neither along the lanes nor the same for all of them."""
        if self.horizontal:
            return any(r.gathers() for r in self.needed)
        lane = self.lane_axis
        return lane is not None and any(gathers(self.axes, lane, r.accesses) for r in self.needed)

    def _materialised(self) -> dict[Buffer, int]:
        """Blocks to keep in scratch: for each, the reduction whose pass computes all of it."""
        if not self.horizontal:
            return {}
        found = {}
        for target, block in self.blocks.items():
            if target.same_as(self.output) or str(target.dtype) not in FLOATS:
                continue
            number = self._covering(block)
            if number is not None:
                found[target] = number
        return found

    def _covering(self, block: Block) -> int | None:
        """The reduction whose pass reads all of a row of the block, each element at its own position; None
        where there is none or where computing the block again is cheaper than keeping it."""
        shape = tuple(int(d) for d in block.target.shape)
        row = prod(shape[i] for i in self.inner) if shape == self.extents else 0
        itemsize = DTYPE_BYTES[str(block.target.dtype)]
        if not row or not _has_calls(block.value) or itemsize * row > SCRATCH_BYTES:
            return None
        for number, needed in enumerate(self.needed):
            reduction = needed.reduction
            axes = [v for v, _ in reduction.axes()]
            for load in _loads_of(reduction.value, block.target):
                varying = [i for i in load.indices if not is_among(i, reduction.spatial)]
                own = [load.indices[k] for k in self.inner]
                if len(varying) == len(own) == len(axes) and all(
                    a.same_as(v) and b.same_as(v) for a, b, v in zip(varying, own, axes, strict=True)
                ):
                    return number
        return None


def _loads_of(x: Expr, buffer: Buffer) -> list[TensorLoad]:
    found: list[TensorLoad] = []

    def visit(load: TensorLoad) -> None:
        if load.source.same_as(buffer):
            found.append(load)

    tvm_ffi.structural_walk(x, (TensorLoad, visit))
    return found


def _has_calls(x: Expr) -> bool:
    found: list[Call] = []
    tvm_ffi.structural_walk(x, (Call, found.append))
    return bool(found)
