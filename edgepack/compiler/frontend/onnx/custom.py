"""Operators that the user computes in C: taken out of the model while others look at it, and put back.

Neither ONNX Runtime nor ONNX know them. Their results are inputs of the model without them, and what they
read its outputs; shapes and types of the results come from the user's declaration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from edgepack.compiler.frontend.onnx.binding import input_dtype
from edgepack.compiler.frontend.onnx.cut import static_shape
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes
from edgepack.compiler.frontend.onnx.shapes import infer_shapes
from edgepack.errors import ModelError
from edgepack.plan.custom import CustomOperator, ExpressionError, evaluate

if TYPE_CHECKING:
    import onnx

__all__ = [
    "CONVERTERS",
    "CUSTOM",
    "Custom",
    "Detachable",
    "custom_nodes",
    "declare",
    "detached",
    "reattached",
]

#: What a custom operator's node is called in the normalised model; its attributes say all of the call.
CUSTOM = "EdgepackCustom"


class Detachable(Protocol):
    """A node that is taken out of the model and put back."""

    @property
    def node(self) -> onnx.NodeProto: ...

    @property
    def inputs(self) -> Sequence[str]:
        """What it reads, the graphs inside it included."""
        ...

    def call(self, declared: Mapping[str, onnx.ValueInfoProto]) -> onnx.NodeProto:
        """What is put back; ``declared`` are the values that the model says something of."""
        ...


@dataclass(frozen=True)
class Custom:
    """A node of a custom operator."""

    node: onnx.NodeProto
    operator: CustomOperator

    @property
    def inputs(self) -> Sequence[str]:
        return list(self.node.input)

    def call(self, declared: Mapping[str, onnx.ValueInfoProto]) -> onnx.NodeProto:
        """The node of the normalised model."""
        return _call(self, declared)


def custom_nodes(model: onnx.ModelProto, operators: Sequence[CustomOperator]) -> list[Custom]:
    """The model's nodes of these operators, in order."""
    by_name = {(one.domain, one.operator): one for one in operators}
    keys = [("" if node.domain == "ai.onnx" else node.domain, node.op_type) for node in model.graph.node]
    return [
        Custom(node, by_name[key]) for node, key in zip(model.graph.node, keys, strict=True) if key in by_name
    ]


def declare(model: onnx.ModelProto, operators: Sequence[CustomOperator]) -> None:
    """Writes types and shapes of the custom operators' outputs into the model, in place.

    Args:
        model: all input shapes static.

    Raises:
        ModelError: an expression does not fit a node, or an operand has no static shape.
    """
    for one in custom_nodes(model, operators):
        graph = infer_shapes(model).graph
        values = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
        constants = {tensor.name: tensor for tensor in model.graph.initializer}
        shapes, types = [], []
        for name in one.node.input:
            tensor = constants.get(name)
            shape = tuple(tensor.dims) if tensor is not None else static_shape(values.get(name))
            if shape is None:
                raise _error(one, f"the shape of {name!r} is not known")
            shapes.append(shape)
            element = tensor.data_type if tensor is not None else values[name].type.tensor_type.elem_type
            types.append(element)
        _declare(model, one, shapes, types)


def _declare(
    model: onnx.ModelProto, one: Custom, shapes: Sequence[tuple[int, ...]], types: Sequence[int]
) -> None:
    import onnx

    given = attributes(one.node)
    if len(one.node.output) > len(one.operator.outputs):
        raise _error(one, f"it has {len(one.node.output)} outputs, {len(one.operator.outputs)} are declared")
    known = {value.name for value in model.graph.value_info}
    for name, output in zip(one.node.output, one.operator.outputs, strict=False):
        try:
            if isinstance(output.shape, str):
                shape = evaluate(output.shape, shapes, given)
            else:
                shape = [evaluate(extent, shapes, given) for extent in output.shape]
            if output.dtype.startswith("inputs["):
                element = types[int(output.dtype[7:-1])]
            else:
                spelled = {"float32": "FLOAT", "float64": "DOUBLE"}.get(output.dtype, output.dtype.upper())
                element = onnx.TensorProto.DataType.Value(spelled)
        except (ExpressionError, IndexError) as error:
            raise _error(one, f"its output {name!r}: {error}") from error
        if not isinstance(shape, tuple | list) or not all(isinstance(n, int) and n > 0 for n in shape):
            raise _error(one, f"its output {name!r} would have the shape {shape!r}")
        info = onnx.helper.make_tensor_value_info(name, element, list(shape))
        for value in (*model.graph.output, *(v for v in model.graph.value_info if v.name in known)):
            if value.name == name:
                value.CopyFrom(info)
        if name not in known:
            model.graph.value_info.append(info)
    _check_arguments(one, shapes)


def _check_arguments(one: Custom, shapes: Sequence[tuple[int, ...]]) -> None:
    """Leaves the values of the arguments at the node, for :func:`reattached`."""
    import onnx

    try:
        numbers = [evaluate(text, shapes, attributes(one.node)) for text in one.operator.arguments]
    except ExpressionError as error:
        raise _error(one, f"an argument: {error}") from error
    for text, number in zip(one.operator.arguments, numbers, strict=True):
        if not isinstance(number, int | float) or not abs(number) < 2**31:
            raise _error(one, f"the argument {text!r} is {number!r}, which is no 32-bit number")
    metadata = {prop.key for prop in one.node.metadata_props}
    if CUSTOM not in metadata:
        text = ",".join(repr(number) for number in numbers)
        one.node.metadata_props.append(onnx.StringStringEntryProto(key=CUSTOM, value=text))


