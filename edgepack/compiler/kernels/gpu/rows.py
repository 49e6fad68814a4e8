"""Rule ``rows``: a run of nests that share their rows, in one kernel (``find_fused_rows.py`` says which).

A group is a rectangle of work items: rows, and lanes that share the columns of each. What a row is reduced to
is in a register of each of its lanes, elements that are read again in memory that the group shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvm.tirx import Buffer

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.gpu.code import Code, c_type
from edgepack.compiler.kernels.gpu.contract import GpuStage
from edgepack.compiler.kernels.gpu.expressions import Environment, Evaluator, unravelled
from edgepack.compiler.kernels.gpu.fused_rows import FusedRows, RowStage
from edgepack.compiler.kernels.gpu.kernel import Kernel, initial_value
from edgepack.compiler.kernels.gpu.reduction import combination, given_lanes, power_of_two
from edgepack.compiler.kernels.gpu.strides import contiguous
from edgepack.compiler.kernels.schedule import Schedule
from edgepack.plan.gpu_target import GpuTarget

__all__ = ["RowsSchedule", "rows"]

#: Elements of a row that a lane has at least, where there are rows enough.
PER_LANE = 4

#: Elements of a row that a lane has at most, where there are too few rows to keep the GPU busy.
MOST_PER_LANE = 64


@dataclass(frozen=True)
class RowsSchedule(Schedule):
    """What is decided about a run of nests that share their rows.

    Attributes:
        lanes: work items that share the columns of a row.
        threads: work items of a group.
    """

    lanes: int | None = None
    threads: int | None = None


def rows(kernel: Kernel, run: FusedRows, target: GpuTarget, given: RowsSchedule | None = None) -> GpuStage:
    """The kernel of a run. RuleError where the group's memory does not hold its rows, or, if nothing is
    given, there are too few rows to share the work by them; ScheduleError where what is given does not fit.
    """
    return _RowsKernel(kernel, run, target, given).build()


class _RowsKernel:
    """Writes the kernel.

    Attributes:
        count: rows in all.
        across: lanes of a row.
        per_group: rows of a group, and ``threads`` its work items.
    """

    def __init__(self, kernel: Kernel, run: FusedRows, target: GpuTarget, given: RowsSchedule | None) -> None:
        self.kernel, self.run, self.target = kernel, run, target
        self.code: Code = kernel.code
        self.evaluator: Evaluator = kernel.evaluator
        self.count = prod(run.rows)
        longest = max(stage.size for stage in run.stages)
        if self.count >= 2**31 or longest >= 2**31:
            raise RuleError("too many rows")
        first = run.stages[0].nest.reduction
        assert first is not None
        self.along = bool(contiguous(first) & set(first.reductions))
        self.across = self._lanes(longest)
        self.threads = (given and given.threads) or target.group_size
        if given is not None:
            self.across = given_lanes(self.across, given.lanes, self.threads, target)
        self.per_group = self.threads // self.across
        groups = -(-self.count // self.per_group)
        if given is None and groups < target.least_groups and longest > self.across * MOST_PER_LANE:
            raise RuleError("too few rows")
        self.reductions = [stage for stage in run.stages if stage.nest.reduction is not None]
        self.elements = [stage for stage in run.stages if stage.reused and stage.nest.reduction is None]
        numbers = sum(self.per_group * stage.size for stage in self.elements)
        self.local_bytes = 4 * (numbers + (self.threads if self.across > 1 else 0))
        if self.local_bytes > target.local_bytes:
            raise RuleError("its rows need more memory than a group has")
        for stage in run.stages:
            if str(stage.nest.result.target.dtype) != "float32" and stage.reused:
                raise RuleError("rows of other numbers than float32")

    def _lanes(self, longest: int) -> int:
        """A power of two: as many as keep the GPU busy, and else no more than have some elements each."""
        size = self.target.group_size
        if not self.along:  # neighbouring work items are neighbouring rows
            return max(1, min(size // 32, power_of_two(longest)))
        lanes = min(size, power_of_two(max(1, longest // PER_LANE)))
        while (
            lanes < min(size, power_of_two(longest)) and self.count * lanes < size * self.target.least_groups
        ):
            lanes *= 2
        return lanes

    def build(self) -> GpuStage:
        code, size = self.code, self.threads
        lane, row = ("THREAD(0)", "THREAD(1)") if self.along else ("THREAD(1)", "THREAD(0)")
        if self.across > 1:
            code.line(f"SHARED float partial[{size}];")
        names: dict[Buffer, str] = {}
        for number, stage in enumerate(self.elements):
            names[stage.nest.result.target] = f"elements{number}"
            code.line(f"SHARED float elements{number}[{self.per_group * stage.size}];")
        code.line(f"const int lane = {lane};")
        code.line(f"const int row = {row};")
        code.line(f"const int wanted = GROUP(0) * {self.per_group} + row;")
        code.line(f"const int at = min(wanted, {self.count - 1});")
        positions = unravelled(code, "at", self.run.rows)
        for number, stage in enumerate(self.run.stages):
            last = number == len(self.run.stages) - 1
            if stage.nest.reduction is not None:
                self._reduce(stage, positions, last=last)
            else:
                self._compute(stage, positions, names, last=last)
        shape = (self.across, self.per_group) if self.along else (self.per_group, self.across)
        groups = -(-self.count // self.per_group)
        made = code.stage((groups, 1, 1), (*shape, 1), local_bytes=self.local_bytes)
        return replace(made, schedule=RowsSchedule(self.across, self.threads))

    def _columns(self, stage: RowStage, stack: ExitStack) -> tuple[str, dict[Any, str]]:
        """Opens the loop of a lane over its columns: the column's number, and the position that it is."""
        name = self.code.name("c")
        head = f"for (int {name} = lane; {name} < {stage.size}; {name} += {self.across})"
        stack.enter_context(self.code.block(head))
        stack.enter_context(self.evaluator.fresh())
        texts = unravelled(self.code, name, tuple(extent for _, extent in stage.columns), "i")
        return name, {v: text for (v, _), text in zip(stage.columns, texts, strict=True)}

    @staticmethod
    def _environment(block: Any, rows: Sequence[Any], positions: Sequence[str]) -> dict[Any, str]:
        return {**dict.fromkeys(block.iters, "0"), **dict(zip(rows, positions, strict=True))}

    def _reduce(self, stage: RowStage, positions: Sequence[str], *, last: bool) -> None:
        """A number of each row: each lane reduces its columns, the group what its lanes have."""
        code, evaluator, block = self.code, self.evaluator, stage.nest.reduction
        assert block is not None
        combined = combination(block)
        if str(block.target.dtype) != "float32":
            raise RuleError("rows of other numbers than float32")
        value = code.name("sum")
        code.line(f"float {value} = {initial_value(block, evaluator)};")
        evaluator.given[block.target] = value
        with ExitStack() as stack:
            _, columns = self._columns(stage, stack)
            env = {**self._environment(block, stage.reduced_rows, positions), **columns}
            code.line(f"{value} = {evaluator.value(block.value, env)};")
        if self.across > 1:
            own, apart = f"row * {self.across} + lane", ""
            if not self.along:  # neighbouring work items have neighbouring elements, in different banks
                own, apart = f"lane * {self.per_group} + row", f" * {self.per_group}"
            code.line(f"partial[{own}] = {value};")
            with code.block(f"for (int step = {self.across // 2}; step > 0; step /= 2)"):
                code.line("BARRIER;")
                with code.block("if (lane < step)"):
                    pair = combined.format(a=f"partial[{own}]", b=f"partial[{own} + step{apart}]")
                    code.line(f"partial[{own}] = {pair};")
            code.line("BARRIER;")
            first = f"row * {self.across}" if self.along else "row"
            code.line(f"{value} = partial[{first}];")
            if not last:
                code.line("BARRIER;")
        result = stage.nest.result
        if result is not block:
            env = self._environment(result, stage.rows, positions)
            value = code.let(c_type(str(result.target.dtype)), evaluator.value(result.value, env), "row_")
        if stage.stored:
            with code.block(f"if (lane == 0 && wanted < {self.count})"), evaluator.fresh():
                self.kernel.store(result, self._environment(result, stage.rows, positions), value)
        evaluator.given[result.target] = value

    def _compute(
        self, stage: RowStage, positions: Sequence[str], names: dict[Buffer, str], *, last: bool
    ) -> None:
        """The elements of each row."""
        code, evaluator, block = self.code, self.evaluator, stage.nest.result
        with ExitStack() as stack:
            column, columns = self._columns(stage, stack)
            env: Environment = {**self._environment(block, stage.rows, positions), **columns}
            value = code.let(c_type(str(block.target.dtype)), evaluator.value(block.value, env))
            if stage.reused:
                code.line(f"{names[block.target]}[row * {stage.size} + {column}] = {value};")
            if stage.stored:
                with code.block(f"if (wanted < {self.count})"):
                    self.kernel.store(block, env, value)
        if stage.reused:
            evaluator.row_values[block.target] = self._reader(stage, names[block.target])
            if self.across > 1 and not last:
                code.line("BARRIER;")

    def _reader(self, stage: RowStage, name: str) -> tuple[str, list[tuple[int, int]]]:
        """Where a reused element is: the text before its column, and the dimensions that make the column."""
        target = stage.nest.result.target
        axes = self.run.column_dimensions(target)
        return f"{name}[row * {stage.size} + ", [(axis, int(target.shape[axis])) for axis in axes]
