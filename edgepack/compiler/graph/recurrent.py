"""Recurrent layers as one operator: all steps of an RNN, a GRU or an LSTM, in all directions.

The products of the inputs, which do not wait for each other, stand before it as an ordinary matrix product.
What is left of a step is the product of the state before and the gates. Relax has no operator for that, so
the layer is a function of its own with the anchor ``recurrent``. Its body only names what it reads and
writes; the rule ``recurrent`` computes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from tvm import relax, tirx

from edgepack.compiler.graph.legalize import ANCHOR
from edgepack.compiler.graph.rewrite import dtype_of, shape_of

__all__ = [
    "ACTIVATIONS",
    "GATES",
    "OPERANDS",
    "PEEPHOLES",
    "Activation",
    "Recurrence",
    "emit_recurrence",
    "in_gate_order",
]

#: The gates of each cell, in the order in which a recurrence's operands have them, whatever order the model's
#: format has: it is that of ONNX (i; z, r, h; i, o, f, c). :func:`in_gate_order` brings others there.
GATES = {
    "rnn": ("hidden",),
    "gru": ("update", "reset", "hidden"),
    "lstm": ("input", "output", "forget", "cell"),
}

#: An LSTM's gates that look at the cell's state, in that order.
PEEPHOLES = ("input", "output", "forget")

#: What the functions of each cell are applied to, in the order of ``activations``: ONNX's f, g and h.
ACTIVATIONS = {"rnn": ("hidden",), "gru": ("gates", "hidden"), "lstm": ("gates", "cell", "result")}

#: TVM's number of a pattern that is fused with nothing.
OPAQUE = 8

#: What the function reads, in order; all but the first two may be left out.
OPERANDS = ("inputs", "weights", "bias", "hidden", "cell", "peepholes", "lengths")


@dataclass(frozen=True)
class Activation:
    """A function of ONNX's list, by its name there in lower case, and its two numbers."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True)
class Recurrence:
    """All steps of a recurrent layer, float32. G is the number of gates, in the order of :data:`GATES`.

    Operands:
        inputs: [steps, batch, directions * G * size], the products of the inputs and all biases but ``bias``.
        weights: [directions, size, G * size], by which the state before is multiplied.
        bias: [directions, size], added to the product of the state for a GRU's hidden gate, if that is linear
            before the reset.
        hidden, cell: [directions, batch, size], the states before the first step; 0 where left out.
        peepholes: [directions, 3 * size], of an LSTM's gates in the order of :data:`PEEPHOLES`.
        lengths: int32 [batch], steps of each sequence. Results behind them are 0, states stay as they are.

    Results: the hidden states of all steps [steps, batch, directions, size], the last hidden states, and for
    an LSTM the last cell states, both [directions, batch, size].

    Attributes:
        cell: a key of :data:`GATES`.
        batch_first: inputs and results of all steps are [batch, steps, ...] instead.
        reverse: for each direction 1 if it goes from the last step to the first.
        activations: for each direction, in the order of :data:`ACTIVATIONS`.
        clip: bound of what activations are applied to; 0 for none.
        input_forget: an LSTM's forget gate is 1 - its input gate.
        linear_before_reset: a GRU's reset gate is applied to the product, not before it.
        operands: which of :data:`OPERANDS` there are, in that order.
    """

    cell: str
    steps: int
    batch: int
    size: int
    reverse: tuple[int, ...]
    activations: tuple[tuple[Activation, ...], ...]
    operands: tuple[str, ...]
    batch_first: bool = False
    clip: float = 0.0
    input_forget: bool = False
    linear_before_reset: bool = False

    @property
    def gates(self) -> int:
        """How many gates the cell has."""
        return len(GATES[self.cell])

    @property
    def directions(self) -> int:
        """1, or 2 for both."""
        return len(self.reverse)

    @property
    def result_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the hidden states of all steps, of the last ones, and of an LSTM's last cell states."""
        outer = (self.batch, self.steps) if self.batch_first else (self.steps, self.batch)
        last = (self.directions, self.batch, self.size)
        return ((*outer, self.directions, self.size), last, *([last] if self.cell == "lstm" else []))

    def attributes(self) -> dict[str, Any]:
        """Plain numbers, strings and lists of them, for a function's attribute."""
        plain = asdict(self)
        flat = [a for direction in self.activations for a in direction]
        plain["activations"] = [a.name for a in flat]
        plain["alpha"], plain["beta"] = [a.alpha for a in flat], [a.beta for a in flat]
        return {
            key: list(value) if isinstance(value, tuple) else int(value) if isinstance(value, bool) else value
            for key, value in plain.items()
        }

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> Recurrence:
        """Inverse of :meth:`attributes`."""
        names = (attributes[key] for key in ("activations", "alpha", "beta"))
        flat = [Activation(str(n), float(a), float(b)) for n, a, b in zip(*names, strict=True)]
        reverse = tuple(int(r) for r in attributes["reverse"])
        each = len(flat) // len(reverse)
        plain: dict[str, Any] = {f.name: attributes[f.name] for f in fields(cls)}
        plain |= {key: int(plain[key]) for key in ("steps", "batch", "size")}
        plain |= {key: bool(plain[key]) for key in ("batch_first", "input_forget", "linear_before_reset")}
        plain |= {"cell": str(plain["cell"]), "clip": float(plain["clip"]), "reverse": reverse}
        plain["operands"] = tuple(str(name) for name in plain["operands"])
        plain["activations"] = tuple(tuple(flat[d * each : (d + 1) * each]) for d in range(len(reverse)))
        return cls(**plain)


