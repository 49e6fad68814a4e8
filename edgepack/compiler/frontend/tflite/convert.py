"""A TFLite model as an ONNX model of standard and fixed-point operators."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.fixed_point import is_fixed_point
from edgepack.compiler.frontend.tflite import operators
from edgepack.compiler.frontend.tflite.control_flow import write_control_flow
from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.model import LEFT_OUT, Model, Operator, Subgraph, Tensor
from edgepack.compiler.frontend.tflite.operators.contract import Converter, UnsupportedFormError
from edgepack.compiler.frontend.tflite.operators.variables import State, without_variables
from edgepack.errors import EdgepackError, ModelError
from edgepack.plan.dtypes import DTYPES
from edgepack.plan.types import LinearQuantisation, TensorSpec

if TYPE_CHECKING:
    import onnx

__all__ = ["Converted", "convert", "converters", "unconverted"]


#: Places of operands that need not be given: biases, a shape, a value to pad with, parts of a cell.
_MAY_BE_LEFT_OUT: Mapping[str, range] = {
    "CONV_2D": range(2, 3),
    "CONV_3D": range(2, 3),
    "DEPTHWISE_CONV_2D": range(2, 3),
    "FULLY_CONNECTED": range(2, 3),
    "PADV2": range(2, 3),
    "RESHAPE": range(1, 2),
    "SVDF": range(3, 4),
    "TRANSPOSE_CONV": range(3, 4),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": range(1, 24),
}


@dataclass(frozen=True)
class Converted:
    """A model that was converted.

    Attributes:
        model: in ONNX, of static shapes.
        inputs, outputs: in the file's order, state behind them.
        states: variables that became inputs and outputs.
        subgraph: what was converted, whose tensors beyond the file's stand for variables.
        hybrid: layers of floats whose weights are integers (dynamic-range quantisation).
        source: what was read of the file.
        assumed: what inputs that say the sizes of a result were taken to be, by name.
        foreign: kinds of operators in forms that LiteRT has no kernel for: it must not be given the model.
    """

    model: onnx.ModelProto
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    states: tuple[State, ...]
    subgraph: Subgraph
    hybrid: int
    source: Model
    foreign: frozenset[str] = frozenset()
    assumed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def places(self) -> dict[str, int]:
        """The file's tensors whose values outputs have after a run, by the outputs' names."""
        left = (state.returned if state.changed is None else state.changed for state in self.states)
        indices = [*self.subgraph.outputs, *left]
        return {spec.name: index for spec, index in zip(self.outputs, indices, strict=True)}

    @property
    def quantised(self) -> dict[str, LinearQuantisation]:
        """What the integers of tensors and outputs mean, by name, where the file says it with one scale."""
        tensors = self.subgraph.tensors
        named = {tensor.name: tensor for tensor in tensors}
        named |= {name: tensors[index] for name, index in self.places.items()}
        meanings = {name: tensor.linear_quantisation for name, tensor in named.items()}
        return {name: meaning for name, meaning in meanings.items() if meaning is not None}

    @property
    def is_exact(self) -> bool:
        """Whether it computes with integers, as the interpreter's reference kernels do."""
        return is_fixed_point(self.model)


@cache
def converters() -> Mapping[str, Converter]:
    """The converters of all operators, by their kinds."""
    found: dict[str, Converter] = {}
    for info in pkgutil.iter_modules(operators.__path__, f"{operators.__name__}."):
        found.update(getattr(importlib.import_module(info.name), "CONVERTERS", {}))
    return found


def convert(model: Model) -> Converted:
    """Converts the first subgraph.

    Raises:
        ModelError: there are operators that are not converted, all of which are named.
    """
    subgraph, states = without_variables(model)
    _check(subgraph)
    emitter = Emitter(subgraph)
    for index in subgraph.inputs:
        emitter.given(index)
    refused: dict[str, list[str]] = {}
    _write(emitter, subgraph, refused)
    if refused:
        raise _refused(refused, [subgraph.tensors[index] for index in subgraph.inputs])
    results = [(index, subgraph.tensors[index].name) for index in subgraph.outputs]
    results += [(state.returned, state.returned_as) for state in states]
    try:
        names = [emitter.output(index, name) for index, name in results]
    except KeyError as error:
        raise ModelError(f"The model is damaged: {error.args[0]}.", hint="Convert it again.") from error
    return Converted(
        emitter.model(subgraph.inputs, names),
        emitter.specs([subgraph.tensors[index].name for index in subgraph.inputs]),
        emitter.specs(names),
        tuple(states),
        subgraph,
        emitter.hybrid,
        model,
        frozenset(emitter.foreign),
        {subgraph.tensors[i].name: emitter.assumed[i] for i in subgraph.inputs if i in emitter.assumed},
    )


