"""Kernels of fused groups without a reduction: one vector of the output's last axis at a time.

Neighbouring axes that every operand walks in step are one axis. The output is cut in rows along its last
axis. Conditions on positions (concatenation, padding) are decided per row by a branch outside of the loop
over the row, or by splitting the row; within a piece they are gone. A row ends with a vector that overlaps
its predecessor, so nothing is left over for scalars. Where an operand runs along another axis (a transpose),
a square tile of it is loaded along that axis and transposed in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Buffer

from edgepack.compiler.kernels.contract import Implementation
from edgepack.compiler.kernels.cpu.analysis.access_analysis import (
    Accesses,
    Axes,
    analyse_accesses,
    merge_axes,
)
from edgepack.compiler.kernels.cpu.analysis.branch_splitting import (
    KnownConditions,
    cover,
    emit_branches,
    emit_pieces,
)
from edgepack.compiler.kernels.cpu.analysis.operands import declare_output, declare_param, elements_of
from edgepack.compiler.kernels.cpu.builder import KernelBuilder
from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables, constant
from edgepack.compiler.kernels.cpu.emit.float16 import FLOAT16_BITS
from edgepack.compiler.kernels.cpu.emit.indices import Index, index, unravel
from edgepack.compiler.kernels.cpu.emit.register_transpose import TRANSPOSED, TileRow, TileVectors
from edgepack.compiler.kernels.cpu.emit.tables import LONGEST_PERIOD, Period, periods
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.cpu.emit.vectors import Vectors
from edgepack.compiler.kernels.cpu.generic.walked_rows import Row, Tile
from edgepack.plan.target import CpuTarget

__all__ = ["ElementwiseKernel"]

#: Operations of a task: less is not worth handing to a thread.
TASK_COST = 16 * 1024

#: Rows of a tile that is transposed in registers, at most.
TILE_ROWS = 8

#: Elements of the longest rows that are interleaved of vectors.
MOST_INTERLEAVED = 4

#: Names of index variables: the first lane's position along a row, and the first row of a tile.
LANE_VARIABLE, TILE_VARIABLE = "x", "t"


class ElementwiseKernel(KernelBuilder):
    """Emits the kernel of one output.

    Args:
        blocks: of the fused function, by the buffer that they write.
        params: of the fused function.
        number: of the output, and ``block`` the one that writes it.
        half: indices of the parameters that are stored as float16, each a packed constant.
        lanes: of a vector; 0 for as many as there are.

    Attributes:
        made_of: the arguments but ``lanes``.
        gathered: whether vectors that were emitted are loaded lane by lane.
        shuffled: whether some are made of several that were loaded.
    """

    def __init__(
        self,
        blocks: Mapping[Buffer, Block],
        params: Sequence[Buffer],
        number: int,
        block: Block,
        target: CpuTarget,
        half: Sequence[int] = (),
        *,
        lanes: int = 0,
    ) -> None:
        super().__init__("elementwise", target, dtype=str(block.target.dtype), lanes=lanes)
        self.made_of = (blocks, params, number, block, target, half)
        self.gathered = self.shuffled = False
        self.blocks, self.block = blocks, block
        variables = IndexVariables()
        self.axes = Axes.declare(variables, "a", block.extents)
        env = dict(zip(block.iters, self.axes.positions, strict=True))
        accesses = analyse_accesses(block.value, env, variables, blocks, params)
        self.pointers = {
            p: self.e.packed(half.index(i), elements_of(p), FLOAT16_BITS)
            if i in half
            else declare_param(self.e, i, p)
            for i, p in enumerate(params)
            if any(b.same_as(p) for b, _ in accesses.addresses)
        }
        self.output = declare_output(self.e, number, block.target)
        #: The block's axes in runs that are walked as one axis, and the extents of these.
        self.runs = merge_axes(self.axes, accesses) or [[]]
        self.extents = [prod(block.extents[i] for i in run) for run in self.runs]
        while len(self.extents) > 1 and self.extents[-1] == 1:
            self.extents.pop()
            self.runs[-2:] = [self.runs[-2] + self.runs[-1]]
        self.tile = self._choose_tile(accesses)
        self.cost = accesses.cost + 2 * len(accesses.addresses)
        self.unmergeable, self.computed = accesses.unmergeable, accesses.computed
        #: Whether a condition may split the row.
        self.splittable = any(self.axes.variable(i) in accesses.unmergeable for i in self.runs[-1])
        self.tables = self._row_tables(accesses)
        #: The extents of the axes outside of that which vectors run along, and of that axis.
        self.outer, self.length = self.extents[:-1], self.extents[-1]
        self.interleaved_axes = self._interleaved_axes(accesses)

    @property
    def stores_once(self) -> bool:
        """Whether it stores each element once, and reads what this needs before that: the last vector of a
        row may overlap the one before, and tiles and interleaved rows go another way."""
        return self.length % self.lanes == 0 and self.walks_rows

    @property
    def walks_rows(self) -> bool:
        """Whether tasks are runs of rows, not tiles that are transposed or rows that are interleaved."""
        return self.tile is None and not self.interleaved_axes

    def _choose_tile(self, accesses: Accesses) -> Tile | None:
        """The axis along which most loads that are not contiguous along the lanes are contiguous."""
        if len(self.runs) < 2 or self.lanes == 1:
            return None
        votes = [0] * (len(self.runs) - 1)
        for buffer, address in accesses.addresses:
            if str(buffer.dtype) not in TRANSPOSED or self._step(address, len(self.runs) - 1) in {0, 1}:
                continue
            for run in range(len(votes)):
                votes[run] += self._step(address, run) == 1
        best = max(range(len(votes)), key=votes.__getitem__)
        size = min(self.lanes, TILE_ROWS)
        while size > self.extents[best]:
            size //= 2
        while size > self.extents[-1] and self.extents[-1] > 4:
            size //= 2
        return Tile(best, size) if votes[best] and size >= min(4, self.lanes) else None

    def _interleaved_axes(self, accesses: Accesses) -> tuple[str, ...]:
        """The names of the variables of the axis before the last one, where rows are shorter than vectors and
        what is read runs along that axis: vectors that do so too are interleaved
        (``interleaved_kernel.py``). Empty elsewhere."""
        if len(self.runs) < 2 or not 1 < self.extents[-1] <= MOST_INTERLEAVED < self.lanes:
            return ()
        along = {name for i in self.runs[-2] if (name := self.axes.variable(i))}
        steps = {self._step(address, len(self.runs) - 2) for _, address in accesses.addresses}
        if along & accesses.computed or self.tables or self.extents[-2] < self.lanes:
            return ()
        return tuple(along) if 1 in steps <= {0, 1} else ()

    def _row_tables(self, accesses: Accesses) -> list[tuple[int, ...]]:
        """What the elements of a row look up in tables that are known, each from the row's begin on."""
        along = {((self.axes.variable(i), 1),) for i in self.runs[-1]}
        known = dict(block.table for block in self.blocks.values() if block.table)
        found = {
            (buffer, at.constant)
            for buffer, at in accesses.addresses
            if buffer in known and at.terms in along and at.constant >= 0
        }
        return [known[buffer][first:] for buffer, first in found] if self.lanes > 1 else []

    def _step(self, address: Affine, run: int) -> int:
        """How far an address moves from one element of a run of axes to the next."""
        axes = [i for i in self.runs[run] if self.block.extents[i] > 1] or self.runs[run]
        return self.axes.step(address, axes[-1])

    def parameters(self) -> dict[str, Any]:
        return {"lanes": self.lanes, "tiled": self.tile is not None}

    def build(self) -> Implementation:
        tasks = self._emit_tiles(self.tile) if self.tile else self.emit_rows()
        flops = prod(self.block.extents)
        return Implementation(self.rule, (self.e.stage(tasks),), parameters=self.parameters(), flops=flops)

    # Rows -------------------------------------------------------------------------------------------------

    def emit_rows(self) -> int:
        """Emits tasks of whole rows, or of pieces of long rows; returns how many tasks there are."""
        e = self.e
        length, rows = self.length, prod(self.outer)
        elements = max(self.lanes, TASK_COST // self.cost // self.lanes * self.lanes)
        if length >= 2 * elements and not self.splittable and not self.tables:
            pieces = length // elements
            each = length // pieces // self.lanes * self.lanes

            def piece(t: Expr) -> None:
                row, part = unravel(t, [rows, pieces])
                e.branch(
                    index(part) < index(pieces - 1),
                    lambda: self.piece(row, part * each, each),
                    lambda: self.piece(row, part * each, length - each * (pieces - 1)),
                )

            e.tasks(piece)
            return rows * pieces
        per_task = min(rows, max(1, elements // length))

        def task(t: Expr) -> None:
            begin = e.let(t * per_task)
            e.loop(begin, e.let(tirx.min(begin + per_task, index(rows))), self.row)

        e.tasks(task)
        return -(-rows // per_task)

    def piece(self, row: Index, begin: Index, length: int) -> None:
        """``length`` elements of a long row from ``begin`` on."""
        variables = IndexVariables()
        position = self._outer(variables, self.outer, row)
        start = variables.add("start", self.e.let(begin), 0, self.length - length)
        place = Row(variables, position, start, constant(0))
        emit_branches(self.e, lambda conditions: self._vectors(place, 0, length, conditions), variables)

    def row(self, row: Index) -> None:
        variables = IndexVariables()
        position = self._outer(variables, self.outer, row)
        place = Row(variables, position, constant(0), constant(0))

        def body(conditions: KnownConditions) -> None:
            emit_pieces(self.e, 0, self.length, lambda low, high: self._vectors(place, low, high, conditions))

        emit_branches(self.e, body, variables)

    def _outer(self, variables: IndexVariables, outer: Sequence[int], row: Index) -> list[Affine]:
        """The position of a row along axes of the extents ``outer``."""
        found = []
        for axis, (i, extent) in enumerate(zip(unravel(row, outer), outer, strict=True)):
            found.append(
                constant(i) if isinstance(i, int) else variables.add(f"o{axis}", self.e.let(i), 0, extent - 1)
            )
        return found

    def _vectors(self, row: Row, low: int, high: int, conditions: KnownConditions) -> None:
        """Elements [start + low, start + high) of a row."""
        covered = cover(high - low, self.lanes)
        lanes, whole = covered.lanes, covered.whole

        def at(first: Affine, variables: IndexVariables) -> None:
            def reader() -> Vectors:
                scope = self.e, lanes, variables, self.blocks, self.pointers
                return Vectors(*scope, conditions, LANE_VARIABLE, first.constant)

            self.vector(reader, [*row.position, row.start + first])

        def vectors(period: Period) -> None:
            step, begin = period.vectors * lanes, low + period.first * lanes

            def iteration(i: Expr) -> None:
                for first in range(begin, begin + step, lanes):
                    variables = row.variables.child()
                    last = first + (period.times - 1) * step
                    at(self._lane_position(variables, i, step, first, last), variables)
                self.e.not_unrolled(i)

            self.e.loop(0, period.times, iteration)

        for period in self._periods(low, whole // lanes, lanes):
            vectors(period)
        if covered.overlapping is not None:
            at(constant(low + covered.overlapping), row.variables.child())

    def vector(self, reader: Callable[[], Vectors], first: Sequence[Affine]) -> None:
        """Evaluates and stores a vector.

        Args:
            first: position of its first element along the outer axes and that which vectors run along.
        """
        self.store(reader(), [*first[:-1], first[-1] + Affine(0, (), 1)])

    def _periods(self, low: int, count: int, lanes: int) -> list[Period]:
        """The loops over ``count`` vectors from ``low`` on."""
        if not self.tables:
            return [Period(0, 1, count)]
        longest = 1 if self.splittable else LONGEST_PERIOD
        found = periods([table[low:] for table in self.tables], count, lanes, longest)
        return found or [Period(0, 1, count)]

    def _lane_position(self, variables: IndexVariables, i: Expr, step: int, low: int, high: int) -> Affine:
        """The first lane's position of iteration ``i`` from ``low`` on, which is at most ``high``."""
        if isinstance(i, tirx.IntImm):
            return constant(low)
        return (variables.add(LANE_VARIABLE, i, 0, (high - low) // step) * step).plus(low)

    def store(self, reader: Vectors, position: Sequence[Affine]) -> None:
        """Evaluates and stores a vector at a position along the merged axes."""
        expr = self.evaluated(reader, position)
        self.e.vstore(self.output, reader.variables.scalar(self.address(position)), expr, reader.lanes)

    def address(self, position: Sequence[Affine]) -> Affine:
        """The flat address of a position along the merged axes."""
        address = constant(0)
        for extent, at in zip(self.extents, position, strict=True):
            address = address * extent + at
        return address

    def evaluated(self, reader: Vectors, position: Sequence[Affine]) -> Expr:
        """A vector of the output, as it is stored."""
        block = self.block
        env = {v: constant(0) for v in block.iters}
        for run, at in zip(self.runs, position, strict=True):
            axes = [i for i in run if block.extents[i] > 1]
            if axes:
                env[block.iters[axes[-1]]] = at
        dtype = str(block.target.dtype)
        value = reader.value(reader.visit(block.value, env), dtype)
        self.gathered |= reader.gathered
        self.shuffled |= reader.shuffled
        if dtype != "bool":
            return reader.expr(value, reader.lanes)
        if value.lanes == 1:
            return self.e.splat(tirx.Cast("int8", value.expr), reader.lanes)
        return self.e.splat(tirx.Cast(f"int8x{value.lanes}", value.expr), reader.lanes // value.lanes)

    # Transposes -------------------------------------------------------------------------------------------

    def _emit_tiles(self, tile: Tile) -> int:
        """Emits tasks of strips of ``tile.rows`` rows, of which the last one overlaps its neighbour inside of
        one task; returns how many tasks there are."""
        e = self.e
        outer = [n for axis, n in enumerate(self.extents[:-1]) if axis != tile.axis]
        length = self.extents[tile.axis]
        strips = length // tile.rows
        rows = prod(outer)
        cost = tile.rows * self.extents[-1] * (self.cost + 2)
        per_task = max(1, min(rows * strips, TASK_COST // cost))

        def strip(s: Index) -> None:
            if rows == 1:
                row, part = index(0), s
            else:
                row, part = unravel(s, [rows, strips]) if strips > 1 else (s, 0)
            self._strip(tile, outer, row, part * tile.rows)
            if length % tile.rows == 0:
                return
            edge = length - tile.rows
            if strips == 1:
                self._strip(tile, outer, row, edge)
            else:
                last = tirx.EQ(index(part), index(strips - 1))
                e.branch(last, lambda: self._strip(tile, outer, row, edge))

        def task(t: Expr) -> None:
            begin = e.let(t * per_task)
            e.loop(begin, e.let(tirx.min(begin + per_task, index(rows * strips))), strip)

        e.tasks(task)
        return -(-(rows * strips) // per_task)

    def _strip(self, tile: Tile, outer: Sequence[int], row: Index, begin: Index) -> None:
        """``tile.rows`` rows from ``begin`` on along the tile's axis."""
        variables = IndexVariables()
        position = self._outer(variables, outer, row)
        edge = self.extents[tile.axis] - tile.rows
        if isinstance(begin, int):
            first = constant(begin)
        else:
            first = variables.add(TILE_VARIABLE, self.e.let(begin), 0, edge)
        strip = Row(variables, position, constant(0), first)

        def body(conditions: KnownConditions) -> None:
            emit_pieces(
                self.e, 0, self.extents[-1], lambda low, high: self._tiles(tile, strip, low, high, conditions)
            )

        emit_branches(self.e, body, variables)

    def _tiles(self, tile: Tile, strip: Row, low: int, high: int, conditions: KnownConditions) -> None:
        """Elements [low, high) of all rows of a strip, a square tile at a time."""
        covered = cover(high - low, tile.rows)
        lanes, whole = covered.lanes, covered.whole

        def at(x: Affine, variables: IndexVariables) -> None:
            shared: dict[Any, Any] = {}
            for r in range(tile.rows):
                place = list(strip.position)
                place.insert(tile.axis, strip.first.plus(r))
                reader = TileVectors(
                    *(self.e, lanes, variables, self.blocks, self.pointers),
                    *(conditions, LANE_VARIABLE, x.constant),
                    tile=TileRow(TILE_VARIABLE, r, tile.rows, shared),
                )
                self.store(reader, [*place, x + Affine(0, (), 1)])

        def vector(i: Expr) -> None:
            variables = strip.variables.child()
            at(self._lane_position(variables, i, lanes, low, low + whole - lanes), variables)

        self.e.loop(0, whole // lanes, vector)
        if covered.overlapping is not None:
            at(constant(low + covered.overlapping), strip.variables.child())
