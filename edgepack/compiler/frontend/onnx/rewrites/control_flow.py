"""If, Loop and Scan without control flow, where that takes no longer: the branch taken, or both; all trips,
one after the other. What is left stays (``regions.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes
from edgepack.compiler.frontend.onnx.shapes import infer_shapes, static_shape
from edgepack.compiler.frontend.onnx.support import RefusedNodesError, is_impossible, node_name

if TYPE_CHECKING:
    import onnx

__all__ = ["if_", "known_if", "loop", "scan"]

#: Most nodes that the trips of a Loop or Scan are written out as: compiling takes some hundredths of a second
#: for each.
MOST_NODES = 256

#: Most nodes of the branches of an If that are both computed.
MOST_SELECTED = 32

#: Operators that take long, or whose time is not known: an If with one of them computes the branch that is
#: taken.
LONG = {
    *("Attention", "Conv", "ConvInteger", "ConvTranspose", "DeformConv", "Einsum", "GRU", "Gemm", "If"),
    *("LSTM", "Loop", "MatMul", "MatMulInteger", "QLinearConv", "QLinearMatMul", "RNN", "Scan", "TopK"),
}


def known_if(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """The branch of a condition that small constants decide; None of any other."""
    condition = editor.known(node.input[0])
    if condition is None:
        return None
    taken = attributes(node)["then_branch" if condition.reshape(-1)[0] else "else_branch"]
    return _distinct(editor, editor.inline(taken, [], {}))


def if_(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """The branch of a condition that is known now; both, and a choice between their results, of another,
    where that takes no longer than to go the one way or the other. None where it does."""
    import numpy as np

    values = attributes(node)
    condition = editor.constant(node.input[0])
    if condition is not None:
        taken = values["then_branch" if condition.reshape(-1)[0] else "else_branch"]
        return _distinct(editor, editor.inline(taken, [], {}))
    branches = [values[branch] for branch in ("then_branch", "else_branch")]
    if any(name and editor.shape(name) is None for name in node.output) or not all(map(_is_short, branches)):
        return None
    one, other = (editor.inline(branch, [], {}) for branch in branches)
    scalar = editor.op("Reshape", node.input[0], editor.const(np.zeros(0, np.int64)))
    return [editor.op("Where", scalar, a, b) for a, b in zip(one, other, strict=True)]


def _is_short(graph: onnx.GraphProto) -> bool:
    """Whether a branch takes about as long as to choose between its results and others."""
    if is_impossible(graph):
        return False
    standard = all(node.domain in ("", "ai.onnx") and node.op_type not in LONG for node in graph.node)
    return standard and len(graph.node) <= MOST_SELECTED


def loop(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """As many copies of the body as the loop has trips; None where these are too many, or known at run time
    only."""
    import numpy as np
    import onnx

    body: onnx.GraphProto = attributes(node)["body"]
    count = editor.constant(node.input[0]) if node.input[0] else None
    if node.input[0] and count is None:
        return None
    given = node.input[1] if len(node.input) > 1 else ""
    condition = given or editor.const(np.asarray(True))
    each = max(1, len(body.node))
    most = int(count.reshape(-1)[0]) if count is not None else MOST_NODES
    carried = [str(name) for name in node.input[2:]]
    stacked: list[list[str]] = [[] for _ in body.output[1 + len(carried) :]]
    trips, constants = 0, dict[str, str]()
    while trips < most:
        known = editor.value(condition)
        if known is None or (trips + 1) * each > MOST_NODES:
            return None
        if not known.reshape(-1)[0]:
            break
        step = editor.const(np.asarray(trips, np.int64))
        condition, *results = editor.inline(body, [step, condition, *carried], constants)
        carried, parts = results[: len(carried)], results[len(carried) :]
        for own, part in zip(stacked, parts, strict=True):
            own.append(part)
        trips += 1
    if stacked and not trips:
        starts = [(editor.element(name), editor.shape(name)) for name in carried]
        given = [(onnx.TensorProto.INT64, ()), (onnx.TensorProto.BOOL, ()), *starts]
        return _distinct(editor, [*carried, *_nothing(editor, node, body, given, [0] * len(stacked))])
    return _distinct(editor, [*carried, *(_stack(editor, parts, 0) for parts in stacked)])


def scan(editor: Editor, node: onnx.NodeProto) -> Sequence[str]:
    """As many copies of the body as the sequences have elements, or a Loop where these are too many."""
    values = attributes(node)
    count = int(values["num_scan_inputs"])
    if editor.opset >= 9:
        states, sequences = node.input[:-count], node.input[-count:]
        return _distinct(editor, _scanned(editor, node, [*map(str, states)], [*map(str, sequences)]))
    if node.input[0]:
        _refuse(node, "its sequences have lengths of their own")
    shape = editor.shape(node.input[-1])
    if shape is None:
        _refuse(node, "the shape of its input is not known")
    results = []
    for item in range(shape[0]):  # up to opset 8 each item of a batch is scanned by itself
        own = [_element(editor, str(name), item, 0) for name in node.input[1:]]
        results.append(_scanned(editor, node, own[:-count], own[-count:], length=shape[1]))
    return [_stack(editor, parts, 0) for parts in zip(*results, strict=True)]


def _scanned(
    editor: Editor, node: onnx.NodeProto, states: list[str], sequences: list[str], length: int | None = None
) -> list[str]:
    values = attributes(node)
    body: onnx.GraphProto = values["body"]
    axes = values.get("scan_input_axes", [0] * len(sequences))
    backwards = values.get("scan_input_directions", values.get("directions", [0] * len(sequences)))
    if length is None:
        shape = editor.shape(sequences[0])
        if shape is None:
            _refuse(node, "the length of its sequences is not known")
        length = shape[axes[0]]
    out_axes = values.get("scan_output_axes", [0] * (len(body.output) - len(states)))
    out_backwards = values.get("scan_output_directions", [0] * len(out_axes))
    read = list(zip(sequences, axes, backwards, strict=True))
    written = list(zip(out_axes, out_backwards, strict=True))
    if length * max(1, len(body.node)) > MOST_NODES:
        return _looped(editor, node, states, read, written, length)
    if not length and written:
        given: list[tuple[int, Sequence[int] | None]]
        given = [(editor.element(name), editor.shape(name)) for name in states]
        given += [(editor.element(name), _without(editor.shape(name), axis)) for name, axis, _ in read]
        return [*states, *_nothing(editor, node, body, given, out_axes)]
    stacked: list[list[str]] = [[] for _ in written]
    constants: dict[str, str] = {}
    for step in range(length):
        elements = [
            _element(editor, name, length - 1 - step if reverse else step, axis)
            for name, axis, reverse in read
        ]
        results = editor.inline(body, [*states, *elements], constants)
        states, parts = results[: len(states)], results[len(states) :]
        for own, part in zip(stacked, parts, strict=True):
            own.append(part)
    return [
        *states,
        *(
            _stack(editor, parts[::-1] if reverse else parts, axis)
            for parts, (axis, reverse) in zip(stacked, written, strict=True)
        ),
    ]


def _nothing(
    editor: Editor,
    node: onnx.NodeProto,
    body: onnx.GraphProto,
    given: Sequence[tuple[int, Sequence[int] | None]],
    axes: Sequence[int],
) -> list[str]:
    """What no trips stack: constants without elements, of the shape of one trip's results but for the axis.

    Args:
        body: of the node.
        given: element type and shape of each of its inputs.
        axes: along which axis each of its last outputs is stacked.
    """
    import numpy as np
    import onnx

    alone = onnx.GraphProto()
    alone.CopyFrom(body)
    for value, (element, shape) in zip(alone.input, given, strict=True):
        value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, element, shape))
    graph = infer_shapes(onnx.helper.make_model(alone, opset_imports=list(editor.model.opset_import))).graph
    names = []
    for value, axis in zip(list(graph.output)[-len(axes) :], axes, strict=True):
        shape, element = static_shape(value), value.type.tensor_type.elem_type
        if shape is None or not element:
            _refuse(node, f"it has no trips, and the shape of {value.name!r}, which it stacks, is not known")
        place = axis % (len(shape) + 1)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
        names.append(editor.const(np.zeros([*shape[:place], 0, *shape[place:]], dtype)))
    return names


def _without(shape: Sequence[int] | None, axis: int) -> list[int] | None:
    """A shape without one of its axes."""
    if shape is None:
        return None
    return [extent for place, extent in enumerate(shape) if place != axis % len(shape)]


def _looped(
    editor: Editor,
    node: onnx.NodeProto,
    states: Sequence[str],
    read: Sequence[tuple[str, int, int]],
    written: Sequence[tuple[int, int]],
    length: int,
) -> list[str]:
    """A Scan as a Loop.

    Args:
        read: the sequences, along which axis, and whether from the end to the beginning.
        written: along which axis each result of all trips is stacked, and whether from the end on.
    """
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    def graph_input(name: str, dtype: int, dims: Sequence[int] | None) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, dtype, dims)

    scanned: onnx.GraphProto = attributes(node)["body"]
    body, prefix = onnx.GraphProto(name=scanned.name or "body"), f"{node_name(node, 0)}/scan"
    step, going, last = f"{prefix}/step", f"{prefix}/going", f"{prefix}/last"
    body.initializer.extend(scanned.initializer)
    body.initializer.append(numpy_helper.from_array(np.asarray(length - 1, np.int64), last))
    if any(reverse for *_, reverse in read):
        body.node.append(helper.make_node("Sub", [last, step], [f"{prefix}/back"], name=f"{prefix}/back"))
    for value, (name, axis, reverse) in zip(scanned.input[len(states) :], read, strict=True):
        place = f"{prefix}/back" if reverse else step
        body.node.append(
            helper.make_node("Gather", [name, place], [value.name], name=f"{prefix}/{value.name}", axis=axis)
        )
    body.node.extend(scanned.node)
    body.node.append(helper.make_node("Identity", [going], [f"{going}_on"], name=f"{going}_on"))
    scalar = [
        graph_input(step, onnx.TensorProto.INT64, []),
        graph_input(going, onnx.TensorProto.BOOL, []),
    ]
    body.input.extend([*scalar, *scanned.input[: len(states)]])
    body.output.extend([graph_input(f"{going}_on", onnx.TensorProto.BOOL, []), *scanned.output])
    count = editor.const(np.asarray(length, np.int64))
    results = editor.ops("Loop", count, "", *states, outputs=len(scanned.output), body=body)
    stacked = [
        _turned(editor, name, len(part.type.tensor_type.shape.dim) + 1, axis, reverse)
        for name, part, (axis, reverse) in zip(
            results[len(states) :], scanned.output[len(states) :], written, strict=True
        )
    ]
    return [*results[: len(states)], *stacked]


def _turned(editor: Editor, name: str, rank: int, axis: int, reverse: int) -> str:
    """What a Loop has stacked along the first of ``rank`` axes, along another one, or from the end on."""
    import numpy as np

    if reverse:
        where = (np.asarray([number], np.int64) for number in (-1, -(2**31), 0, -1))
        name = editor.op("Slice", name, *(editor.const(one) for one in where))
    axis += rank if axis < 0 else 0
    if not axis:
        return name
    return editor.op("Transpose", name, perm=[*range(1, axis + 1), 0, *range(axis + 1, rank)])


def _element(editor: Editor, name: str, number: int, axis: int) -> str:
    """One element of a sequence along an axis, which goes away."""
    import numpy as np

    return editor.op("Gather", name, editor.const(np.asarray(number, np.int64)), axis=axis)


def _stack(editor: Editor, parts: Sequence[str], axis: int) -> str:
    """The parts along a new axis."""
    import numpy as np

    if editor.opset >= 13:
        where = editor.const(np.asarray([axis], np.int64))
        wide = [editor.op("Unsqueeze", part, where) for part in parts]
    else:
        wide = [editor.op("Unsqueeze", part, axes=[axis]) for part in parts]
    return editor.op("Concat", *wide, axis=axis) if len(wide) > 1 else wide[0]


def _distinct(editor: Editor, names: Sequence[str]) -> list[str]:
    """Each result as a value of its own: a body may pass on what it is given, or give one value twice."""
    return [editor.op("Identity", name) for name in names]


def _refuse(node: onnx.NodeProto, why: str, hint: str = "") -> NoReturn:
    hint = hint or "Export the model with a constant number of steps, or cut it before the node (--outputs)."
    raise RefusedNodesError(
        f"The {node.op_type} node {node_name(node, 0)} cannot be compiled: {why}.",
        hint=hint,
        tensors=[name for name in node.output if name][:1],
    )
