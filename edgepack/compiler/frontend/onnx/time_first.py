"""Recurrent operators whose batch comes first (``layout`` 1), which ONNX Runtime refuses, as those that it
knows, between transposes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.shapes import all_nodes, inner_graphs

if TYPE_CHECKING:
    import onnx

__all__ = ["time_first"]

OPERATORS = {"RNN", "GRU", "LSTM"}

#: By index of the input or output: from batch first to time first, and back.
STATE = [1, 0, 2]
INPUTS = {0: STATE, 5: STATE, 6: STATE}
OUTPUTS = {0: [2, 0, 1, 3], 1: STATE, 2: STATE}


def _batch_first(node: onnx.NodeProto) -> bool:
    return (
        node.domain in ("", "ai.onnx")
        and node.op_type in OPERATORS
        and any(a.name == "layout" and a.i == 1 for a in node.attribute)
    )


def time_first(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without recurrent operators of ``layout`` 1; itself if it has none, otherwise a copy."""
    import onnx

    if not any(_batch_first(node) for node in all_nodes(model.graph)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _rewrite(copy.graph)
    return copy


def _rewrite(graph: onnx.GraphProto) -> None:
    nodes: list[onnx.NodeProto] = []
    for number, node in enumerate(graph.node):
        for inner in inner_graphs(node):
            _rewrite(inner)
        nodes += _transposed(node, f"{node.name or node.output[0]}/time_first_{number}")
    del graph.node[:]
    graph.node.extend(nodes)


def _transposed(node: onnx.NodeProto, prefix: str) -> list[onnx.NodeProto]:
    """The node between transposes of what has a batch dimension."""
    from onnx import helper

    if not _batch_first(node):
        return [node]
    before, behind = [], []
    for index, perm in INPUTS.items():
        if index < len(node.input) and node.input[index]:
            name = f"{prefix}/input_{index}"
            before.append(helper.make_node("Transpose", [node.input[index]], [name], name=name, perm=perm))
            node.input[index] = name
    for index, perm in OUTPUTS.items():
        if index < len(node.output) and node.output[index]:
            name = f"{prefix}/output_{index}"
            behind.append(helper.make_node("Transpose", [name], [node.output[index]], name=name, perm=perm))
            node.output[index] = name
    kept = [a for a in node.attribute if a.name != "layout"]
    del node.attribute[:]
    node.attribute.extend(kept)
    return [*before, node, *behind]
