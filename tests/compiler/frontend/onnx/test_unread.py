"""What no output depends on is left out before anything looks at it closely."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.cut import open_model
from edgepack.compiler.frontend.onnx.model_file import read_model


def value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])


def constant(name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ones(4, "f4"), name)


def saved(
    folder: Path,
    nodes: list[onnx.NodeProto],
    constants: list[str],
    inputs: tuple[str, ...] = ("x",),
    outputs: tuple[str, ...] = ("y",),
) -> Path:
    weights = [constant(name) for name in constants]
    graph = helper.make_graph(nodes, "g", list(map(value, inputs)), list(map(value, outputs)), weights)
    opsets = [helper.make_opsetid("", 17)]
    path = folder / "model.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    return path


def names(model: onnx.ModelProto) -> tuple[list[str], list[str]]:
    nodes = [name for node in model.graph.node for name in node.output]
    return nodes, [tensor.name for tensor in model.graph.initializer]


def add(left: str, right: str, output: str) -> onnx.NodeProto:
    return helper.make_node("Add", [left, right], [output])


def test_constants_that_nothing_reads_are_left_out(tmp_path: Path) -> None:
    nodes = [add("x", "b", "y")]
    path = saved(tmp_path, nodes, ["a", "b", "c", "d", "default", "given"], ("x", "default"), ("y", "given"))
    assert names(read_model(path))[1] == ["b", "default", "given"]
    assert len(read_model(path, weights=False).graph.initializer) == 6


def test_nodes_that_no_output_depends_on_are_left_out_with_what_they_read(tmp_path: Path) -> None:
    nodes = [add("x", "a", "dead"), add("x", "b", "t"), add("dead", "c", "end"), add("t", "x", "y")]
    path = saved(tmp_path, nodes, ["a", "b", "c"])
    assert names(open_model(path, ImportOptions())) == (["t", "y"], ["b"])
    # Who names a tensor gets it.
    assert names(open_model(path, ImportOptions(outputs=("end",)))) == (["dead", "end"], ["a", "c"])


def test_what_a_branch_reads_stays(tmp_path: Path) -> None:
    branches = [
        helper.make_graph([add("t", "b", out)], "g", [], [value(out)]) if which else
        helper.make_graph([helper.make_node("Identity", ["a"], [out])], "g", [], [value(out)])
        for which, out in enumerate(("one", "two"))
    ]  # fmt: skip
    nodes = [
        add("x", "c", "t"),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["flag"], to=TensorProto.BOOL),
        helper.make_node("If", ["flag"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    path = saved(tmp_path, nodes, ["a", "b", "c", "d"])
    assert names(read_model(path))[1] == ["a", "b", "c"]
    assert names(open_model(path, ImportOptions())) == (["t", "sum", "flag", "y"], ["a", "b", "c"])
