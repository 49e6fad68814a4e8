"""What the user is told of results whose size the data decide: which there are, and a maximum for each."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.bounded_shapes.data_dependent import (
    DATA_DEPENDENT,
    dynamic_results,
    is_data_dependent,
    most_entries,
    suggested_maximum,
)
from edgepack.compiler.frontend.onnx.bounded_shapes.graph import PaddedGraph
from edgepack.compiler.frontend.onnx.support import RefusedNodesError, node_name, unsupported_nodes

if TYPE_CHECKING:
    import onnx

__all__ = ["boxes_limit", "check_sizes", "missing_maxima"]


def check_sizes(model: onnx.ModelProto) -> None:
    """Refuses a normalised model whose only defect is that the data decide the size of results."""
    nodes = [node for node in model.graph.node if is_data_dependent(node)]
    if nodes and unsupported_nodes(model).keys() <= DATA_DEPENDENT.keys():
        raise missing_maxima(model, nodes)


def boxes_limit(graph: PaddedGraph, node: onnx.NodeProto) -> int | None:
    """How many boxes of a class a NonMaxSuppression keeps; None if that is known at run time only."""
    if len(node.input) < 3 or not node.input[2]:
        return 0
    value = graph.constant(node.input[2])
    return None if value is None else int(value.reshape(-1)[0])


def missing_maxima(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> RefusedNodesError:
    """The refusal of nodes whose results have no maximum, with the options that would give them one."""
    graph = PaddedGraph(model)
    names = {node.output[0]: node_name(node, i) for i, node in enumerate(model.graph.node) if node.output}
    first = nodes[0]
    hint = _hint(graph, nodes)
    return RefusedNodesError(
        f"The shape of {first.output[0]!r} depends on values that are known at run time only "
        f"({first.op_type}, {names[first.output[0]]}).",
        hint=hint,
        refused=[
            {
                "operator": str(node.op_type),
                "nodes": [names[node.output[0]]],
                "reason": "the shape of its output depends on values",
            }
            for node in nodes
        ],
        tensors=[name for node in nodes for name in node.output if name],
    )


def _hint(graph: PaddedGraph, nodes: Sequence[onnx.NodeProto]) -> str:
    """The options; a node that reads the entries of another one has no sense in them."""
    options = []
    for node in nodes:
        known = graph.shapes(node.input)
        if len(known) < len(node.input):
            continue
        name = next(iter(dynamic_results(node, known[0])))
        most = suggested_maximum(node, most_entries(node, known, boxes_limit(graph, node)))
        options.append(f"--max {shlex.quote(f'{name}={most}')}")
    if not options:
        return "Export the model without it, or cut the model before it with --outputs."
    return f"Give it a maximum of entries: {' '.join(options)}."
