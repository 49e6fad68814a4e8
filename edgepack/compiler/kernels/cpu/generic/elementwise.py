"""Rule ``elementwise``: groups without a reduction, one vector of the output's last axis at a time.

Neighbouring axes that every operand walks in step are one axis. The output is cut in rows along its last
axis. Conditions on positions (concatenation, padding) are decided per row by a branch outside of the loop
over the row, or by cutting the row; within a piece they are gone. A row ends with a vector that overlaps its
predecessor, so nothing is left over for scalars. Where an operand runs along another axis (a transpose), a
square tile of it is loaded along that axis and transposed in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, Operand, RuleError, Stage
from edgepack.compiler.kernels.cpu.analysis.access_analysis import Survey, axis_variables, merged, survey
from edgepack.compiler.kernels.cpu.analysis.branch_splitting import (
    attempt,
    cover,
    in_pieces,
    writes_its_own_position,
)
from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables, constant
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter, index, unravel
from edgepack.compiler.kernels.cpu.emit.register_transpose import TileVectors
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block, blocks_of
from edgepack.compiler.kernels.cpu.emit.values import storage_dtype
from edgepack.compiler.kernels.cpu.emit.vectors import Vectors
from edgepack.compiler.kernels.rule import EVERY_DTYPE, Rule
from edgepack.plan.target import CpuTarget

__all__ = ["elementwise"]

#: Operations of a task: less is not worth handing to a thread.
TASK_COST = 16 * 1024


def elementwise(group: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Rule ``elementwise``. RuleError for a group with a reduction or without a vector form."""
    blocks = blocks_of(group.function)
    if any(block.reductions or not writes_its_own_position(block) for block in blocks):
        raise RuleError("not elementwise")
    buffers = tuple(group.function.params)
    params, outputs = buffers[: -group.outputs], buffers[-group.outputs :]
    by_target = {block.target: block for block in blocks}
    stages = []
    tiled = False
    for number, output in enumerate(outputs):
        if output not in by_target:
            raise RuleError("an output that no block writes")
        kernel = _Kernel(by_target, params, by_target[output], target)
        stages.append(kernel.stage(number))
        tiled = tiled or kernel.tile is not None
    parameters = {"lanes": target.lanes("float32"), "tiled": tiled}
    flops = sum(prod(block.extents) for block in blocks if block.target.dtype == "float32")
    return Implementation("elementwise", tuple(stages), parameters=parameters, flops=flops)


@dataclass(frozen=True)
class _Tile:
    """Rows that are computed together because an operand is contiguous along their axis."""

    axis: int
    rows: int


