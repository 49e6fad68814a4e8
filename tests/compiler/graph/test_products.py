"""Einsum and products with vectors as matrix products, which kernels know."""

from __future__ import annotations

import onnx
import pytest

from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.graph.lower import lower
from workbench.models.builder import Graph
from workbench.models.operators import CASES

EINSUMS = [name for name in CASES if name.startswith("einsum")]


def _groups(model: onnx.ModelProto) -> list[tuple[str, ...]]:
    """Operators of each fused group, anchors by their kinds."""
    groups = lower(import_model(model).module).groups.values()
    return [(group.anchor.kind,) if group.anchor else group.operators for group in groups]


@pytest.mark.parametrize("name", EINSUMS)
def test_an_einsum_is_a_product_or_elementwise(name: str) -> None:
    operators = {operator for group in _groups(CASES[name]()) for operator in group}
    if name == "einsum_diagonal":
        assert operators == {"einsum"}
        return
    assert "einsum" not in operators
    assert operators <= {"matmul", "multiply", "sum", "transpose"}


def test_attention_written_as_einsum_is_attention() -> None:
    g = Graph("attention", seed=1)
    x = g.input("x", (1, 16, 8))
    q, k, v = (
        g.op("Reshape", g.op("Einsum", x, g.weight(8, 8), equation="bnd,de->bne"), g.const([1, 16, 2, 4]))
        for _ in range(3)
    )
    scores = g.op("Mul", g.op("Einsum", q, k, equation="bqhd, bkhd -> bhqk"), g.const(0.5))
    g.op("Einsum", g.op("Softmax", scores, axis=-1), v, equation="bhqk,bkhd->bqhd", name="y")
    g.output("y")
    assert sorted(_groups(g.model())) == [("attention",), ("matmul",), ("matmul",), ("matmul",)]
