"""DynamicQuantizeLSTM (com.microsoft) step by step, for in each its state is quantised anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.contrib import given
from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes
from edgepack.compiler.frontend.onnx.rewrites.heads import sliced
from edgepack.compiler.frontend.onnx.rewrites.quantised import Quantised
from edgepack.compiler.frontend.onnx.rewrites.quantised_products import dynamically_quantised, integer_matmul
from edgepack.compiler.frontend.onnx.support import RefusedNodesError, node_name

if TYPE_CHECKING:
    import onnx

__all__ = ["dynamic_quantize_lstm"]

#: Most steps, of both directions together: each becomes about 20 nodes, and compiling takes some hundredths
#: of a second for each.
MOST_STEPS = 128

_GATES = ["Sigmoid", "Tanh", "Tanh"]


@dataclass(frozen=True)
class _Direction:
    """One direction of the layer.

    Attributes:
        inputs: the part of all gates that the inputs make, bias included: float32 [steps, batch, 4 hidden].
        weights: those of the state, [hidden, 4 hidden].
        peepholes: of the gates i, o and f, each [hidden], or none.
        sizes: steps, batch, hidden.
    """

    inputs: str
    weights: Quantised
    peepholes: Sequence[str]
    sizes: tuple[int, int, int]


def dynamic_quantize_lstm(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """LSTM whose inputs, all at once, and whose state, in each step, are quantised as by
    DynamicQuantizeLinear, and multiplied by integer weights [directions, inputs or hidden, 4 hidden] (gates
    i, o, f, c).

    Raises:
        RefusedNodesError: it has too many steps to be written one after the other.
    """
    values, shape = attributes(node), editor.shape(node.input[0])
    whole = editor.shape(node.input[2])
    unusual = given(node, 4) or values.get("clip", 0) or values.get("input_forget", 0)
    if shape is None or whole is None or unusual:
        return None
    directions, hidden = whole[0], whole[1]
    activations = values.get("activations") or _GATES * directions
    names = [name.decode() if isinstance(name, bytes) else name for name in activations]
    if len(names) != 3 * directions or any(name not in _GATES for name in names):
        return None
    steps, batch = shape[:2]
    if steps * directions > MOST_STEPS:
        _refuse(node, steps * directions)
    quantised, ends = dynamically_quantised(editor, node.input[0]), []
    for index in range(directions):
        part = _direction(editor, node, quantised, index, (steps, batch, hidden))
        backwards = index == 1 or values.get("direction", "forward") == "reverse"
        order = range(steps - 1, -1, -1) if backwards else range(steps)
        begin = [_begin(editor, given(node, place), index, (batch, hidden)) for place in (5, 6)]
        ends.append(_run(editor, part, order, begin, names[3 * index : 3 * index + 3]))
    return _results(editor, ends, (steps, batch, hidden))[: len(node.output)]


def _refuse(node: onnx.NodeProto, steps: int) -> None:
    raise RefusedNodesError(
        f"The {node.op_type} node {node_name(node, 0)} has {steps} steps, more than {MOST_STEPS}, and"
        " quantises its state anew in each.",
        hint="Leave LSTM out when you quantise (op_types_to_quantize): as a float operator it has a kernel.",
        tensors=[name for name in node.output if name],
    )


def _direction(
    editor: Editor, node: onnx.NodeProto, x: Quantised, index: int, sizes: tuple[int, int, int]
) -> _Direction:
    """What one direction of the layer computes with; ``x`` are its inputs [steps, batch, inputs]."""
    hidden = sizes[2]
    of_inputs, of_state = (
        Quantised(*(_row(editor, node.input[place], index) for place in places))
        for places in ((1, 8, 9), (2, 10, 11))
    )
    made = integer_matmul(editor, x, of_inputs)
    if given(node, 3):
        biases = [
            sliced(editor, _row(editor, node.input[3], index), 0, begin, 4 * hidden)
            for begin in (0, 4 * hidden)
        ]
        made = editor.op("Add", made, editor.op("Add", *biases))
    peepholes = []
    if given(node, 7):
        row = _row(editor, node.input[7], index)
        peepholes = [sliced(editor, row, 0, begin * hidden, hidden) for begin in range(3)]
    return _Direction(made, of_state, peepholes, sizes)


def _row(editor: Editor, name: str, index: int) -> str:
    """A row of a tensor along its first axis, without that axis."""
    value = editor.constant(name)
    if value is not None:
        return editor.const(value[index].copy())
    shape = editor.shape(name) or (1,)
    return editor.reshape(sliced(editor, name, 0, index, 1), shape[1:])


def _begin(editor: Editor, name: str, index: int, shape: tuple[int, int]) -> str:
    """The state before the first step."""
    import numpy as np

    return _row(editor, name, index) if name else editor.const(np.zeros(shape, np.float32))


def _run(
    editor: Editor, part: _Direction, order: Sequence[int], begin: Sequence[str], names: Sequence[str]
) -> tuple[list[str], str, str]:
    """The states of all steps in the order of the inputs, the last state, and the last cell."""
    steps, batch, hidden = part.sizes
    (state, cell), gate, squash, show = begin, *names
    states: dict[int, str] = {}
    for step in order:
        inputs = editor.reshape(sliced(editor, part.inputs, 0, step, 1), [batch, 4 * hidden])
        product = integer_matmul(editor, dynamically_quantised(editor, state), part.weights)
        gates = editor.op("Add", inputs, product)
        i, o, f, c = (sliced(editor, gates, 1, place * hidden, hidden) for place in range(4))
        if part.peepholes:
            i = editor.op("Add", i, editor.op("Mul", part.peepholes[0], cell))
            f = editor.op("Add", f, editor.op("Mul", part.peepholes[2], cell))
        kept = editor.op("Mul", editor.op(gate, f), cell)
        cell = editor.op("Add", kept, editor.op("Mul", editor.op(gate, i), editor.op(squash, c)))
        if part.peepholes:
            o = editor.op("Add", o, editor.op("Mul", part.peepholes[1], cell))
        state = editor.op("Mul", editor.op(gate, o), editor.op(show, cell))
        states[step] = state
    return [states[step] for step in range(steps)], state, cell


def _results(editor: Editor, ends: Sequence[Any], sizes: tuple[int, int, int]) -> list[str]:
    """Y [steps, directions, batch, hidden], and the last state and cell [directions, batch, hidden]."""
    steps, batch, hidden = sizes
    rows = [
        editor.reshape(states[step], [1, 1, batch, hidden]) for step in range(steps) for states, _, _ in ends
    ]
    whole = editor.reshape(
        editor.op("Concat", *rows, axis=0) if len(rows) > 1 else rows[0], [steps, len(ends), batch, hidden]
    )
    results = [whole]
    for place in (1, 2):
        parts = [editor.reshape(end[place], [1, batch, hidden]) for end in ends]
        results.append(editor.op("Concat", *parts, axis=0) if len(parts) > 1 else parts[0])
    return results