class _Kernel:
    """One output."""

    def __init__(
        self, blocks: dict[Any, Block], params: Sequence[Any], block: Block, target: CpuTarget
    ) -> None:
        self.blocks, self.params, self.block, self.target = blocks, params, block, target
        self.lanes = target.lanes("float32")
        self.e = Emitter(self.lanes, target)
        found = self._survey()
        self.used = [i for i, p in enumerate(params) if any(b.same_as(p) for b, _ in found.addresses)]
        self.pointers = {params[i]: self._pointer(params[i]) for i in self.used}
        self.output = self._pointer(block.target)
        names = [f"a{i}" for i in range(len(block.iters))]
        self.runs = merged(names, block.extents, found) or [[]]
        self.extents = [prod(block.extents[i] for i in run) for run in self.runs]
        while len(self.extents) > 1 and self.extents[-1] == 1:
            self.extents.pop()
            self.runs[-2:] = [self.runs[-2] + self.runs[-1]]
        self.tile = self._tile(found)
        self.cost = found.cost + 2 * len(found.addresses)
        self.cuttable = any(f"a{i}" in found.fixed for i in self.runs[-1])

    def _survey(self) -> Survey:
        variables = IndexVariables()
        env = dict(zip(self.block.iters, axis_variables(variables, "a", self.block.extents), strict=True))
        e = Emitter(1)
        pointers = {
            p: e.pointer(prod(int(d) for d in p.shape), storage_dtype(str(p.dtype))) for p in self.params
        }
        return survey(self.block.value, env, variables, self.blocks, pointers)

    def _pointer(self, buffer: Any) -> Any:
        return self.e.pointer(prod(int(d) for d in buffer.shape), storage_dtype(str(buffer.dtype)))

    def _tile(self, found: Survey) -> _Tile | None:
        """The axis along which most loads that are not contiguous along the lanes are contiguous."""
        if len(self.runs) < 2 or self.lanes == 1:
            return None
        last = self._step_variable(len(self.runs) - 1)
        votes = [0] * (len(self.runs) - 1)
        for buffer, address in found.addresses:
            if str(buffer.dtype) != "float32" or address.coefficient(last) in {0, 1}:
                continue
            for axis in range(len(votes)):
                votes[axis] += address.coefficient(self._step_variable(axis)) == 1
        best = max(range(len(votes)), key=votes.__getitem__)
        size = min(self.lanes, 8)
        while size > self.extents[best]:
            size //= 2
        while size > self.extents[-1] and self.extents[-1] > 4:
            size //= 2
        return _Tile(best, size) if votes[best] and size >= min(4, self.lanes) else None

    def _step_variable(self, run: int) -> str:
        """The variable of the innermost axis of a run that has more than one element."""
        axes = [i for i in self.runs[run] if self.block.extents[i] > 1] or self.runs[run]
        return f"a{axes[-1]}"

    # Emission ---------------------------------------------------------------------------------------------

    def stage(self, output: int) -> Stage:
        tasks = self._emit_tiles() if self.tile else self._emit_rows()
        operands = [*(Operand("param", i) for i in self.used), Operand("output", output)]
        return Stage(self.e.finish(), tasks, tuple(operands))

    def _emit_rows(self) -> int:
        """Tasks are runs of rows, or pieces of long rows."""
        e = self.e
        outer, length = self.extents[:-1], self.extents[-1]
        rows = prod(outer)
        elements = max(self.lanes, TASK_COST // self.cost // self.lanes * self.lanes)
        if length >= 2 * elements and not self.cuttable:
            pieces = length // elements
            each = length // pieces // self.lanes * self.lanes

            def piece(t: Any) -> None:
                row, part = unravel(t, [rows, pieces])
                e.branch(
                    index(part) < index(pieces - 1),
                    lambda: self._piece(outer, row, part, each, each),
                    lambda: self._piece(outer, row, part, each, length - each * (pieces - 1)),
                )

            e.tasks(piece)
            return rows * pieces
        per_task = min(rows, max(1, elements // length))

        def task(t: Any) -> None:
            begin = e.let(t * per_task)
            e.loop(begin, e.let(tirx.min(begin + per_task, index(rows))), lambda r: self._row(outer, r))

        e.tasks(task)
        return -(-rows // per_task)

    def _piece(self, outer: Sequence[int], row: Any, part: Any, each: int, length: int) -> None:
        """``length`` elements of a long row from ``part * each`` on."""
        variables = IndexVariables()
        position = self._outer(variables, outer, row)
        start = variables.add("start", self.e.let(part * each), 0, self.extents[-1] - length)

        def body(facts: dict[Affine, bool]) -> None:
            self._vectors(variables, position, start, 0, length, facts)

        attempt(self.e, body, variables)

    def _row(self, outer: Sequence[int], row: Any) -> None:
        variables = IndexVariables()
        position = self._outer(variables, outer, row)

        def body(facts: dict[Affine, bool]) -> None:
            def piece(low: int, high: int) -> None:
                self._vectors(variables, position, constant(0), low, high, facts)

            in_pieces(self.e, 0, self.extents[-1], piece)

        attempt(self.e, body, variables)

    def _outer(self, variables: IndexVariables, outer: Sequence[int], row: Any) -> list[Affine]:
        """The position along the runs but the last."""
        found = []
        for axis, (i, extent) in enumerate(zip(unravel(row, outer), outer, strict=True)):
            found.append(
                constant(i) if isinstance(i, int) else variables.add(f"o{axis}", self.e.let(i), 0, extent - 1)
            )
        return found

    def _vectors(
        self,
        outer: IndexVariables,
        position: Sequence[Affine],
        start: Affine,
        low: int,
        high: int,
        facts: dict[Affine, bool],
    ) -> None:
        """Elements [start + low, start + high) of a row."""
        lanes, whole, overlapping = cover(high - low, self.lanes)

        def at(first: Affine, variables: IndexVariables) -> None:
            last = start + first + Affine(0, (), 1)
            reader = Vectors(self.e, lanes, variables, self.blocks, self.pointers, facts, "x", first.constant)
            self._store(reader, [*position, last])

        def step(i: Any) -> None:
            variables = outer.child()
            if type(i).__name__ == "IntImm":
                at(constant(low), variables)
                return
            x = self.e.let(i * index(lanes) + index(low))
            at(variables.add("x", x, low, low + whole - lanes), variables)

        self.e.loop(0, whole // lanes, step)
        if overlapping is not None:
            at(constant(low + overlapping), outer.child())

    def _store(self, reader: Vectors, position: Sequence[Affine]) -> None:
        """Evaluates and stores a vector at a position along the runs."""
        block = self.block
        env = {v: constant(0) for v in block.iters}
        address = constant(0)
        for run, extent, at in zip(self.runs, self.extents, position, strict=True):
            axes = [i for i in run if block.extents[i] > 1]
            if axes:
                env[block.iters[axes[-1]]] = at
            address = address * extent + at
        dtype = str(block.target.dtype)
        value = reader.value(reader.evaluate(block.value, env), dtype)
        if dtype == "bool":
            vector = "int8" if value.lanes == 1 else f"int8x{value.lanes}"
            expr = self.e.splat(tirx.Cast(vector, value.expr), reader.lanes // value.lanes)
            if value.lanes == 1:
                expr = self.e.splat(tirx.Cast("int8", value.expr), reader.lanes)
        else:
            expr = reader.expr(value, reader.lanes)
        self.e.vstore(self.output, reader.variables.scalar(address), expr, reader.lanes)

    # Transposes -------------------------------------------------------------------------------------------

    def _emit_tiles(self) -> int:
        """Tasks are strips of tile.rows rows; the last strip overlaps its neighbour inside of one task."""
        e, tile = self.e, self.tile
        assert tile is not None
        outer = [n for axis, n in enumerate(self.extents[:-1]) if axis != tile.axis]
        strips = self.extents[tile.axis] // tile.rows
        ragged = bool(self.extents[tile.axis] % tile.rows)
        rows = prod(outer)
        cost = tile.rows * self.extents[-1] * (self.cost + 2)
        per_task = max(1, min(rows * strips, TASK_COST // cost))

        def strip(s: Any) -> None:
            if rows == 1:
                row, part = index(0), s
            else:
                row, part = unravel(s, [rows, strips]) if strips > 1 else (s, 0)
            begin = part * tile.rows
            self._strip(outer, row, begin)
            if ragged:
                last = strips - 1
                edge = self.extents[tile.axis] - tile.rows
                if strips == 1:
                    self._strip(outer, row, edge)
                else:
                    e.branch(tirx.EQ(index(part), index(last)), lambda: self._strip(outer, row, edge))

        def task(t: Any) -> None:
            begin = e.let(t * per_task)
            e.loop(begin, e.let(tirx.min(begin + per_task, index(rows * strips))), strip)

        e.tasks(task)
        return -(-(rows * strips) // per_task)

    def _strip(self, outer: Sequence[int], row: Any, begin: Any) -> None:
        """``tile.rows`` rows from ``begin`` on along the tile's axis."""
        tile = self.tile
        assert tile is not None
        variables = IndexVariables()
        position = self._outer(variables, outer, row)
        edge = self.extents[tile.axis] - tile.rows
        first = constant(begin) if isinstance(begin, int) else variables.add("t", self.e.let(begin), 0, edge)

        def body(facts: dict[Affine, bool]) -> None:
            def piece(low: int, high: int) -> None:
                self._tiles(variables, position, first, low, high, facts)

            in_pieces(self.e, 0, self.extents[-1], piece)

        attempt(self.e, body, variables)

    def _tiles(
        self,
        outer: IndexVariables,
        position: Sequence[Affine],
        first: Affine,
        low: int,
        high: int,
        facts: dict[Affine, bool],
    ) -> None:
        tile = self.tile
        assert tile is not None
        lanes, whole, overlapping = cover(high - low, tile.rows)

        def at(x: Affine, variables: IndexVariables) -> None:
            shared: dict[Any, Any] = {}
            for r in range(tile.rows):
                place = list(position)
                place.insert(tile.axis, first.plus(r))
                reader = TileVectors(
                    self.e,
                    lanes,
                    variables,
                    self.blocks,
                    self.pointers,
                    facts,
                    "x",
                    x.constant,
                    "t",
                    r,
                    tile.rows,
                    shared,
                )
                self._store(reader, [*place, x + Affine(0, (), 1)])

        def step(i: Any) -> None:
            variables = outer.child()
            if type(i).__name__ == "IntImm":
                at(constant(low), variables)
                return
            at(
                variables.add("x", self.e.let(i * index(lanes) + index(low)), low, low + whole - lanes),
                variables,
            )

        self.e.loop(0, whole // lanes, step)
        if overlapping is not None:
            at(constant(low + overlapping), outer.child())


RULE = Rule("elementwise", order=1000, dtypes=EVERY_DTYPE, apply=elementwise)
