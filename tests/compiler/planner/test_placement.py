"""Where calls are computed on a device with a GPU: by the least estimated time, where the CPU has to compute
some."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.graph.lower import Lowered, lower, lower_with_graphs
from edgepack.compiler.kernels.preferred_forms import preferred_forms
from edgepack.compiler.planner.build_gpu import build_gpu_plan
from edgepack.compiler.planner.minimum_cut import FlowGraph
from edgepack.compiler.planner.placement import Costs
from edgepack.compiler.planner.program import read_program
from edgepack.compiler.planner.select import KernelSelector
from edgepack.compiler.planner.select_gpu import GpuSelector
from edgepack.compiler.reporter import Reporter
from edgepack.config.device import load_device
from edgepack.plan.gpu_speed import GpuSpeed, usual_speed
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.targets import target_from_json
from edgepack.plan.types import Copy, Launch, Plan, Signature, Step
from tests.support.opencl import OpenClExecutor, driver
from workbench.compiled import FREE_COPIES, assert_close, plan_of
from workbench.executor import host_target
from workbench.models.builder import Graph
from workbench.models.drawn_regions import Drawn
from workbench.models.evaluate import random_inputs, run_onnxruntime

HOST = replace(host_target(), threads=2)

#: A card for which a copy costs as much as 100 kB of its memory.
CARD = GpuTarget("opencl", HOST, speed=GpuSpeed(400, 10_000, launch=1, copy=10, link=6))


def steps(plan: Plan) -> list[str]:
    """Kinds of steps, in order: launches in a row once."""
    kinds = [
        ("up" if step.upload else "down") if isinstance(step, Copy) else type(step).__name__.lower()
        for step in plan.steps
    ]
    return [kind for kind, _ in itertools.groupby(kinds)]


def convolutions(g: Graph, x: str, count: int, channels: int) -> str:
    for _ in range(count):
        x = g.op("Relu", g.op("Conv", x, g.weight(channels, channels, 3, 3), pads=[1, 1, 1, 1]))
    return x


def around(size: int = 28, channels: int = 64) -> onnx.ModelProto:
    """Convolutions before and behind an operator that no GPU has a kernel for."""
    g = Graph("around", seed=1)
    x = convolutions(g, g.input("x", (1, channels, size, size)), 3, channels)
    x = g.op("CumSum", x, g.const(np.int64(1)))
    g.op("Tanh", convolutions(g, x, 3, channels), name="y")
    g.output("y")
    return g.model()


def chain(size: int = 28, channels: int = 64) -> onnx.ModelProto:
    """Convolutions, then small operators between two of the CPU, which other convolutions read again."""
    g = Graph("chain", seed=2)
    x = convolutions(g, g.input("x", (1, channels, size, size)), 2, channels)
    small = g.op("ReduceMean", x, axes=[2, 3], keepdims=0)
    values, _ = g.ops("TopK", small, g.const([8]), outputs=2, axis=-1)
    y = g.op("Sigmoid", g.op("MatMul", values, g.weight(8, 8)))
    y = g.op("Softmax", g.op("MatMul", y, g.weight(8, channels)), axis=-1)
    y = g.op("Reshape", g.op("CumSum", y, g.const(np.int64(1))), g.const([1, channels, 1, 1]))
    g.op("Tanh", convolutions(g, g.op("Mul", x, y), 2, channels), name="y")
    g.output("y")
    return g.model()


def test_the_cut_is_a_minimum() -> None:
    chance = random.Random(7)
    for _ in range(60):
        edges = [(*chance.sample(range(7), 2), chance.randrange(9)) for _ in range(chance.randrange(5, 25))]
        graph = FlowGraph(7)
        for tail, head, capacity in edges:
            graph.connect(tail, head, capacity)

        def crossing(side: set[int], edges: list[tuple[int, int, int]] = edges) -> int:
            return sum(c for tail, head, c in edges if tail not in side and head in side)

        sides = [{1, *some} for n in range(6) for some in itertools.combinations(range(2, 7), n)]
        least = min(map(crossing, sides))
        smallest = min((side for side in sides if crossing(side) == least), key=len)
        assert graph.sink_side(0, 1) == smallest


@pytest.mark.parametrize("copy", [0.2, 1, 20])
def test_no_other_placement_is_estimated_to_be_faster(copy: float) -> None:
    """Against all placements of a program in which tensors have several readers on both sides."""
    g = Graph("many", seed=3)
    x = g.input("x", (4, 4096))
    a = g.op("Tanh", x)
    b = g.op("CumSum", a, g.const(np.int64(1)))
    c = g.op("Softmax", g.op("Add", a, b), axis=-1)
    d = g.op("MatMul", c, g.weight(4096, 64))
    e, _ = g.ops("TopK", d, g.const([8]), outputs=2, axis=-1)
    f = g.op("ReduceMax", g.op("Mul", b, c), axes=[1], keepdims=1)
    g.op("Mul", g.op("Softmax", g.op("Add", e, f), axis=-1), g.op("Sigmoid", e), name="y")
    for name in (c, f, "y"):
        g.output(name)
    model = import_model(g.model())
    program = read_program(lower(model.module, preferred_forms(HOST)))
    target = replace(CARD, speed=GpuSpeed(400, 10_000, launch=0.3, copy=copy, link=6))
    gpu, cpu = GpuSelector(target, "m", Reporter()), KernelSelector(program, HOST, "m", Reporter())
    calls = range(len(program.calls))
    fixed = {i for i in calls if gpu.select(program.calls[i])}
    assert 2 <= len(fixed) < len(calls) <= 12
    costs = Costs(program, model.signature, target)
    found = costs.cheapest(fixed, cpu)
    for i in set(calls) - fixed:
        costs.on_cpu[i] = cpu.cycles(program.calls[i].fused) / 2000
    free = sorted(set(calls) - fixed)
    sides = [fixed | set(some) for n in range(len(free)) for some in itertools.combinations(free, n)]
    assert costs.total(found) == pytest.approx(min(map(costs.total, sides)), rel=1e-3)


def test_a_network_stays_on_the_gpu_around_what_it_cannot_compute() -> None:
    plan = plan_of(around(), "m", CARD).plan
    assert steps(plan) == ["up", "launch", "down", "step", "up", "launch", "down"]
    assert Counter(type(step).__name__ for step in plan.steps)["Step"] == 1
    assert any("takes about" in text and "for scan (node CumSum_6)" in text for text in plan.warnings)


def test_small_operators_between_two_of_the_cpu_stay_there() -> None:
    plan = plan_of(chain(), "m", CARD).plan
    assert steps(plan) == ["up", "launch", "down", "step", "up", "launch", "down"]
    assert any("kernels that the GPU has too" in text for text in plan.warnings)
    bounced = plan_of(chain(), "m", replace(CARD, speed=FREE_COPIES)).plan
    assert steps(bounced).count("down") == 3


def test_results_are_the_same_wherever_they_are_computed(tmp_path: Path) -> None:
    targets = {"cut": CARD, "bounced": replace(CARD, speed=FREE_COPIES)}
    model = chain(size=12, channels=32)
    built = {name: plan_of(model, name, on) for name, on in targets.items()}
    assert len({tuple(steps(one.plan)) for one in built.values()}) == 2
    executor = OpenClExecutor(built, tmp_path / "kernels", driver(tmp_path / "pocl"))
    inputs = random_inputs(model, 3)
    (expected,) = run_onnxruntime(model, inputs)
    for name in targets:
        (got,) = executor.run(name, list(inputs.values()))
        assert_close(model, {"y": got}, {"y": expected})


def test_what_the_gpu_computes_as_a_whole_is_not_moved_and_told() -> None:
    g = Graph("small", seed=4)
    g.op("Tanh", g.op("MatMul", g.input("x", (4, 8)), g.weight(8, 8)), name="y")
    g.output("y")
    plan = plan_of(g.model(), "m", CARD).plan
    assert steps(plan) == ["up", "launch", "down"]
    assert [text for text in plan.warnings if "on the CPU alone" in text]
    g = Graph("large", seed=4)
    g.op("Tanh", convolutions(g, g.input("x", (1, 128, 56, 56)), 2, 128), name="y")
    g.output("y")
    assert plan_of(g.model(), "m", CARD).plan.warnings == ()


def test_what_has_nothing_to_do_with_the_cpu_is_not_moved() -> None:
    """Small operators that the CPU would compute faster, on another input than what it has to."""
    g = Graph("apart", seed=6)
    small = g.op("Softmax", g.op("Exp", g.input("s", (4, 64))), axis=-1)
    x = convolutions(g, g.input("x", (1, 64, 28, 28)), 2, 64)
    g.ops("TopK", x, g.const([8]), outputs=2, name="t", axis=-1)
    g.op("Mul", small, g.op("Sigmoid", g.op("MatMul", small, g.weight(64, 64))), name="y")
    for name in ("t", "y"):
        g.output(name)
    plan = plan_of(g.model(), "m", CARD).plan
    assert Counter(type(step).__name__ for step in plan.steps)["Step"] == 1


def test_the_gpu_that_was_asked_for_computes_something() -> None:
    """A network of a few small operators, one of which the CPU has to compute: all by the CPU were faster."""
    g = Graph("between", seed=5)
    values, _ = g.ops("TopK", g.op("Tanh", g.input("x", (4, 64))), g.const([8]), outputs=2, axis=-1)
    g.op("Sigmoid", values, name="y")
    g.output("y")
    plan = plan_of(g.model(), "m", CARD).plan
    assert Counter(steps(plan))["launch"] == 1
    assert Counter(steps(plan))["step"] >= 1
    assert [text for text in plan.warnings if "on the CPU alone" in text]


KINDS = (
    ("cuda", "x86_64-unknown-linux-gnu", (75,)),
    *(("cuda", "aarch64-unknown-linux-gnu", (capability,)) for capability in (87, 72, 53)),
    ("opencl", "x86_64-unknown-linux-gnu", ()),
    ("opencl", "aarch64-unknown-linux-gnu", ()),
    ("metal", "arm64-apple-macosx11.0.0", ()),
    ("metal", "arm64-apple-ios14.0", ()),
)


def test_the_page_has_what_is_assumed_of_each_kind() -> None:
    page = Path(__file__).parents[3] / "docs" / "internals" / "gpu.md"
    table = page.read_text(encoding="utf-8").split("| kind | bandwidth", 1)[1].split("\n\n", 1)[0]
    rows = [[float(cell) for cell in row.split("|")[2:7]] for row in table.splitlines()[2:]]
    assert rows == [list(astuple(usual_speed(*kind))) for kind in KINDS]


def test_a_device_says_how_fast_its_gpu_is(tmp_path: Path) -> None:
    text = "extends: cuda-desktop\ngpu: {speed: {bandwidth: 1008, link: 22}}\n"
    (tmp_path / "card.yaml").write_text(text, encoding="utf-8")
    target = load_device(tmp_path / "card.yaml").gpu_target(HOST)
    assert target is not None
    assert target.estimated_speed == replace(usual_speed(*KINDS[0]), bandwidth=1008, link=22)
    assert target_from_json(json.loads(json.dumps(target.to_json()))) == target


def test_no_constant_is_stored_that_no_step_reads() -> None:
    """Such as weights as the model has them, where the CPU's kernel reads them packed."""
    plan = plan_of(chain(), "m", CARD).plan
    assert "step" in steps(plan)
    read = [
        argument
        for step in plan.steps
        for argument in ((step.host,) if isinstance(step, Copy) else step.arguments)
        if argument.kind == "constant"
    ]
    assert {argument.index for argument in read} == set(range(len(plan.constants)))


