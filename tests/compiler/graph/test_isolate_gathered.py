"""A resize goes along one axis after the other, whatever stands around it."""

from __future__ import annotations

import numpy as np
import pytest

from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.graph.lower import lower
from workbench.models.builder import Graph


def resized(mode: str, sizes: list[int], *, convolved: bool) -> Graph:
    g = Graph("resized", seed=3)
    x = g.op("Relu", g.input("x", [1, 3, 12, 10]))
    x = g.conv(x, 3, 4, 1) if convolved else x
    x = g.op("Resize", x, "", "", g.const(np.array([1, 4 if convolved else 3, *sizes])), mode=mode)
    g.op("Relu", x, name="y")
    g.output("y")
    return g


@pytest.mark.parametrize("convolved", [False, True])
@pytest.mark.parametrize("sizes", [[24, 30], [6, 5], [24, 5]])
@pytest.mark.parametrize(("mode", "taps"), [("linear", 2), ("cubic", 4)])
def test_each_axis_has_a_group_of_its_own(mode: str, taps: int, sizes: list[int], convolved: bool) -> None:
    groups = lower(import_model(resized(mode, sizes, convolved=convolved).model()).module).groups
    taken = [group.operators.count("take") for group in groups.values()]
    assert [count for count in taken if count] == [taps, taps]


def test_what_makes_the_tensor_smaller_comes_first() -> None:
    """Height grows and width shrinks: the first sum has the old height and the new width."""
    module = lower(import_model(resized("linear", [24, 5], convolved=False).model()).module).module
    shapes = [
        [int(d) for d in binding.var.ty.shape]
        for block in module["main"].body.blocks
        for binding in block.bindings
        if "take" in str(binding.value)
    ]
    assert shapes == [[1, 3, 12, 5], [1, 3, 24, 5]]
