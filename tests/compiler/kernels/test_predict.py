"""What a kernel executes and takes, predicted from its TIR, beside what is known of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tvm import tirx

from edgepack.compiler.kernels.contract import Implementation, Stage
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.predict.implementation import predicted_cycles
from edgepack.compiler.kernels.predict.walk import Executed, KernelWalk
from edgepack.compiler.kernels.registry import RULES
from edgepack.plan.target import CpuTarget
from workbench.compiled import groups_of
from workbench.models.builder import Graph

AVX512 = CpuTarget(
    "x86_64-linux-gnu", vector_bits=512, vector_registers=32, datapath_bits=512, fma=True, soft_float=False
)
PLAIN = CpuTarget("thumbv7em-none-eabi", cpu="cortex-m4", vector_bits=0, vector_registers=32, fma=True)


def stage_of(body: Callable[[Emitter, Any, Any, Any], None], tasks: int) -> Stage:
    """A kernel that reads and writes 4096 numbers; ``body`` is given the emitter, both, and the task."""
    e = Emitter(16, AVX512, "float32")
    read, written = e.param(0, 4096), e.output(0, 4096)
    e.tasks(lambda task: body(e, read, written, task))
    return e.stage(tasks)


def executed(stage: Stage, first: int, last: int) -> Executed:
    return KernelWalk(stage.function, AVX512).executed(first, last)


def convolution(tile: tuple[int, int], target: CpuTarget, channels: int = 32) -> Implementation:
    """A pointwise convolution of 64 to ``channels`` channels, of 14 x 14 pixels."""
    g = Graph("pointwise")
    g.output(g.conv(g.input("x", [1, 64, 14, 14]), 64, channels, 1))
    ((group, constants),) = [one for one in groups_of(g.model(), target) if one[0].anchor is not None]
    (rule,) = [rule for rule in RULES if rule.name == "conv2d.igemm"]
    assert rule.schedule is not None
    given = rule.schedule.from_json({"register_tile": list(tile)})
    return rule.implement(group, target, constants, given)


def test_what_depends_on_the_task_is_counted_exactly() -> None:
    """A triangle: task t adds t + 1 vectors, and those of the second half store twice."""

    def body(e: Emitter, read: Any, written: Any, task: Any) -> None:
        e.loop(0, task + 1, lambda i: e.vstore(written, i * 16, e.vload(read, i * 16) + e.f32(1.0)))
        e.branch(task >= 4, lambda: e.vstore(written, task * 16, e.f32(0.0)))

    stage = stage_of(body, 8)
    whole = executed(stage, 0, 8).instructions
    assert (whole.loads, whole.arithmetic, whole.stores) == (36, 36, 36 + 4)
    parts = executed(stage, 0, 4).instructions, executed(stage, 4, 8).instructions
    assert [part.loads for part in parts] == [10, 26] and [part.stores for part in parts] == [10, 30]


def test_what_memory_decides_is_taken_to_be_the_longer_side() -> None:
    def body(e: Emitter, read: Any, written: Any, task: Any) -> None:
        e.branch(
            e.load(read, task) > 0,
            lambda: e.vstore(written, 0, e.vload(read, 0)),
            lambda: e.loop(0, 9, lambda i: e.vstore(written, i * 16, e.vload(read, i * 16))),
        )

    assert executed(stage_of(body, 1), 0, 1).instructions.stores == 9


def test_a_loop_that_llvm_must_not_unroll_is_gone_through() -> None:
    def body(e: Emitter, read: Any, written: Any, task: Any) -> None:
        e.no_unroll_loop(7, lambda i: e.vstore(written, i * 16, e.vload(read, i * 16)))

    counts = executed(stage_of(body, 3), 0, 3).instructions
    assert counts.loads == counts.stores == counts.branches - 3 == 21


def test_an_end_that_llvm_is_not_to_know_is_known() -> None:
    """It goes by way of float32: rows of a window that are a loop."""

    def body(e: Emitter, read: Any, written: Any, task: Any) -> None:
        end = e.let(tirx.Cast("int32", tirx.Cast("float32", task + 3) + e.f32(0.25, 1)))
        e.loop(0, end, lambda i: e.vstore(written, 0, e.vload(read, i * 16)))

    assert executed(stage_of(body, 2), 0, 2).instructions.loads == 3 + 4


def test_intrinsics_that_multiply_are_multiply_adds_and_hints_are_nothing() -> None:
    def body(e: Emitter, read: Any, written: Any, task: Any) -> None:
        one = tirx.IntImm("int32", 1)
        e.add(tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.fake.use", one)))
        e.let(tirx.call_llvm_pure_intrin("int32", "llvm.arm.smlad", one, one, one))

    counts = executed(stage_of(body, 1), 0, 1).instructions
    assert (counts.multiply_adds, counts.arithmetic) == (1, 0)


def test_inner_blocks_are_those_of_the_innermost_loops_that_multiply() -> None:
    made = convolution((4, 1), PLAIN, channels=30)
    (stage,) = made.stages
    done = KernelWalk(stage.function, PLAIN).executed(0, stage.tasks)
    assert 0.9 * 196 * 64 * 30 <= done.inner.multiply_adds <= done.instructions.multiply_adds
    assert done.inner.stores == 0 < done.instructions.stores


@pytest.mark.parametrize("tile", [(6, 32), (12, 32), (5, 16)])
def test_multiply_adds_of_a_convolution_are_those_that_it_is_made_of(tile: tuple[int, int]) -> None:
    """Also where the last tile overlaps the one before (196 pixels by 12 or 5)."""
    made = convolution(tile, AVX512)
    (stage,) = made.stages
    counts = executed(stage, 0, stage.tasks).instructions
    pixels = -(-196 // tile[0]) * tile[0]
    assert 196 * 64 * 32 / 16 <= counts.multiply_adds <= pixels * 64 * 32 / 16


def test_tiles_that_read_less_for_each_multiply_add_are_predicted_to_be_faster() -> None:
    cycles = {
        tile: predicted_cycles(convolution(tile, AVX512), AVX512) for tile in [(1, 16), (4, 32), (12, 32)]
    }
    assert cycles[12, 32] < cycles[4, 32] < cycles[1, 16]


def test_what_does_not_fit_the_registers_costs() -> None:
    """On a core that works in order; others hide some of it."""
    many = replace(AVX512, cpu="cortex-a53")
    few, tile = replace(many, vector_registers=8), convolution((12, 32), AVX512)
    assert predicted_cycles(tile, few) > 1.2 * predicted_cycles(tile, many)


def test_threads_share_the_tasks_and_the_last_one_counts() -> None:
    def body(e: Emitter, read: Any, written: Any, task: Any) -> None:
        e.loop(0, 4096, lambda i: e.vstore(written, 0, e.vload(read, 0)))

    def cycles(tasks: int, threads: int) -> float:
        made = Implementation("r", (stage_of(body, tasks),))
        return predicted_cycles(made, replace(AVX512, threads=threads))

    assert cycles(4, 2) == pytest.approx(cycles(4, 1) / 2, rel=0.2)
    assert cycles(3, 2) == pytest.approx(cycles(4, 2), rel=0.05)


def test_a_prediction_is_the_same_each_time() -> None:
    assert len({predicted_cycles(convolution((4, 1), PLAIN), PLAIN) for _ in range(2)}) == 1
