"""Loop nests that one kernel can compute together, because each row of what they compute is its own.

A softmax is a maximum of each row, an exponential of each element less that, their sum, and a quotient; a
normalisation two sums of each row, and then each element. What such nests read of each other lies in the same
row: the memory that a group's work items share holds it, and they need one launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm_ffi
from tvm.ir import TensorLoad
from tvm.tirx import Buffer

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.gpu.loop_nests import LoopNest, LoopNests, expanded

__all__ = ["FusedRows", "RowStage", "find_fused_rows"]

#: The dimension of a tensor that tells its elements within a row apart, and one of size 1.
_COLUMN, _ONE = -1, -2


@dataclass(frozen=True)
class RowStage:
    """A nest of a run.

    Attributes:
        nest: with a reduction it computes a number of each row, without one elements of each row.
        rows: the variables of the result's row, in the order of the run's ``rows``.
        reduced_rows: those of the reduction.
        columns: what tells the elements or terms of a row apart, with their extents.
        reused: whether a later nest of the run reads the elements.
        stored: whether anything else does.
    """

    nest: LoopNest
    rows: tuple[Any, ...]
    reduced_rows: tuple[Any, ...]
    columns: tuple[tuple[Any, int], ...]
    reused: bool
    stored: bool

    @property
    def size(self) -> int:
        """Elements or terms of a row."""
        return prod(extent for _, extent in self.columns)


@dataclass(frozen=True)
class FusedRows:
    """Loop nests that follow one another.

    Attributes:
        rows: extents of the dimensions that tell rows apart.
        stages: in order.
        dims: of each tensor that the run computes, what its dimensions are: the number of one of ``rows``, a
            column, or one of size 1.
    """

    rows: tuple[int, ...]
    stages: tuple[RowStage, ...]
    dims: Mapping[Buffer, tuple[int, ...]]

    def column_dimensions(self, buffer: Buffer) -> list[int]:
        """The dimensions of a tensor that run along a row."""
        return [axis for axis, kind in enumerate(self.dims[buffer]) if kind == _COLUMN]


def find_fused_rows(
    nests: LoopNests, outputs: Sequence[Buffer], among: Sequence[LoopNest]
) -> list[FusedRows | LoopNest]:
    """Loop nests in order, those that belong together as a run of at least two.

    Args:
        outputs: tensors that are read after the function.
        among: those of ``nests`` that it is about.
    """
    found: list[FusedRows | LoopNest] = []
    left = list(among)
    while left:
        finder = _Finder(nests, left[0])
        while len(finder.nests) < len(left) and finder.joins(left[len(finder.nests)]):
            pass
        count = len(finder.nests)
        found.append(finder.run(outputs) if count > 1 else left[0])
        left = left[count:]
    return found


class _Finder:
    """Adds nests to a run as long as they fit.

    Attributes:
        nests: those of the run so far, the first one whatever it is.
    """

    def __init__(self, nests: LoopNests, first: LoopNest) -> None:
        self._all, self.nests = nests, [first]
        self._dims: dict[Buffer, tuple[int, ...]] = {}
        self._columns: list[tuple[tuple[Any, int], ...]] = []
        self._rows: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = []
        self.extents: tuple[int, ...] = ()
        block = first.reduction
        if block is None:
            return
        variables, extents = first.spatial
        pairs = [
            (v, r, n) for v, r, n in zip(variables, LoopNest(block).spatial[0], extents, strict=True) if n > 1
        ]
        self.extents = tuple(n for _, _, n in pairs)
        self._add(first, tuple(v for v, _, _ in pairs), tuple(r for _, r, _ in pairs))

    def joins(self, nest: LoopNest) -> bool:
        """Adds a nest; False if it does not fit."""
        if not self._dims:
            return False
        try:
            rows = self._row_variables(nest, nest.result)
            inner = self._row_variables(nest, nest.reduction) if nest.reduction is not None else []
        except RuleError:
            return False
        if None in rows and None in inner:
            return False
        outer = self._matched(nest, rows, inner)
        if outer is None:
            return False
        self.nests.append(nest)
        self._add(nest, *outer)
        return True

    def _matched(
        self, nest: LoopNest, rows: list[Any], inner: list[Any]
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
        """The variables of the row of the result and of the reduction: either may be known by the other, as a
        reduction and what stands behind it have the same positions. None if a row is more than they."""
        if nest.reduction is None:
            return (tuple(rows), ()) if None not in rows else None
        pairs = list(zip(nest.spatial[0], LoopNest(nest.reduction).spatial[0], strict=True))
        for i in range(len(self.extents)):
            if inner[i] is None:
                inner[i] = next((r for v, r in pairs if rows[i] is not None and v.same_as(rows[i])), None)
            rows[i] = next((v for v, r in pairs if inner[i] is not None and r.same_as(inner[i])), None)
        sizes = [n for n in nest.spatial[1] if n > 1]
        alike = None not in rows and None not in inner and len(sizes) == len(self.extents)
        return (tuple(rows), tuple(inner)) if alike else None

    def _row_variables(self, nest: LoopNest, block: Any) -> list[Any]:
        """The block's variables that are the position of the row, by what it reads of the run; None for one
        that nothing tells. RuleError if it reads another row, or elements elsewhere than in its row."""
        found: list[Any] = [None] * len(self.extents)
        sizes = dict(zip(block.iters, block.extents, strict=True))
        own = {nest.reduction.target} if nest.reduction is not None else set()
        for load in _loads(expanded(block.value, self._all.inlined)):
            if load.source in own or load.source not in self._dims:
                continue
            for at, kind in zip(load.indices, self._dims[load.source], strict=True):
                if kind in (_COLUMN, _ONE):
                    continue
                known = next((v for v in sizes if at.same_as(v)), None)
                if known is None or known in block.reductions or sizes[known] != self.extents[kind]:
                    raise RuleError("it reads another row")
                if found[kind] is not None and not found[kind].same_as(known):
                    raise RuleError("it reads two rows")
                found[kind] = known
        named = [v for v in found if v is not None]
        if len(named) != len(set(named)):
            raise RuleError("it reads a diagonal")
        if self.extents == () and not any(
            load.source in self._dims for load in _loads(expanded(block.value, self._all.inlined))
        ):
            raise RuleError("it reads nothing of the run")
        return found

    def _add(self, nest: LoopNest, rows: tuple[Any, ...], reduced_rows: tuple[Any, ...]) -> None:
        block = nest.reduction or nest.result
        sizes = dict(zip(block.iters, block.extents, strict=True))
        own = block.reductions if nest.reduction is not None else block.iters
        columns = tuple((v, sizes[v]) for v in own if sizes[v] > 1 and v not in rows)
        dims = []
        for at, size in zip(nest.result.indices, nest.result.target.shape, strict=True):
            number = next((i for i, v in enumerate(rows) if at.same_as(v)), None)
            dims.append(_ONE if int(size) == 1 else _COLUMN if number is None else number)
        self._dims[nest.result.target] = tuple(dims)
        self._columns.append(columns)
        self._rows.append((rows, reduced_rows))

    def run(self, outputs: Sequence[Buffer]) -> FusedRows:
        """What was added."""
        behind = [nest for nest in self._all.nests if nest not in self.nests]
        stages = []
        for number, nest in enumerate(self.nests):
            target = nest.result.target
            stages.append(
                RowStage(
                    nest,
                    *self._rows[number],
                    self._columns[number],
                    any(self._reads(later, target) for later in self.nests[number + 1 :]),
                    target in outputs or any(self._reads(other, target) for other in behind),
                )
            )
        return FusedRows(self.extents, tuple(stages), dict(self._dims))

    def _reads(self, nest: LoopNest, target: Buffer) -> bool:
        blocks = [nest.result] + ([nest.reduction] if nest.reduction is not None else [])
        loads = [load for b in blocks for load in _loads(expanded(b.value, self._all.inlined))]
        return any(load.source == target for load in loads)


def _loads(x: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(x, (TensorLoad, found.append))
    return found
