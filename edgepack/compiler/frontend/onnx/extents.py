"""How large a model would become: its sizes are computed before anything is folded, written out or run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.shapes import infer_shapes, inner_graphs, static_shape
from edgepack.compiler.frontend.onnx.structure import check_shape, expanded_nodes
from edgepack.compiler.frontend.onnx.support import RefusedNodesError, node_name
from edgepack.errors import ModelError
from edgepack.plan.limits import Limits

if TYPE_CHECKING:
    import onnx

__all__ = ["MOST_OPERANDS", "check_extents", "check_nodes", "stored_bytes"]

#: Of one node: a Concat of 2,500 takes minutes in TVM's passes, one of 5,000 ends in SIGSEGV.
MOST_OPERANDS = 1024


def check_nodes(model: onnx.ModelProto, limits: Limits) -> None:
    """Raises ModelError for a model that would have too many nodes with its functions written out, and for a
    node with more operands than TVM's passes, which go through them recursively, can take."""
    count = expanded_nodes(model)
    if count > limits.nodes:
        raise ModelError(
            f"The model has {count} nodes with its functions written out; {limits.nodes} are allowed.",
            hint="If that is meant, give --max-nodes.",
        )
    for index, node in enumerate(model.graph.node):
        if len(node.input) > MOST_OPERANDS:
            raise ModelError(
                f"The {node.op_type} node {node_name(node, index)} has {len(node.input)} operands; "
                f"{MOST_OPERANDS} are compiled at most.",
                hint="Compute it in steps, of some hundred operands each.",
            )


def check_extents(model: onnx.ModelProto, limits: Limits) -> None:
    """Raises ModelError for a shape that no tensor can have, and for constants that grow too large.

    Args:
        model: all input shapes static. Sizes that are not known before constants are folded are not seen.
    """
    check_nodes(model, limits)
    inferred = infer_shapes(model).graph
    producers = {name: (node, i) for i, node in enumerate(model.graph.node) for name in node.output}
    sizes, ranks = {}, {}
    # Of a branch that is never taken, a shape may be anything.
    own = {value.name for value in (*inferred.input, *inferred.value_info, *inferred.output)}
    for value in _values(inferred):
        shape = static_shape(value)
        if shape is not None and (value.name in own or min(shape, default=0) >= 0):
            check_shape(_named(value.name, producers), shape)
            ranks[value.name] = len(shape)
            sizes[value.name] = _bytes(value.type.tensor_type.elem_type, shape)
    for index, node in enumerate(model.graph.node):
        _check_axis(node, index, ranks)
    constants = {tensor.name: _bytes(tensor.data_type, tensor.dims) for tensor in model.graph.initializer}
    most, total = limits.constants(stored_bytes(model)), 0
    for index, node in enumerate(model.graph.node):
        names = [name for name in node.input if name]
        if not names or not all(name in constants for name in names) or any(True for _ in inner_graphs(node)):
            constants |= {name: 0 for name in node.output if node.op_type == "Constant"}
            continue
        results = {name: sizes.get(name, 0) for name in node.output if name}
        constants |= results
        larger = sum(results.values()) > sum(constants[name] for name in names)
        total += sum(results.values()) if larger else 0  # what does not grow is bounded by what it is made of
        if total > most:
            raise RefusedNodesError(
                f"Constants that the model computes would take {total} bytes; {most} are allowed "
                f"({node.op_type}, {node_name(node, index)}).",
                hint="If that is meant, give --max-constant-bytes.",
                tensors=[name for name in node.output if name],
            )


def _check_axis(node: onnx.NodeProto, index: int, ranks: Mapping[str, int]) -> None:
    """Raises ModelError for an axis that no operand can have: not all that run models look at it."""
    rank = ranks.get(node.input[0]) if node.input else None
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    if rank is not None and abs(axis) > rank + 1:
        raise ModelError(
            f"The {node.op_type} node {node_name(node, index)} has axis {axis}; its input has rank {rank}.",
            hint="Export the model again.",
        )


def stored_bytes(model: onnx.ModelProto) -> int:
    """Bytes of the constants that the model has."""
    return sum(_bytes(tensor.data_type, tensor.dims) for tensor in model.graph.initializer)


def _values(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from (*graph.input, *graph.value_info, *graph.output)
    for node in graph.node:
        for inner in inner_graphs(node):
            yield from _values(inner)


def _named(name: str, nodes: dict[str, tuple[onnx.NodeProto, int]]) -> str:
    if name not in nodes:
        return f"The tensor {name!r}"
    node, index = nodes[name]
    return f"The result {name!r} of {node.op_type} ({node_name(node, index)})"


def _bytes(kind: int, shape: object) -> int:
    import onnx

    if kind not in _KNOWN:
        _KNOWN[kind] = onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize if kind else 4
    return int(prod(shape)) * _KNOWN[kind]  # type: ignore[call-overload]


#: Bytes of an element, by type, as far as they were asked for.
_KNOWN: dict[int, int] = {}
