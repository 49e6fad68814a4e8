"""A tensor is split into parts of which some are empty: TVM's split refuses such."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import helper

from workbench.compiled import Compiled, target_with
from workbench.models.builder import Graph


def test_a_part_may_be_empty(tmp_path: Path) -> None:
    g = Graph("parts")
    g.input("x", [2, 5])
    sizes = g.const(np.array([2, 0, 3], np.int64))
    g.nodes.append(helper.make_node("Split", ["x", sizes], ["a", "b", "c"], axis=1))
    g.output("a", shape=[2, 2])
    g.output("c", shape=[2, 3])
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    found = Compiled({"parts": g.model()}, tmp_path, target_with("128x16")).run(
        "parts", {"x": x}, poison=0xFF
    )
    np.testing.assert_array_equal(found["a"], x[:, :2])
    np.testing.assert_array_equal(found["c"], x[:, 2:])