def in_gate_order(
    builder: relax.BlockBuilder, value: relax.Expr, axis: int, cell: str, gates: Sequence[str]
) -> relax.Expr:
    """Weights or biases of a format's order of gates, in that of :data:`GATES`.

    Args:
        value: G blocks of one size along ``axis``.
        gates: the cell's, in the format's order: PyTorch's LSTM is ``("input", "forget", "cell", "output")``.

    Raises:
        ValueError: they are not those of the cell.
    """
    wanted = GATES[cell]
    if sorted(gates) != sorted(wanted):
        raise ValueError(f"{cell} has the gates {', '.join(wanted)}, not {', '.join(gates)}")
    if tuple(gates) == wanted:
        return value
    size = shape_of(value)[axis] // len(wanted)
    rows = [gates.index(gate) * size + row for gate in wanted for row in range(size)]
    return builder.emit(relax.op.take(value, relax.const(rows, "int64"), axis))


def emit_recurrence(
    builder: relax.BlockBuilder, recurrence: Recurrence, operands: Sequence[relax.Expr]
) -> list[relax.Expr]:
    """Emits the layer; its results.

    Args:
        operands: those that ``recurrence.operands`` names, in that order.
    """
    operands = [builder.normalize(operand) for operand in operands]
    shapes = [(shape_of(operand), dtype_of(operand)) for operand in operands]
    results = [(shape, "float32") for shape in recurrence.result_shapes]
    buffers = [
        tirx.decl_buffer([tirx.const(size, "int64") for size in shape], dtype, f"b{number}")
        for number, (shape, dtype) in enumerate([*shapes, *results])
    ]
    body = tirx.Evaluate(tirx.call_extern("int32", "edgepack_recurrent", *(b.data for b in buffers)))
    function = tirx.PrimFunc(buffers, body).with_attr("op_pattern", OPAQUE)
    described = {"kind": "recurrent", **recurrence.attributes()}
    name = builder.add_func(function.with_attr(ANCHOR, described), "recurrent")
    types = [relax.TensorType(shape, dtype) for shape, dtype in results]
    call = builder.emit(relax.call_tir(name, relax.Tuple(operands), types))
    return [builder.emit(relax.TupleGetItem(call, index)) for index in range(len(results))]