def unconverted(model: Model) -> dict[str, list[str]]:
    """Names of what operators without a converter compute, by operator."""
    found: dict[str, list[str]] = {}
    main, _ = without_variables(model)
    for graph, operator in main.all_operators():
        if operator.custom or not (operator.graphs or operator.kind in converters()):
            found.setdefault(operator.kind, []).append(_name(graph, operator))
    return found


def _check(subgraph: Subgraph) -> None:
    if not subgraph.outputs:
        raise ModelError("The model has no outputs: there is nothing to compute.", hint="Convert it again.")
    for index in (*subgraph.inputs, *subgraph.outputs):
        tensor = subgraph.tensors[index]
        if tensor.dtype not in DTYPES:
            raise ModelError(
                f"The tensor {tensor.name!r} is of {tensor.dtype}, which edgepack does not have.",
                hint="Convert the model with inputs and outputs of numbers.",
            )


def _write(emitter: Emitter, subgraph: Subgraph, refused: dict[str, list[str]]) -> None:
    """Writes a graph's operators; notes those that cannot be, by the reason."""
    for operator in subgraph.operators:
        emitter.begin(operator)
        reason = _converted(emitter, operator, refused)
        if reason:
            refused.setdefault(reason, []).append(_name(subgraph, operator))
            _stand_in(emitter, operator)


def _converted(emitter: Emitter, operator: Operator, refused: dict[str, list[str]]) -> str:
    """Converts an operator; why not, or "". What is refused of graphs inside it is noted there."""
    converter = converters().get(operator.kind)
    if operator.custom:
        return f"{operator.kind}: a custom operator, unknown here"
    if converter is None and not operator.graphs:
        return f"{operator.kind}: no converter for it"
    if any(emitter.tensors[i].in_blocks for i in (*operator.inputs, *operator.outputs) if i != LEFT_OUT):
        return f"{operator.kind}: integers that are quantised in blocks, or along several axes"
    allowed = _MAY_BE_LEFT_OUT.get(operator.kind, range(0))
    if any(i == LEFT_OUT and place not in allowed for place, i in enumerate(operator.inputs)):
        return f"{operator.kind}: an operand that is left out"
    try:
        if operator.graphs:
            write_control_flow(emitter, operator, lambda inner, graph: _write(inner, graph, refused))
        elif converter is not None:
            converter(emitter, operator)
        emitter.fold(operator)
    except UnsupportedFormError as error:
        return f"{operator.kind}: {error}"
    except EdgepackError as error:
        return f"{operator.kind}: {error.message}"
    except MemoryError:
        raise
    except Exception as error:  # what a damaged file says of itself need not fit together
        return f"{operator.kind}: a form that edgepack does not know ({type(error).__name__}: {error})"
    return ""


def _stand_in(emitter: Emitter, operator: Operator) -> None:
    """Results of an operator that was not converted, so that those behind it are looked at too."""
    import numpy as np

    for index in operator.outputs:
        tensor = emitter.tensors[index]
        if tensor.dtype in DTYPES and np.prod(tensor.shape, dtype=np.float64) < 1 << 26:
            emitter.result(index, emitter.op("Identity", emitter.const(np.zeros(tensor.shape, tensor.dtype))))


def _name(subgraph: Subgraph, operator: Operator) -> str:
    return subgraph.tensors[operator.outputs[0]].name if operator.outputs else f"operator {operator.index}"


def _refused(refused: Mapping[str, Sequence[str]], inputs: Sequence[Tensor]) -> ModelError:
    lines = [f"{reason} ({_listed(names)})" for reason, names in refused.items()]
    count = sum(map(len, refused.values()))
    return ModelError(
        f"{count} operator{'s' if count > 1 else ''} of the model cannot be compiled: "
        + "; ".join(lines)
        + ".",
        hint=_ways_out(inputs),
        refused=[
            {"operator": reason.partition(":")[0], "nodes": list(names), "reason": reason.partition(": ")[2]}
            for reason, names in refused.items()
        ],
    )


def _ways_out(inputs: Sequence[Tensor]) -> str:
    """Of sizes that are open the usual operator fails because they are taken for 1."""
    for tensor in inputs:
        if tensor.open_axes:
            shape = ",".join(str(n) for n in tensor.shape)
            return (
                f"The file leaves sizes of {tensor.name!r} open, which are 1: give others (--shape "
                f"{tensor.name}={shape}), or cut the model (--outputs)."
            )
    return "Convert the model without them, or cut it (--outputs)."


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more
