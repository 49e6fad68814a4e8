"""Rule ``rowwise``: reductions and the elementwise blocks around them, one row per step of a task.

The last block is surveyed for what it needs of each reduction: the axes of the output on which that depends
are the rows; along the others the reduction's result stays the same. A row computes its reductions in order
and then its outputs. Two forms:

* The reduced axis is contiguous (softmax, LayerNorm, RMSNorm, means of the last axis): lanes run along it in
  each pass, with several accumulators, which are added up across their lanes at the end of the pass.
* Another axis is (a global average in NHWC, InstanceNorm over pixels): lanes run along that one, several
  vectors side by side, and each lane reduces for itself.

An elementwise block that calls elementary functions and is needed by more than one pass (the exponential of
a softmax) is kept in the thread's scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from tvm import tirx

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, Operand, RuleError, Stage
from edgepack.compiler.kernels.cpu.analysis.branch_splitting import attempt, cover, writes_its_own_position
from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables, constant
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter, index, unravel
from edgepack.compiler.kernels.cpu.emit.register_transpose import shuffle
from edgepack.compiler.kernels.cpu.emit.tir_blocks import blocks_of
from edgepack.compiler.kernels.cpu.emit.values import Value, storage_dtype
from edgepack.compiler.kernels.cpu.emit.vectors import Vectors
from edgepack.compiler.kernels.cpu.rows.row_plan import Demand, Reduction, RowPlan
from edgepack.compiler.kernels.rule import EVERY_DTYPE, Rule
from edgepack.plan.target import CpuTarget

__all__ = ["rowwise"]

#: Operations of a task: less is not worth handing to a thread.
TASK_COST = 16 * 1024

#: Accumulators of one reduction, or vectors side by side.
UNROLL = 4


def rowwise(group: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Rule ``rowwise``. RuleError for a group without a reduction or of another form."""
    blocks = blocks_of(group.function)
    if group.outputs != 1 or not all(writes_its_own_position(block) for block in blocks):
        raise RuleError("not one output of elementwise blocks and reductions")
    if not any(block.reductions for block in blocks):
        raise RuleError("no reduction")
    plan = RowPlan(blocks, tuple(group.function.params), target)
    kernel = _Kernel(plan, target)
    stage = kernel.stage()
    parameters = {"lanes": plan.lanes, "along": "reduction" if plan.horizontal else "output"}
    flops = sum(prod(block.extents) for block in blocks)
    return Implementation(
        "rowwise", (stage,), scratch=kernel.scratch_bytes, parameters=parameters, flops=flops
    )


class _RowVectors(Vectors):
    """Reads reductions' results and what is kept in scratch."""

    results: dict[Any, Value]
    kernel: _Kernel
    demand: int  # whose pass this is; -1 for the outputs

    def read(self, buffer: Any, at: list[Any]) -> Any:
        plan = self.kernel.plan
        if buffer in plan.reductions:
            key = (buffer, tuple(self.position(i) for i in at))
            if key not in self.results:
                raise RuleError("a reduction at a position that the row does not have")
            return self.results[key]
        kernel = self.kernel
        if buffer not in plan.kept or (buffer not in kernel.written and plan.kept[buffer] != self.demand):
            return super().read(buffer, at)
        positions = [self.position(i) for i in at]
        address = constant(0)
        for dim in plan.inner:
            address = address * plan.extents[dim] + positions[dim]
        where = self.variables.scalar(address)
        if buffer in kernel.written:
            return Value(
                self.e.let(self.e.vload(kernel.kept[buffer], where, self.lanes)), self.lanes, "float32"
            )
        value = super().read(buffer, at)
        self.e.vstore(kernel.kept[buffer], where, self.expr(value, self.lanes), self.lanes)
        return value


