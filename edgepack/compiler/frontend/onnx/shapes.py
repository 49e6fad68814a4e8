"""The nodes of an ONNX model, also of the graphs inside it, and shapes and types of its values."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.contributed_types import declare_contributed
from edgepack.compiler.memory import at_most

if TYPE_CHECKING:
    import onnx

__all__ = ["all_nodes", "infer_shapes", "inner_graphs", "static_shape"]

#: Elements of the largest constant whose value can decide a shape.
INFERENCE_LIMIT = 1024

#: Elements of rank 1 above which no values are followed: 100 bytes each.
_LONG = 1 << 22

#: What following the values that decide shapes may take.
_PROPAGATION_BYTES = 512 << 20


def infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with the shapes and types of all intermediate values, as far as they can be inferred.

    In the copy large initializers are inputs: inference needs their shapes, and copying them takes seconds.
    Decision trees are left out of it too.
    """
    import onnx

    copy = onnx.ModelProto(ir_version=max(model.ir_version, 4), opset_import=model.opset_import)
    copy.functions.extend(model.functions)
    graph = copy.graph
    graph.name = model.graph.name
    graph.node.extend(_without_trees(node) for node in model.graph.node)
    graph.value_info.extend(model.graph.value_info)
    graph.output.extend(model.graph.output)
    large = [tensor for tensor in model.graph.initializer if prod(tensor.dims) > INFERENCE_LIMIT]
    names = {tensor.name for tensor in large}
    graph.initializer.extend(t for t in model.graph.initializer if t.name not in names)
    graph.input.extend(value for value in model.graph.input if value.name not in names)
    for tensor in large:
        graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    declare_contributed(graph)
    # Data propagation follows each element of every tensor of rank 1, those of terabytes too.
    plain = onnx.shape_inference.infer_shapes(copy)
    if any(_is_long(value) for value in (*plain.graph.value_info, *plain.graph.input, *plain.graph.output)):
        return plain
    try:
        with at_most(_PROPAGATION_BYTES):
            return onnx.shape_inference.infer_shapes(copy, data_prop=True)
    except MemoryError:
        return plain


def _without_trees(node: onnx.NodeProto) -> onnx.NodeProto:
    """A node of ai.onnx.ml's ensembles without what lists nodes and leaves; any other as it is."""
    import onnx

    if node.domain != "ai.onnx.ml" or not node.op_type.startswith("TreeEnsemble"):
        return node
    bare = onnx.NodeProto(name=node.name, op_type=node.op_type, domain=node.domain)
    bare.input.extend(node.input)
    bare.output.extend(node.output)
    lists = ("nodes_", "class_", "target_", "leaf_", "membership_")
    bare.attribute.extend(one for one in node.attribute if not one.name.startswith(lists))
    return bare


def _is_long(value: onnx.ValueInfoProto) -> bool:
    dims = value.type.tensor_type.shape.dim
    return len(dims) == 1 and dims[0].dim_value > _LONG


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """All nodes of a graph and of the graphs inside it."""
    for node in graph.node:
        yield node
        for inner in inner_graphs(node):
            yield from all_nodes(inner)


def inner_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that a node holds: the branches of an If, the body of a Loop."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def static_shape(value: onnx.ValueInfoProto | None) -> tuple[int, ...] | None:
    """The shape of a value of which all extents are known, or None."""
    if value is None or not value.type.tensor_type.HasField("shape"):
        return None
    dims = value.type.tensor_type.shape.dim
    known = all(dim.WhichOneof("value") == "dim_value" for dim in dims)
    return tuple(dim.dim_value for dim in dims) if known else None
