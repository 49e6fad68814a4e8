"""If, Loop and Scan without control flow: the branch taken, or both; all steps, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes
from edgepack.compiler.frontend.onnx.support import RefusedNodesError, node_name

if TYPE_CHECKING:
    import onnx

__all__ = ["if_", "known_if", "loop", "scan"]

#: Most nodes that a Loop or Scan may become: compiling takes some hundredths of a second for each.
MOST_NODES = 2048


def known_if(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """The branch of a condition that small constants decide; None of any other."""
    condition = editor.known(node.input[0])
    if condition is None:
        return None
    taken = attributes(node)["then_branch" if condition.reshape(-1)[0] else "else_branch"]
    return _distinct(editor, editor.inline(taken, [], {}))


def if_(editor: Editor, node: onnx.NodeProto) -> Sequence[str]:
    """The branch of a condition that is known now; both, and a choice between their results, of another."""
    import numpy as np

    values = attributes(node)
    condition = editor.constant(node.input[0])
    if condition is not None:
        taken = values["then_branch" if condition.reshape(-1)[0] else "else_branch"]
        return _distinct(editor, editor.inline(taken, [], {}))
    for name in node.output:
        if name and editor.shape(name) is None:
            _refuse(
                node,
                f"its condition is known at run time only, and the shapes that its branches give {name!r} "
                "differ or are not known",
                "Export the model with the branch fixed (in eval mode, with static shapes).",
            )
    one, other = (editor.inline(values[branch], [], {}) for branch in ("then_branch", "else_branch"))
    scalar = editor.op("Reshape", node.input[0], editor.const(np.zeros(0, np.int64)))
    return [editor.op("Where", scalar, a, b) for a, b in zip(one, other, strict=True)]


def loop(editor: Editor, node: onnx.NodeProto) -> Sequence[str]:
    """As many copies of the body as the loop has trips."""
    import numpy as np

    body: onnx.GraphProto = attributes(node)["body"]
    count = editor.constant(node.input[0]) if node.input[0] else None
    if node.input[0] and count is None:
        _refuse(node, "its trip count is known at run time only")
    given = node.input[1] if len(node.input) > 1 else ""
    condition = given or editor.const(np.asarray(True))
    most = int(count.reshape(-1)[0]) if count is not None else MOST_NODES
    carried = [str(name) for name in node.input[2:]]
    stacked: list[list[str]] = [[] for _ in body.output[1 + len(carried) :]]
    trips, constants = 0, dict[str, str]()
    while trips < most:
        known = editor.value(condition)
        if known is None:
            _refuse(node, "whether it goes on is known at run time only")
        if not known.reshape(-1)[0]:
            break
        _check_size(node, body, (trips + 1 if count is None else most))
        step = editor.const(np.asarray(trips, np.int64))
        condition, *results = editor.inline(body, [step, condition, *carried], constants)
        carried, parts = results[: len(carried)], results[len(carried) :]
        for own, part in zip(stacked, parts, strict=True):
            own.append(part)
        trips += 1
    if stacked and not trips:
        _refuse(node, "it has no trips, so what it stacks is empty")
    return _distinct(editor, [*carried, *(_stack(editor, parts, 0) for parts in stacked)])


def scan(editor: Editor, node: onnx.NodeProto) -> Sequence[str]:
    """As many copies of the body as the sequences have elements."""
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
    _check_size(node, body, length)
    stacked: list[list[str]] = [[] for _ in body.output[len(states) :]]
    constants: dict[str, str] = {}
    for step in range(length):
        elements = [
            _element(editor, name, length - 1 - step if reverse else step, axis)
            for name, axis, reverse in zip(sequences, axes, backwards, strict=True)
        ]
        results = editor.inline(body, [*states, *elements], constants)
        states, parts = results[: len(states)], results[len(states) :]
        for own, part in zip(stacked, parts, strict=True):
            own.append(part)
    out_axes = values.get("scan_output_axes", [0] * len(stacked))
    out_backwards = values.get("scan_output_directions", [0] * len(stacked))
    return [
        *states,
        *(
            _stack(editor, parts[::-1] if reverse else parts, axis)
            for parts, axis, reverse in zip(stacked, out_axes, out_backwards, strict=True)
        ),
    ]


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


def _check_size(node: onnx.NodeProto, body: onnx.GraphProto, trips: int) -> None:
    nodes = trips * max(1, len(body.node))
    if nodes > MOST_NODES:
        _refuse(
            node, f"its {trips} trips would be {nodes} nodes, more than the {MOST_NODES} that are unrolled"
        )


def _refuse(node: onnx.NodeProto, why: str, hint: str = "") -> NoReturn:
    hint = hint or "Export the model with a constant number of steps, or cut it before the node (--outputs)."
    raise RefusedNodesError(
        f"The {node.op_type} node {node_name(node, 0)} cannot be compiled: {why}.",
        hint=hint,
        tensors=[name for name in node.output if name][:1],
    )
