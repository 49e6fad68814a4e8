"""What each trip of a loop would compute anew from what does not change, computed once before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.regions import names_read, separate_outputs
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes

if TYPE_CHECKING:
    import onnx

__all__ = ["hoist"]

#: How operators begin that stay in a loop's body: random numbers are others in each trip, and what is passed
#: on costs nothing.
UNMOVED = ("Random", "Bernoulli", "Multinomial", "Identity")


def hoist(model: onnx.ModelProto) -> bool:
    """Moves what each trip of a loop would compute anew from what does not change before the loop, in place;
    whether there was any."""
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if node.op_type == "Loop" and node.domain in ("", "ai.onnx"):
            nodes += _hoisted(model, attributes(node)["body"])
        nodes.append(node)
    changed = len(nodes) > len(model.graph.node)
    if changed:
        copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
        del model.graph.node[:]
        model.graph.node.extend(copies)
    return changed


def _hoisted(model: onnx.ModelProto, body: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Takes the nodes of a body that depend on nothing of a trip out of it; returns them."""
    constants = {tensor.name: tensor for tensor in body.initializer}
    trip = {value.name for value in body.input}
    trip |= {name for node in body.node for name in node.output}
    moved: list[onnx.NodeProto] = []
    kept: list[onnx.NodeProto] = []
    for node in body.node:
        reads = [name for name in names_read(node) if name]
        fixed = bool(set(reads) - constants.keys()) and trip.isdisjoint(set(reads) - constants.keys())
        if not fixed or node.op_type.startswith(UNMOVED):
            kept.append(node)
            continue
        moved.append(node)
        trip -= set(node.output)
    if moved:
        outside = {tensor.name for tensor in model.graph.initializer}
        needed = {name for node in moved for name in names_read(node)}
        model.graph.initializer.extend(
            tensor for name, tensor in constants.items() if name in needed and name not in outside
        )
        copies = [type(node).FromString(node.SerializeToString()) for node in kept]
        moved = [type(node).FromString(node.SerializeToString()) for node in moved]
        del body.node[:]
        body.node.extend(copies)
        separate_outputs(body, {name for node in moved for name in node.output})
    return moved