class _Kernel:
    def __init__(self, plan: RowPlan, target: CpuTarget) -> None:
        self.plan, self.target = plan, target
        self.e = Emitter(plan.lanes, target)
        addresses = [*plan.found.addresses, *(a for d in plan.demands for a in d.found.addresses)]
        self.used = [i for i, p in enumerate(plan.params) if any(b.same_as(p) for b, _ in addresses)]
        self.pointers = {plan.params[i]: self._pointer(plan.params[i]) for i in self.used}
        self.output = self._pointer(plan.output)
        sizes = dict.fromkeys(plan.kept, prod(plan.extents[i] for i in plan.inner))
        self.kept = {b: self.e.pointer(n) for b, n in sizes.items()}
        self.scratch_bytes = tuple(4 * n for n in sizes.values())
        self.written: set[Any] = set()

    def _pointer(self, buffer: Any) -> Any:
        return self.e.pointer(prod(int(d) for d in buffer.shape), storage_dtype(str(buffer.dtype)))

    def stage(self) -> Stage:
        tasks = self._rows() if self.plan.horizontal else self._columns()
        operands = [
            *(Operand("param", i) for i in self.used),
            Operand("output", 0),
            *(Operand("scratch", i) for i in range(len(self.kept))),
        ]
        return Stage(self.e.finish(), tasks, tuple(operands))

    # Lanes along the reduction ------------------------------------------------------------------------------

    def _rows(self) -> int:
        e, plan = self.e, self.plan
        outer = [plan.extents[i] for i in plan.outer]
        rows = prod(outer)
        per_task = min(rows, max(1, TASK_COST // plan.cost()))

        def row(r: Any) -> None:
            variables = IndexVariables()
            position = self._outer(variables, dict(zip(plan.outer, unravel(r, outer), strict=True)))
            attempt(e, lambda facts: self._row(variables, [position], facts, plan.lanes), variables)

        def task(t: Any) -> None:
            begin = e.let(t * per_task)
            e.loop(begin, e.let(tirx.min(begin + per_task, index(rows))), row)

        e.tasks(task)
        return -(-rows // per_task)

    def _outer(self, variables: IndexVariables, values: Mapping[int, Any]) -> dict[int, Affine]:
        """The rows' axes at these values."""
        found: dict[int, Affine] = {}
        for axis, i in values.items():
            top = self.plan.extents[axis] - 1
            found[axis] = (
                constant(i) if isinstance(i, int) else variables.add(f"o{axis}", self.e.let(i), 0, top)
            )
        return found

    # Lanes along the output ---------------------------------------------------------------------------------

    def _columns(self) -> int:
        """Tasks are pieces of the lane axis, of several vectors side by side."""
        e, plan = self.e, self.plan
        lane_axis = plan.lane_axis
        assert lane_axis is not None
        length, lanes = plan.extents[lane_axis], plan.lanes
        outer = [i for i in plan.outer if i != lane_axis]
        rows = prod(plan.extents[i] for i in outer)
        wanted = max(1, min(UNROLL, TASK_COST // (plan.cost() * lanes)))
        width = wanted * lanes
        pieces = max(1, length // width)

        def body(row: Any, part: Any, offsets: Sequence[int]) -> None:
            variables = IndexVariables()
            values = dict(zip(outer, unravel(row, [plan.extents[i] for i in outer]), strict=True))
            position = self._outer(variables, values)
            top = length - lanes - max(offsets)
            start = constant(0) if pieces == 1 else variables.add("p", e.let(part * width), 0, max(top, 0))
            columns = [{**position, lane_axis: start.plus(o) + Affine(0, (), 1)} for o in offsets]
            attempt(e, lambda facts: self._row(variables, columns, facts, lanes), variables)

        last = length - width * (pieces - 1)
        _, whole, overlapping = cover(last, lanes)
        tail = [*range(0, whole, lanes), *([overlapping] if overlapping is not None else [])]

        def task(t: Any) -> None:
            row, part = unravel(t, [rows, pieces])
            if tail == list(range(0, width, lanes)):
                body(row, part, tail)
                return
            e.branch(
                index(part) < index(pieces - 1),
                lambda: body(row, part, range(0, width, lanes)) if pieces > 1 else None,
                lambda: body(row, part, tail),
            )

        e.tasks(task)
        return rows * pieces

    # A row ------------------------------------------------------------------------------------------------

    def _row(
        self,
        variables: IndexVariables,
        columns: Sequence[Mapping[int, Affine]],
        facts: dict[Affine, bool],
        lanes: int,
    ) -> None:
        """All passes of a row; ``columns`` has an entry for each vector side by side."""
        plan = self.plan
        self.written = set()
        results: list[dict[Any, Value]] = [{} for _ in columns]
        for number, demand in enumerate(plan.demands):
            values = self._reduce(number, variables, columns, results, facts, lanes)
            self.written |= {b for b, covering in plan.kept.items() if covering == number}
            for column, known, value in zip(columns, results, values, strict=True):
                key = tuple(self._at(p, column) for p in demand.position)
                known[demand.reduction.block.target, key] = value
        if plan.pure:
            for column, known in zip(columns, results, strict=True):
                value = known[
                    plan.output, tuple(column.get(i, constant(0)) for i in range(len(plan.extents)))
                ]
                self._store(variables, column, value, lanes if not plan.horizontal else 1)
            return
        self._outputs(variables, columns, results, facts, lanes)

    def _at(self, position: Affine, column: Mapping[int, Affine]) -> Affine:
        """A position in terms of the survey's axes, at a place of the kernel."""
        total = constant(position.constant)
        for name, c in position.terms:
            total = total + column[int(name[1:])] * c
        return total

    def _reader(
        self,
        lanes: int,
        variables: IndexVariables,
        results: dict[Any, Value],
        facts: dict[Affine, bool],
        demand: int,
    ) -> _RowVectors:
        reader = _RowVectors(self.e, lanes, variables, self.plan.blocks, self.pointers, facts)
        reader.results, reader.kernel, reader.demand = results, self, demand
        return reader

    def _reduce(
        self,
        number: int,
        outer: IndexVariables,
        columns: Sequence[Mapping[int, Affine]],
        results: Sequence[dict[Any, Value]],
        facts: dict[Affine, bool],
        lanes: int,
    ) -> list[Value]:
        demand = self.plan.demands[number]
        e, reduction = self.e, demand.reduction
        axes = reduction.axes()
        extents = [prod(axes[i][1] for i in run) for run in demand.runs]
        horizontal = self.plan.horizontal
        length = extents[-1] if horizontal else 1
        step, whole, overlapping = cover(length, lanes) if horizontal else (lanes, 0, None)
        unroll = min(UNROLL, whole // step) if horizontal else 1
        count = unroll * len(columns)
        identity = e.splat(tirx.const(reduction.identity, reduction.dtype), step)
        accumulators = [e.local(step, reduction.dtype) for _ in range(count)]
        for a in accumulators:
            e.vstore(a, 0, identity, step)

        def accumulate(place: Sequence[Affine], variables: IndexVariables, slot: int, skip: int = 0) -> None:
            for n, (column, known) in enumerate(zip(columns, results, strict=True)):
                env = self._env(demand, column, place)
                reader = self._reader(step, variables, known, facts, number)
                value = reader.expr(
                    reader.value(reader.evaluate(reduction.value, env), reduction.dtype), step
                )
                if skip:
                    value = self._masked(value, identity, step, skip)
                a = accumulators[slot * len(columns) + n]
                e.vstore(a, 0, reduction.combined(e, e.vload(a, 0, step), value), step)

        def along(place: list[Affine], variables: IndexVariables) -> None:
            if not horizontal:
                accumulate(place, variables, 0)
                return
            lane = Affine(0, (), 1)
            block = unroll * step

            def several(i: Any) -> None:
                inside = variables.child()
                x = self._loop_variable(inside, "x", i, block, whole - block)
                for u in range(unroll):
                    accumulate([*place, x.plus(u * step) + lane], inside, u)

            e.loop(0, whole // block, several)
            for k, at in enumerate(range(whole // block * block, whole, step)):
                accumulate([*place, constant(at) + lane], variables.child(), k)
            if overlapping is not None:
                accumulate(
                    [*place, constant(overlapping) + lane],
                    variables.child(),
                    unroll - 1,
                    step - length % step,
                )

        self._nest(extents[:-1] if horizontal else extents, outer, along)
        return [self._total(reduction, accumulators[n :: len(columns)], step) for n in range(len(columns))]

    def _loop_variable(self, variables: IndexVariables, name: str, i: Any, step: int, top: int) -> Affine:
        if type(i).__name__ == "IntImm":
            return constant(int(i.value) * step)
        return variables.add(name, self.e.let(i * index(step)), 0, top)

    def _nest(
        self,
        extents: Sequence[int],
        outer: IndexVariables,
        body: Callable[[list[Affine], IndexVariables], None],
    ) -> None:
        """Loops over ``extents``."""

        def level(k: int, place: list[Affine], variables: IndexVariables) -> None:
            if k == len(extents):
                body(place, variables)
                return

            def inside(i: Any) -> None:
                child = variables.child()
                level(k + 1, [*place, self._loop_variable(child, f"n{k}", i, 1, extents[k] - 1)], child)

            self.e.loop(0, extents[k], inside)

        level(0, [], outer)

    def _env(
        self, demand: Demand, column: Mapping[int, Affine], place: Sequence[Affine]
    ) -> dict[Any, Affine]:
        reduction = demand.reduction
        axes = reduction.axes()
        env = {v: constant(0) for v, _ in axes}
        for v, p in zip(reduction.spatial, demand.position, strict=True):
            env[v] = self._at(p, column)
        for run, at in zip(demand.runs, place, strict=True):
            innermost = [i for i in run if axes[i][1] > 1] or run
            env[axes[innermost[-1]][0]] = at
        return env

    def _masked(self, value: Any, identity: Any, lanes: int, skip: int) -> Any:
        """The identity in the first ``skip`` lanes, which the vector before has done."""
        if lanes == 1:
            return value
        number = tirx.Ramp(index(0), index(1), lanes)
        return tirx.Select(number < tirx.Broadcast(index(skip), lanes), identity, value)

    def _total(self, reduction: Reduction, accumulators: Sequence[Any], lanes: int) -> Value:
        """The accumulators' common value: a scalar where lanes ran along the reduction."""
        e = self.e
        values = [e.let(e.vload(a, 0, lanes)) for a in accumulators]
        while len(values) > 1:
            pairs = [
                e.let(reduction.combined(e, a, b)) for a, b in zip(values[::2], values[1::2], strict=False)
            ]
            values = pairs + ([values[-1]] if len(values) % 2 else [])
        value = values[0]
        if not self.plan.horizontal:
            return Value(value, lanes, reduction.dtype)
        while lanes > 1:
            half = lanes // 2
            low, high = shuffle([value], range(half)), shuffle([value], range(half, lanes))
            value = e.let(reduction.combined(e, e.let(low), e.let(high)))
            lanes = half
        return Value(value, 1, reduction.dtype)

    # Outputs ----------------------------------------------------------------------------------------------

    def _outputs(
        self,
        outer: IndexVariables,
        columns: Sequence[Mapping[int, Affine]],
        results: Sequence[dict[Any, Value]],
        facts: dict[Affine, bool],
        lanes: int,
    ) -> None:
        plan = self.plan
        extents = [prod(plan.extents[plan.inner[k]] for k in run) for run in plan.inner_runs]
        horizontal = plan.horizontal and bool(extents)
        if plan.horizontal and not extents:
            lanes = 1

        def element(place: Sequence[Affine], variables: IndexVariables, width: int) -> None:
            for column, known in zip(columns, results, strict=True):
                full = dict(column)
                for run, at in zip(plan.inner_runs, place, strict=True):
                    innermost = [k for k in run if plan.extents[plan.inner[k]] > 1] or run
                    full[plan.inner[innermost[-1]]] = at
                env = {v: full.get(i, constant(0)) for i, v in enumerate(plan.last.iters)}
                reader = self._reader(width, variables, known, facts, -1)
                value = reader.value(reader.evaluate(plan.last.value, env), str(plan.output.dtype))
                self._store(variables, full, value, width)

        def along(place: list[Affine], variables: IndexVariables) -> None:
            if not horizontal:
                element(place, variables, lanes)
                return
            width, whole, overlapping = cover(extents[-1], lanes)
            lane = Affine(0, (), 1)

            def step(i: Any) -> None:
                inside = variables.child()
                element(
                    [*place, self._loop_variable(inside, "x", i, width, whole - width) + lane], inside, width
                )

            self.e.loop(0, whole // width, step)
            if overlapping is not None:
                element([*place, constant(overlapping) + lane], variables.child(), width)

        self._nest(extents[:-1] if horizontal else extents, outer, along)

    def _store(
        self, variables: IndexVariables, place: Mapping[int, Affine], value: Value, lanes: int
    ) -> None:
        plan = self.plan
        address = constant(0)
        for i, n in enumerate(plan.extents):
            address = address * n + place.get(i, constant(0))
        if str(plan.output.dtype) == "bool":
            raise RuleError("truth values of a reduction")
        expr = value.expr if value.lanes == lanes else self.e.splat(value.expr, lanes)
        self.e.vstore(self.output, variables.scalar(address), expr, lanes)


RULE = Rule("rowwise", order=900, dtypes=EVERY_DTYPE, apply=rowwise)