def detached(model: onnx.ModelProto, nodes: Sequence[Detachable]) -> onnx.ModelProto:
    """A model without the custom nodes: their results are inputs, what they read is an output."""
    import onnx

    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    graph = bare.graph
    taken = {name for one in nodes for name in one.node.output if name}
    read = dict.fromkeys(name for one in nodes for name in one.inputs if name)
    values = {value.name: value for value in model.graph.value_info}
    values.update({value.name: value for value in model.graph.output})
    kept = [node for node in graph.node if not taken & set(node.output)]
    produced = {name for node in kept for name in node.output}
    outputs = [value for value in model.graph.output if value.name in produced]
    names = {value.name for value in outputs}
    outputs += [onnx.ValueInfoProto(name=name) for name in read if name in produced - names]
    del graph.node[:], graph.output[:], graph.value_info[:]
    graph.node.extend(kept)
    graph.output.extend(outputs)
    graph.input.extend(values[name] for name in sorted(taken))
    return bare


def reattached(
    normal: onnx.ModelProto, model: onnx.ModelProto, nodes: Sequence[Detachable]
) -> onnx.ModelProto:
    """The normalised ``detached`` model with the custom nodes of ``model`` in it again, in place."""
    import onnx

    graph = normal.graph
    taken = {name for one in nodes for name in one.node.output if name}
    values = {value.name: value for value in (*graph.input, *graph.output, *graph.value_info)}
    declared = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    calls = [one.call(declared) for one in nodes]
    weights = {tensor.name for tensor in graph.initializer}
    missing = {name for call in calls for name in call.input} - weights
    missing |= {value.name for value in model.graph.output} - weights - values.keys()
    graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in missing)
    constants = {tensor.name: tensor for tensor in graph.initializer}
    values.update(
        (name, onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
        for name, tensor in constants.items()
        if name not in values
    )
    ordered = _sorted(
        [*graph.node, *calls],
        {*values.keys() - taken, *constants} - {name for node in graph.node for name in node.output},
    )
    inputs = [value for value in graph.input if value.name not in taken]
    outputs = [values[value.name] for value in model.graph.output]
    named = {value.name for value in (*inputs, *outputs)} | constants.keys()
    inner = [value for value in values.values() if value.name not in named]
    for field, items in (("node", ordered), ("input", inputs), ("output", outputs), ("value_info", inner)):
        old, copies = (
            getattr(graph, field),
            [type(item).FromString(item.SerializeToString()) for item in items],
        )
        del old[:]
        old.extend(copies)
    if not any(opset.domain == "edgepack" for opset in normal.opset_import):
        normal.opset_import.extend([onnx.helper.make_opsetid("edgepack", 1)])
    return normal


def _call(one: Custom, declared: Mapping[str, onnx.ValueInfoProto]) -> onnx.NodeProto:
    import onnx

    text = next(prop.value for prop in one.node.metadata_props if prop.key == CUSTOM)
    values = [declared[name] for name in one.node.output]
    results = [(static_shape(value), input_dtype(value)) for value in values]
    call = onnx.helper.make_node(CUSTOM, list(one.node.input), list(one.node.output), domain="edgepack")
    call.name = one.node.name or f"{one.operator.symbol} of {one.node.output[0]}"
    call.attribute.extend(
        [
            onnx.helper.make_attribute("symbol", one.operator.symbol),
            onnx.helper.make_attribute("source", one.operator.source.replace("\\", "/").rpartition("/")[2]),
            onnx.helper.make_attribute("operator", one.operator.operator),
            onnx.helper.make_attribute("numbers", text),
            onnx.helper.make_attribute("results", json.dumps(results)),
        ]
    )
    return call


def _sorted(nodes: list[onnx.NodeProto], ready: set[str]) -> list[onnx.NodeProto]:
    """The nodes, each behind those whose results it reads."""
    result: list[onnx.NodeProto] = []
    waiting = list(nodes)
    while waiting:
        able = [node for node in waiting if all(not name or name in ready for name in node.input)]
        if not able:
            return [*result, *waiting]
        for node in able:
            ready.update(node.output)
        result += able
        waiting = [node for node in waiting if not any(node is one for one in able)]
    return result


def _error(one: Custom, why: str) -> ModelError:
    name = one.node.name or one.node.output[0]
    return ModelError(
        f"The custom operator {one.operator.operator} does not fit the node {name}: {why}.",
        hint="Check shape, dtype and arguments in the file of --custom.",
    )


def _convert(builder: Any, inputs: Sequence[Any], values: dict[str, Any], opset: int) -> Any:
    """The call, for the importer."""
    from tvm import relax

    from edgepack.compiler.graph.opaque import CUSTOM as KIND
    from edgepack.compiler.graph.opaque import emit_opaque

    del opset
    texts = {
        key: v.decode() if isinstance(v, bytes) else v for key, v in values.items() if key != "tvm_custom"
    }
    call = {key: str(texts[key]) for key in ("symbol", "source", "numbers")}
    results = [(tuple(shape), dtype) for shape, dtype in json.loads(str(texts["results"]))]
    given = [operand for operand in inputs if operand is not None]
    made = emit_opaque(builder, call["symbol"], {"kind": KIND, **call}, given, results)
    return made[0] if len(made) == 1 else relax.Tuple(made)


#: As those of ``converters.py``.
CONVERTERS = {CUSTOM: _convert}
