"""Loops that append to a list, which is joined behind them, as scripted PyTorch modules are exported: what is
appended becomes a result that the loop stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.regions import names_read
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes, known_form
from edgepack.compiler.frontend.onnx.shapes import infer_shapes

if TYPE_CHECKING:
    import onnx

__all__ = ["stack_lists"]


def stack_lists(model: onnx.ModelProto) -> bool:
    """Has the model's loops stack what they append to lists, in place; whether there was any such list. One
    that is read in another way stays as it is.

    Args:
        model: without functions, its constants folded.
    """
    empty = {node.output[0] for node in model.graph.node if node.op_type == "SequenceEmpty"}
    if not empty:
        return False
    changed = False
    for index, node in enumerate(list(model.graph.node)):
        if node.op_type != "Loop" or empty.isdisjoint(node.input):
            continue
        with known_form(node, index):
            for place in reversed(range(len(node.input) - 2)):
                if node.input[2 + place] in empty:
                    changed |= _stacked(model, node, place)
    if changed:
        _drop_unread_lists(model, empty)
    return changed


def _stacked(model: onnx.ModelProto, loop: onnx.NodeProto, place: int) -> bool:
    """Whether the list that a loop carries is one that can be stacked; then it is."""
    import onnx

    body: onnx.GraphProto = attributes(loop)["body"]
    result, part = ([*loop.output, *[""] * place])[place], _appended(body, place)
    joins = [node for node in model.graph.node if result and result in names_read(node)]
    if part is None or result in {value.name for value in model.graph.output}:
        return False
    if not joins or any(node.op_type != "ConcatFromSequence" for node in joins):
        return False
    name, whole = f"{part}/appended{place}", f"{result}/stacked"
    body.node.append(onnx.helper.make_node("Identity", [part], [name], name=name))
    body.output.append(onnx.ValueInfoProto(name=name))
    loop.output.extend([""] * (len(body.output) - 2 - len(loop.output)))
    loop.output.append(whole)
    graph = infer_shapes(model).graph
    value = next((one for one in graph.value_info if one.name == whole), None)
    if value is None or not value.type.tensor_type.HasField("shape"):
        del body.node[-1], body.output[-1], loop.output[-1]
        return False
    for node in joins:
        _join(model, node, whole, len(value.type.tensor_type.shape.dim))
    _carry_no_list(loop, place)
    return True


def _appended(body: onnx.GraphProto, place: int) -> str | None:
    """What each trip appends to the list, if that is all it does with it."""
    before, behind = body.input[2 + place].name, body.output[1 + place].name
    makers = {name: node for node in body.node for name in node.output}
    passed = {before}
    while behind in makers and makers[behind].op_type == "Identity":
        passed.add(behind)
        behind = makers[behind].input[0]
    made = makers.get(behind)
    if made is None or made.op_type != "SequenceInsert" or made.input[0] != before or len(made.input) != 2:
        return None
    passed.add(behind)
    readers = [node for node in body.node if not passed.isdisjoint(names_read(node)) and node is not made]
    only = all(node.op_type == "Identity" and node.output[0] in passed for node in readers)
    return str(made.input[1]) if only else None


def _carry_no_list(loop: onnx.NodeProto, place: int) -> None:
    """The loop without a list that it carries, in place."""
    body: onnx.GraphProto = attributes(loop)["body"]
    gone = {body.input[2 + place].name}
    del loop.input[2 + place], loop.output[place], body.input[2 + place], body.output[1 + place]
    kept = []
    for node in body.node:
        if gone.isdisjoint(node.input):
            kept.append(type(node).FromString(node.SerializeToString()))
        else:
            gone.update(node.output)
    del body.node[:]
    body.node.extend(kept)


def _join(model: onnx.ModelProto, node: onnx.NodeProto, whole: str, rank: int) -> None:
    """Makes what joins a list join what is stacked, in place.

    Args:
        rank: of what is stacked.
    """
    import onnx

    values, result = attributes(node), str(node.output[0])
    new = values.get("new_axis", 0)
    axis = values["axis"] % (rank if new else rank - 1)
    perm = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
    moved = onnx.helper.make_node("Transpose", [whole], [result], name=node.name, perm=perm)
    if not new:
        moved.output[0] = f"{result}/apart"
        made, tensors = _merged(moved.output[0], result, axis)
        model.graph.initializer.extend(tensors)
        place = next(i for i, one in enumerate(model.graph.node) if result in one.output)
        for one in reversed(made):
            model.graph.node.insert(place + 1, one)
        node = model.graph.node[place]
    node.CopyFrom(moved)


def _merged(name: str, result: str, axis: int) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Nodes that make an axis and the one behind it one, and their constants: extents are known when the loop
    is read, or written out."""
    import numpy as np
    from onnx import helper, numpy_helper

    numbers = {"first": 0, "axis": axis, "behind": axis + 2, "end": 2**31 - 1, "rest": -1}
    tensors = [
        numpy_helper.from_array(np.asarray([number], np.int64), f"{result}/{key}")
        for key, number in numbers.items()
    ]
    shape, before, behind, wanted = (
        f"{result}/{key}" for key in ("shape", "shape_before", "shape_behind", "to")
    )
    nodes = [
        helper.make_node("Shape", [name], [shape]),
        helper.make_node("Slice", [shape, f"{result}/first", f"{result}/axis"], [before]),
        helper.make_node("Slice", [shape, f"{result}/behind", f"{result}/end"], [behind]),
        helper.make_node("Concat", [before, f"{result}/rest", behind], [wanted], axis=0),
        helper.make_node("Reshape", [name, wanted], [result], name=f"{result}/joined"),
    ]
    return nodes, tensors


def _drop_unread_lists(model: onnx.ModelProto, empty: set[str]) -> None:
    """Removes empty lists that nobody reads, in place."""
    read = {name for node in model.graph.node for name in names_read(node)}
    nodes = list(model.graph.node)
    for place in reversed(range(len(nodes))):
        if nodes[place].output[0] in empty - read:
            del model.graph.node[place]
