"""What is stacked and then picked from the stack, as of a list that a loop fills which is written out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.rewrites.editor import attributes
from edgepack.compiler.frontend.onnx.unread import drop_unread_nodes

if TYPE_CHECKING:
    import onnx

__all__ = ["pick_before_stacking"]


def pick_before_stacking(model: onnx.ModelProto) -> None:
    """Has what picks one of values that are joined along a new first axis read the value itself, in
    place.

    Args:
        model: its constants folded; as :func:`edgepack.compiler.frontend.onnx.rewrites.unroll` leaves it.
    """
    from onnx import numpy_helper

    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    picked = False
    makers = {name: node for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        stack = makers.get(node.input[0]) if node.op_type == "Gather" else None
        while stack is not None and stack.op_type == "Identity":
            stack = makers.get(stack.input[0])
        place = constants.get(node.input[1]) if stack is not None else None
        if stack is None or place is None or place.dims or attributes(node).get("axis", 0):
            continue
        if stack.op_type != "Concat" or attributes(stack)["axis"]:
            continue
        parts = [_before(makers.get(name), constants) for name in stack.input]
        if None in parts:
            continue
        number = int(numpy_helper.to_array(place))
        if -len(parts) <= number < len(parts):
            node.op_type, node.input[:] = "Identity", [parts[number] or ""]
            del node.attribute[:]
            picked = True
    if picked:
        drop_unread_nodes(model)


def _before(node: onnx.NodeProto | None, constants: dict[str, onnx.TensorProto]) -> str | None:
    """What a node gives a new first axis; None of any other node."""
    from onnx import numpy_helper

    if node is None or node.op_type != "Unsqueeze":
        return None
    axes = attributes(node).get("axes")
    if axes is None and len(node.input) > 1 and node.input[1] in constants:
        axes = numpy_helper.to_array(constants[node.input[1]]).reshape(-1).tolist()
    return str(node.input[0]) if axes == [0] else None
