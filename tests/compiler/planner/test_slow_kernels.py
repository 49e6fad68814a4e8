"""What is said of kernels that are far slower than the CPU could be."""

from __future__ import annotations

import onnx
import pytest

from edgepack.compiler.kernels.cpu.emit.vector_math import UNARY
from workbench.compiled import plan_of, target_with
from workbench.models.builder import Graph


@pytest.fixture(autouse=True)
def _no_vector_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that only libm has: every one that ONNX has has a vector form."""
    monkeypatch.delitem(UNARY, "tirx.acosh")


def _one(operator: str) -> onnx.ModelProto:
    g = Graph("slow", seed=2)
    g.op("Relu", g.op(operator, g.input("x", (1, 24, 200, 20))), name="y")
    g.output("y")
    return g.model()


def test_a_slow_kernel_is_one_line_with_node_rule_share_and_reason() -> None:
    plan = plan_of(_one("Acosh"), "m", target_with("256x16")).plan
    (line,) = plan.slow_kernels
    assert plan.warnings == (line,)
    (slow,) = (kernel for kernel in plan.kernels if kernel.rule == "generic")
    assert line.startswith(f"kernel {slow.symbol} (node Acosh_0) by the rule {slow.rule} takes about ")
    assert " % of the time, " in line
    assert line.endswith(": elementwise: acosh has no vector form")


def test_a_reduction_that_gathers_at_computed_positions_is_slow() -> None:
    g = Graph("rois", seed=2)
    x, rois = g.input("x", (1, 16, 20, 20)), g.input("rois", (60, 4))
    batch = g.const([0] * 60)
    g.op("RoiAlign", x, rois, batch, output_height=7, output_width=7, sampling_ratio=5, name="y")
    g.output("y")
    (line,) = plan_of(g.model(), "m", target_with("256x16")).plan.slow_kernels
    assert "(node RoiAlign_0) by the rule rows " in line


def test_nothing_is_said_of_fast_kernels_nor_of_a_cpu_that_could_not_be_faster() -> None:
    assert not plan_of(_one("Sigmoid"), "m", target_with("256x16")).plan.slow_kernels
    assert not plan_of(_one("Acosh"), "m", target_with("scalar")).plan.slow_kernels


def test_a_slow_kernel_that_takes_little_of_the_time_is_not_worth_a_line() -> None:
    g = Graph("little", seed=2)
    x = g.op("Conv", g.input("x", (1, 24, 40, 40)), g.weight(24, 24, 3, 3), pads=(1, 1, 1, 1))
    for _ in range(5):
        x = g.op("Conv", x, g.weight(24, 24, 3, 3), pads=(1, 1, 1, 1))
    pooled = g.op("Flatten", g.op("GlobalAveragePool", x))
    g.op("Acosh", pooled, name="y")
    g.output("y")
    plan = plan_of(g.model(), "m", target_with("256x16")).plan
    assert any(kernel.rule == "generic" for kernel in plan.kernels)
    assert not plan.slow_kernels


@pytest.mark.parametrize(("width", "slow"), [(64, False), (2, True)])
def test_a_scatter_of_whole_rows_is_not_slow_and_one_of_single_elements_is(width: int, slow: bool) -> None:
    g = Graph("graph_layer", seed=2, opset=18)
    nodes = g.input("nodes", (4000 // width, width))
    edges = g.input("edges", (16000 // width, 1), "int64")
    g.op("ScatterND", nodes, edges, g.input("messages", (16000 // width, width)), reduction="add", name="y")
    g.output("y")
    plan = plan_of(g.model(), "m", target_with("256x16")).plan
    assert any(kernel.rule == "rows" for kernel in plan.kernels)
    assert bool(plan.slow_kernels) == slow
