"""What shape inference gets wrong of lists, and folding then makes constants of: taken away before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.rewrites.editor import attributes
from edgepack.compiler.frontend.onnx.sequences.context import constants_of
from edgepack.compiler.frontend.onnx.sequences.values import element_type
from edgepack.compiler.frontend.onnx.shapes import all_nodes, inner_graphs
from edgepack.compiler.frontend.onnx.support import is_of_lists

if TYPE_CHECKING:
    import onnx

__all__ = ["without_wrong_shapes"]

_PREFIX = "edgepack/list/any"


def without_wrong_shapes(model: onnx.ModelProto) -> None:
    """Rewrites, in place, what ONNX's shape inference takes for something else.

    - A list that a loop carries is inferred to have tensors of the shapes that it has before the first trip,
      though a trip may append others.
    - The parts of a SplitToSequence by the number 1 whose keepdims is 0. The standard says that keepdims is
      ignored beside a size. PyTorch's exporter writes that for ``unbind``, whose parts lack the axis, and
      ONNX Runtime computes what it means; nobody else is known to write it.
    """
    nodes = list(all_nodes(model.graph))
    if not any(is_of_lists(node) for node in nodes):
        return
    graphs = [model.graph, *(inner for node in nodes for inner in inner_graphs(node))]
    constants: dict[str, onnx.TensorProto] = {}
    for graph in graphs:
        constants |= constants_of(graph)
    for node in nodes:
        if node.op_type == "SplitToSequence":
            _drop_axis(node, constants)
    for graph in graphs:
        _forget_shapes(graph)


def _drop_axis(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> None:
    from onnx import numpy_helper

    if len(node.input) < 2 or node.input[1] not in constants:
        return
    size = numpy_helper.to_array(constants[node.input[1]])
    if size.ndim == 0 and size == 1 and not attributes(node).get("keepdims", 1):
        del node.input[1:]


def _forget_shapes(graph: onnx.GraphProto) -> None:
    """Has each loop of a graph begin with lists of which nothing but the element type is known: they get
    tensors of two ranks and lose them again, which is taken out with the lists."""
    import onnx

    nodes: list[onnx.NodeProto] = []
    known = {name for node in graph.node if node.op_type == "SequenceEmpty" for name in node.output}
    known |= {name for node in graph.node for name in node.input if name.startswith(_PREFIX)}
    for node in graph.node:
        if node.op_type == "Loop" and node.domain in ("", "ai.onnx"):
            body: onnx.GraphProto = attributes(node)["body"]
            for place, value in enumerate(body.input[2:], 2):
                is_list = value.type.WhichOneof("value") == "sequence_type"
                if is_list and node.input[place] not in known:
                    nodes += _forgetting(graph, node, place, element_type(value))
        nodes.append(node)
    if len(nodes) > len(graph.node):
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)


def _forgetting(graph: onnx.GraphProto, loop: onnx.NodeProto, place: int, kind: int) -> list[onnx.NodeProto]:
    """Nodes that make a list of unknown shapes of what a loop begins with, which then begins with that."""
    import numpy as np
    from onnx import helper, numpy_helper

    dtype = helper.tensor_dtype_to_np_dtype(kind)
    name, nodes = str(loop.input[place]), []
    prefix = f"{_PREFIX}/{loop.input[place]}/{len(graph.initializer)}"
    for rank in range(2):
        graph.initializer.append(numpy_helper.from_array(np.zeros([1] * rank, dtype), f"{prefix}/{rank}"))
        nodes.append(helper.make_node("SequenceInsert", [name, f"{prefix}/{rank}"], [f"{prefix}/with{rank}"]))
        name = f"{prefix}/with{rank}"
    for rank in range(2):
        nodes.append(helper.make_node("SequenceErase", [name], [f"{prefix}/without{rank}"]))
        name = f"{prefix}/without{rank}"
    for node in nodes:
        node.name = node.output[0]
    loop.input[place] = name
    return nodes
