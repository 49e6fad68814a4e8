"""ONNX's RNN, GRU and LSTM: a matrix product for the inputs of all steps, then the recurrence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgepack.errors import ModelError

__all__ = ["CONVERTERS"]

#: The gates of each cell in the order in which ONNX stacks their weights and biases.
GATES = {
    "rnn": ("hidden",),
    "gru": ("update", "reset", "hidden"),
    "lstm": ("input", "output", "forget", "cell"),
}

#: Functions f, g and h of each cell where the node names none.
DEFAULTS = {"rnn": ("tanh",), "gru": ("sigmoid", "tanh"), "lstm": ("sigmoid", "tanh", "tanh")}

#: alpha and beta of the functions that have them, where the node gives none: those of the operators of the
#: same name, and for ScaledTanh those of ONNX Runtime.
NUMBERS: dict[str, tuple[float, ...]] = {
    "affine": (1.0, 0.0),
    "elu": (1.0,),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01,),
    "relu": (),
    "scaledtanh": (1.0, 1.0),
    "sigmoid": (),
    "softplus": (),
    "softsign": (),
    "tanh": (),
    "thresholdedrelu": (1.0,),
}


def _converter(cell: str) -> Callable[..., Any]:
    def convert(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
        operands = [*inputs, *[None] * 8][:8]
        return _Layer(cell, builder, operands, attributes).emit()

    return convert


@dataclass
class _Layer:
    """A node; ``inputs`` are ONNX's: X, W, R, B, sequence_lens, initial_h, initial_c, P."""

    cell: str
    builder: Any
    inputs: list[Any]
    attributes: dict[str, Any]

    def emit(self) -> Any:
        """The node's outputs, as a tuple."""
        from tvm import relax

        from edgepack.compiler.graph.recurrent import OPERANDS, emit_recurrence, in_gate_order
        from edgepack.compiler.graph.rewrite import dtype_of

        dtype = dtype_of(self.inputs[0])
        if dtype not in {"float32", "float16"}:
            raise self._refused(f"it computes with {dtype}", "Export the layer with float32.")
        self._check_shapes()
        x, w, r, b, lengths, hidden, cell, peepholes = (self._wide(value) for value in self.inputs)
        w, r = (in_gate_order(self.builder, value, 1, self.cell, GATES[self.cell]) for value in (w, r))
        recurrence = self._recurrence()
        input_bias, state_bias = self._biases(b, recurrence)
        sequences = self._batch_first()
        given = {
            "inputs": self._input_products(x if sequences is None else self._wide(sequences), w, input_bias),
            "weights": self._op("permute_dims", r, [0, 2, 1]),
            "bias": state_bias,
            "hidden": hidden,
            "cell": cell,
            "peepholes": peepholes,
            "lengths": self._lengths(lengths, recurrence.steps),
        }
        present = tuple(name for name in OPERANDS if given[name] is not None)
        recurrence = replace(recurrence, operands=present, batch_first=sequences is not None)
        results = emit_recurrence(self.builder, recurrence, [given[name] for name in present])
        order = [1, 2, 0, 3] if recurrence.batch_first else [0, 2, 1, 3]
        results[0] = self._op("permute_dims", results[0], order)
        return relax.Tuple([self._op("astype", y, dtype) if dtype != "float32" else y for y in results])

    def _check_shapes(self) -> None:
        """Raises ModelError for operands that do not fit each other: the kernel believes the recurrence."""
        from edgepack.compiler.graph.rewrite import shape_of

        if any(len(shape_of(value)) != 3 for value in self.inputs[:3]):
            raise self._refused("its operands are no sequences and weights", "Export the layer again.")
        (_, batch, depth), size = shape_of(self.inputs[0]), shape_of(self.inputs[2])[-1]
        directions = 2 if self._text(self.attributes.get("direction", "forward")) == "bidirectional" else 1
        rows, state = len(GATES[self.cell]) * size, (directions, batch, size)
        wanted = {
            "W": (self.inputs[1], (directions, rows, depth)),
            "R": (self.inputs[2], (directions, rows, size)),
            "B": (self.inputs[3], (directions, 2 * rows)),
            "sequence_lens": (self.inputs[4], (batch,)),
            "initial_h": (self.inputs[5], state),
            "initial_c": (self.inputs[6], state),
            "P": (self.inputs[7], (directions, 3 * size)),
        }
        for name, (value, shape) in wanted.items():
            if value is not None and shape_of(value) != shape:
                found = " x ".join(map(str, shape_of(value)))
                right = " x ".join(map(str, shape))
                raise self._refused(f"its {name} is of {found}, not {right}", "Export the layer again.")
        given = int(self.attributes.get("hidden_size", size))
        if given != size:
            raise self._refused(f"its hidden_size is {given}, and R is of {size}", "Export the layer again.")

    # Attributes -------------------------------------------------------------------------------------------

    def _recurrence(self) -> Any:
        """What the node computes, but for its operands."""
        from edgepack.compiler.graph.recurrent import Recurrence
        from edgepack.compiler.graph.rewrite import shape_of

        (steps, batch, _), size = shape_of(self.inputs[0]), shape_of(self.inputs[2])[-1]
        direction = self._text(self.attributes.get("direction", "forward"))
        reverse = {"forward": (0,), "reverse": (1,), "bidirectional": (0, 1)}[direction]
        return Recurrence(
            self.cell,
            steps,
            batch,
            size,
            reverse,
            self._activations(len(reverse)),
            operands=(),
            clip=float(self.attributes.get("clip", 0.0)),
            input_forget=bool(self.attributes.get("input_forget", 0)),
            linear_before_reset=self.cell == "gru" and bool(self.attributes.get("linear_before_reset", 0)),
        )

    def _activations(self, directions: int) -> tuple[tuple[Any, ...], ...]:
        """The functions of each direction, which take their numbers off the node's lists, in order."""
        from edgepack.compiler.graph.recurrent import Activation

        given = [self._text(name).lower() for name in self.attributes.get("activations", ())]
        each = len(DEFAULTS[self.cell])
        # ONNX's default for an RNN names two, of which one direction has the first.
        names = (given or [*DEFAULTS[self.cell]] * directions)[: each * directions]
        lists = [list(self.attributes.get(f"activation_{n}", ())) for n in ("alpha", "beta")]
        found = []
        for name in names:
            if name not in NUMBERS:
                raise self._refused(f"it has the activation {name!r}", "ONNX's functions are known only.")
            numbers = [
                float(values.pop(0)) if values else default
                for values, default in zip(lists, NUMBERS[name], strict=False)
            ]
            found.append(Activation(name, *numbers))
        if len(found) != each * directions:
            raise self._refused(f"it names {len(found)} activations", f"It takes {each * directions}.")
        return tuple(tuple(found[d * each : (d + 1) * each]) for d in range(directions))

    @staticmethod
    def _text(value: str | bytes) -> str:
        return value.decode() if isinstance(value, bytes) else str(value)

    # Operands ---------------------------------------------------------------------------------------------

    def _batch_first(self) -> Any:
        """The sequences as they were before they were transposed, where that is only so that time comes
        first: [batch, steps, ...]; None otherwise."""
        from tvm import relax

        from edgepack.compiler.graph.rewrite import shape_of
        from edgepack.compiler.graph.views import transposed_base

        def definition(expr: Any) -> Any:
            return self.builder.lookup_binding(expr) if isinstance(expr, relax.Var) else None

        x = self.inputs[0]
        steps, batch, depth = shape_of(x)
        base = transposed_base(x, [1, 0, 2], definition) if min(steps, batch) > 1 else None
        return None if base is None else self._op("reshape", base, (batch, steps, depth))

    @staticmethod
    def _lengths(lengths: Any, steps: int) -> Any:
        """The sequences' lengths; None where all are known to have all steps, as of most exporters."""
        from edgepack.compiler.graph.rewrite import is_constant, numpy_of

        whole = lengths is not None and is_constant(lengths) and (numpy_of(lengths) >= steps).all()
        return None if whole else lengths

    def _input_products(self, x: Any, w: Any, bias: Any) -> Any:
        """[..., directions * gates * size]: of all steps and directions in one product."""
        from tvm import relax

        from edgepack.compiler.graph.rewrite import shape_of

        directions, columns, depth = shape_of(w)
        chosen = _chosen(w)
        if chosen is None:
            flat = self._op("reshape", w, (directions * columns, depth))
            products = self._op("matmul", x, self._op("permute_dims", flat, [1, 0]))
        elif chosen == list(range(depth)):
            products = x
        else:
            products = self._op("take", x, relax.const(chosen, "int64"), 2)
        return products if bias is None else self._op("add", products, bias)

    def _biases(self, b: Any, recurrence: Any) -> tuple[Any, Any]:
        """What is added to the products of the inputs, flat, and to those of the state where that differs."""
        if b is None:
            return None, None
        import numpy as np
        from tvm import relax

        count, size, directions = recurrence.gates, recurrence.size, recurrence.directions
        both = self._op("reshape", b, (directions, 2, count, size))
        ours, theirs = (self._op("take", both, relax.const(i, "int64"), 1) for i in (0, 1))
        state = None
        if recurrence.linear_before_reset:
            state = self._op("take", theirs, relax.const(count - 1, "int64"), 1)
            kept = np.ones((count, 1), np.float32)
            kept[-1] = 0
            theirs = self._op("multiply", theirs, relax.const(kept))
        total = self._op("add", ours, theirs)
        return self._op("reshape", total, (directions * count * size,)), state

    def _wide(self, value: Any) -> Any:
        from edgepack.compiler.graph.rewrite import dtype_of

        if value is None or dtype_of(value) != "float16":
            return value
        return self._op("astype", value, "float32")

    def _op(self, name: str, *arguments: Any) -> Any:
        from tvm import relax

        return self.builder.emit(getattr(relax.op, name)(*arguments))

    def _refused(self, why: str, hint: str) -> ModelError:
        name = self.attributes["tvm_custom"]["name"] or "without name"
        return ModelError(f"The {self.cell.upper()} node {name} cannot be compiled: {why}.", hint=hint)


def _chosen(w: Any) -> list[int] | None:
    """The column of the inputs that each row of constant weights is, where they only choose some, for the
    products were made before; None of other weights.

    Args:
        w: [directions, gates * size, columns].
    """
    from edgepack.compiler.graph.rewrite import is_constant, numpy_of, shape_of

    if shape_of(w)[2] == 1 or not is_constant(w):
        return None
    weights = numpy_of(w).reshape(-1, shape_of(w)[2])
    if not ((weights != 0).sum(axis=1) == 1).all() or not (weights.max(axis=1) == 1).all():
        return None
    return [int(column) for column in weights.argmax(axis=1)]


CONVERTERS = {cell.upper(): _converter(cell) for cell in ("rnn", "gru", "lstm")}
