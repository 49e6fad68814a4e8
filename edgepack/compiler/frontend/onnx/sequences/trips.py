"""What is known of a loop's trips: how many there are, and the shapes of what they compute."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.origins import origin
from edgepack.compiler.frontend.onnx.regions import names_read
from edgepack.compiler.frontend.onnx.sequences.scope import Scope
from edgepack.compiler.frontend.onnx.shapes import INFERENCE_LIMIT, infer_shapes, static_shape
from edgepack.compiler.frontend.onnx.support import is_of_lists

if TYPE_CHECKING:
    import onnx

__all__ = ["declare_shapes", "trips_of", "why_unknown"]


def declare_shapes(
    scope: Scope, node: onnx.NodeProto, inside: Scope, carried: Mapping[str, tuple[str, str]]
) -> None:
    """Has the graph inside a loop know shapes of its values which all trips have: what is carried has the
    shape that it has before the first trip if, supposed so, it has it behind a trip.

    Args:
        scope: around the loop.
        node: the loop.
        inside: the body, followed.
        carried: by name of what a trip is given, the names of what it is before the first trip, and of what
            it is behind each.
    """
    import onnx

    supposed = {
        name: shape for name, (before, _) in carried.items() if (shape := scope.static(before)) is not None
    }
    while True:
        given = [inside.graph.input[0]]
        for name, (before, _) in carried.items():
            kind, shape = scope.dtype(before), supposed.get(name)
            given.append(onnx.helper.make_tensor_value_info(name, kind, shape))
        graph = infer_shapes(_alone(scope, inside, given)).graph
        found = {v.name: v for v in (*graph.value_info, *graph.input, *graph.output)}
        wrong = [n for n, shape in supposed.items() if static_shape(found.get(carried[n][1])) != shape]
        if not wrong:
            break
        for name in wrong:
            del supposed[name]
    for name, value in found.items():
        shape = static_shape(value)
        if shape is not None and value.type.tensor_type.elem_type:
            inside.declare(name, value.type.tensor_type.elem_type, shape)


def _alone(scope: Scope, inside: Scope, given: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
    """The nodes of a body that make no lists, as a model; what they read of the graphs around are inputs."""
    from onnx import helper, numpy_helper

    nodes = [node for node in inside.nodes if not is_of_lists(node)]
    own = {value.name for value in given} | {tensor.name for tensor in inside.graph.initializer}
    own |= {name for node in nodes for name in node.output}
    constants: list[onnx.TensorProto] = list(inside.graph.initializer)
    for name in dict.fromkeys(name for node in nodes for name in names_read(node) if name not in own):
        array, shape = scope.constant(name), scope.static(name)
        if array is not None and prod(array.shape) <= INFERENCE_LIMIT:
            constants.append(numpy_helper.from_array(array, name))
        elif shape is not None and scope.dtype(name):
            given.append(helper.make_tensor_value_info(name, scope.dtype(name), shape))
        elif (declared := scope.declared(name)) is not None:
            given.append(declared)
    graph = helper.make_graph(nodes, "trip", given, [], constants)
    return helper.make_model(graph, opset_imports=list(scope.context.opsets), ir_version=8)


def why_unknown(scope: Scope, node: onnx.NodeProto, body: onnx.GraphProto, place: int) -> tuple[str, str]:
    """Why it is not known what a list is behind a loop, and what to try."""
    name = body.input[2 + place].name
    if trips_of(scope, node, body):
        return f"the list {name!r} changes its length from trip to trip", ""
    hint = scope.pinned(node.input[0], 1) if node.input[0] else ""
    hint = hint or "Join the list behind the loop (torch.stack, torch.cat), and give what is joined a --max."
    return f"how many trips it makes, and so the length of the list {name!r}, is known at run time only", hint


def trips_of(scope: Scope, node: onnx.NodeProto, body: onnx.GraphProto) -> int:
    """How many trips a loop makes, if constants alone decide about that; else 0."""
    count, condition = [*node.input, "", ""][:2]
    trips = scope.constant(count) if count else None
    if trips is None:
        return 0
    if condition and ((known := scope.constant(condition)) is None or not known.reshape(-1)[0]):
        return 0
    goes_on = origin(body, body.output[0].name)
    if goes_on != body.input[1].name:
        again = Scope(body, body, scope.context, scope).constant(goes_on)
        if again is None or not again.reshape(-1)[0]:
            return 0
    number = int(trips.reshape(-1)[0])
    return number if 0 < number <= scope.context.most else 0