def test_loops_and_branches_beside_a_gpu_are_the_cpus(tmp_path: Path) -> None:
    """What they read is copied before them: a branch that leaves steps out leaves no copy out."""
    models = [Drawn(seed).model for seed in (0, 2, 5)]
    target = GpuTarget("opencl", HOST, speed=FREE_COPIES)
    built = {
        f"m{i}": build_gpu_plan(*_lowered(model, target), target, name=f"m{i}", symbol_prefix=f"m{i}_")
        for i, model in enumerate(models)
    }
    executor = OpenClExecutor(built, tmp_path / "kernels", driver(tmp_path / "pocl"))
    launched = 0
    for name, model in zip(built, models, strict=True):
        plan = built[name].plan
        for index, step in enumerate(plan.steps):
            inside = any(
                isinstance(other, Step) and 0 <= other.target <= index < at
                for at, other in enumerate(plan.steps)
            )
            assert not (inside and isinstance(step, Copy)), "in a loop"
        launched += sum(isinstance(step, Launch) for step in plan.steps)
        for trips in (0, 3):
            inputs = random_inputs(model, trips) | {"n": np.asarray(trips, np.int64)}
            got = executor.run(name, [inputs[spec.name] for spec in plan.inputs], seed=trips)
            names = [spec.name for spec in plan.outputs]
            expected = dict(zip(names, run_onnxruntime(model, inputs), strict=True))
            assert_close(model, dict(zip(names, got, strict=True)), expected)
    assert launched, "nothing was left for the GPU"


def _lowered(model: onnx.ModelProto, target: GpuTarget) -> tuple[Lowered, Signature]:
    imported = import_model(model)
    lowered = lower_with_graphs(imported.module, imported.graphs, preferred_forms(target))
    return lowered, imported.signature
