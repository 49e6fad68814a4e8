"""Gates are computed once for each channel, not for each pixel."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.graph.lower import lower
from workbench.compiled import Compiled
from workbench.models.builder import Graph


def gated(batch: int, residual: bool) -> Graph:
    g = Graph("gated", seed=3)
    x = g.input("x", [batch, 12, 7, 5])
    y = g.squeeze_excite(x, 12, 5, "silu", "Sigmoid")
    g.op("Relu", g.op("Add", y, x) if residual else y, name="y")
    g.output("y")
    return g


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("residual", [False, True])
def test_gate_is_a_convolution_with_a_tail(batch: int, residual: bool, tmp_path: Path) -> None:
    compiled = Compiled({"m": gated(batch, residual).model()}, tmp_path)
    plan = compiled.plan("m")
    kernels = {kernel.symbol: kernel for kernel in plan.kernels}
    steps = [kernels[step.kernel] for step in plan.steps]
    assert not [kernel.rule for kernel in steps if kernel.rule in {"generic", "rows", "plain"}]
    last = [kernel for kernel in steps if "conv2d" in kernel.ops][-1]
    assert last.ops == ("conv2d", "add", "tir_sigmoid")
    spread = [kernel.ops for kernel in steps if "multiply" in kernel.ops][-1]
    assert "relu" in spread and ("add" in spread) == residual
    compiled.check("m")


def test_what_is_not_computed_by_an_anchor_is_fused_as_before() -> None:
    g = Graph("spread", seed=3)
    gate = g.op("Sigmoid", g.input("gate", [1, 12, 1, 1]))
    g.op("Mul", g.input("x", [1, 12, 7, 5]), gate, name="y")
    g.output("y")
    assert len(lower(import_model(g.model()).module).groups) == 1
