"""Writes operators out as the standard's own function bodies: what neither importer nor optimiser knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.model_file import default_opset
from edgepack.compiler.frontend.onnx.shapes import infer_shapes
from edgepack.errors import ModelError

if TYPE_CHECKING:
    import onnx

__all__ = ["function_body", "has_function_body", "inlined", "write_out"]

#: Domains whose operators ONNX defines; "" is also called "ai.onnx".
STANDARD_DOMAINS = ("", "ai.onnx", "ai.onnx.preview")

#: Domain of the functions that bodies are for a moment, before they are inlined.
_BODIES = "edgepack.bodies"

#: Bodies may use operators that have bodies; so often at most.
_DEPTH = 8


def has_function_body(domain: str, op_type: str) -> bool:
    """Whether the standard defines the operator by simpler ones."""
    import onnx

    domain = "" if domain == "ai.onnx" else domain
    if domain not in STANDARD_DOMAINS or not onnx.defs.has(op_type, domain):
        return False
    schema = onnx.defs.get_schema(op_type, domain)
    return bool(schema.has_function or schema.has_context_dependent_function)


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its own functions written out; ``model`` itself if it has none.

    Raises:
        ModelError: ONNX's inliner refuses them: a call with too many operands, an opset that is unknown.
    """
    from onnx import inliner

    if not model.functions:
        return model
    try:
        return inliner.inline_local_functions(model, convert_version=True)
    except Exception as error:  # assertions of its C++, and the checker's errors
        raise ModelError(
            "The model's functions cannot be written out.",
            hint="Export the model without functions of its own, or with functions of the model's opset.",
            detail=str(error).splitlines()[0] if str(error) else type(error).__name__,
        ) from error


def write_out(model: onnx.ModelProto, wanted: Callable[[onnx.NodeProto], bool]) -> onnx.ModelProto:
    """The model with the function bodies of the nodes that are ``wanted`` in their place, at any depth.

    A node that has no body for its types stays. ``model`` is not changed.
    """
    import onnx

    for _ in range(_DEPTH):
        if not any(wanted(node) for node in model.graph.node):
            break
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        if not _name_bodies(copy, wanted):
            break
        model = inlined(copy)
        del model.graph.value_info[:]
    return model


def _name_bodies(model: onnx.ModelProto, wanted: Callable[[onnx.NodeProto], bool]) -> bool:
    """Makes a function of each body and a call of each node, in place; whether there was one."""
    import onnx

    graph = infer_shapes(model).graph
    types = {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}
    for tensor in model.graph.initializer:
        types[tensor.name] = _tensor_type(tensor)
    count = 0
    for node in model.graph.node:
        body = function_body(node, model, types) if wanted(node) else None
        if body is None:
            continue
        count += 1
        body.name, body.domain = f"body{count}", _BODIES
        node.op_type, node.domain = body.name, _BODIES
        model.functions.append(body)
    if count:
        del model.graph.value_info[:]  # the inliner looks up types of what a function of another opset reads
        model.graph.value_info.extend(
            onnx.helper.make_value_info(name, kind)
            for name, kind in types.items()
            if kind.WhichOneof("value")
        )
        model.opset_import.append(_opset(_BODIES, 1))
    return count > 0


def function_body(
    node: onnx.NodeProto, model: onnx.ModelProto, types: dict[str, onnx.TypeProto]
) -> onnx.FunctionProto | None:
    """The body of an operator for these attributes and types of inputs; None if it has none.

    Attributes that the node leaves out are given their default in the node, because a body refers to them.
    """
    import onnx

    domain = "" if node.domain == "ai.onnx" else node.domain
    version = next((o.version for o in model.opset_import if o.domain == domain), default_opset(model))
    try:
        schema = onnx.defs.get_schema(node.op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in schema.attributes.items():
        if name not in given and attribute.default_value.type:
            node.attribute.append(attribute.default_value)
    opset = default_opset(model)
    fixed = [v for v in schema.function_opset_versions if v <= opset or domain]
    if fixed:
        return _parsed(schema.get_function_with_opset_version(max(fixed)))
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset or domain]
    if not versions:
        return None
    inputs = [types[name].SerializeToString() if name in types else b"" for name in node.input]
    return _parsed(
        schema.get_context_dependent_function_with_opset_version(
            max(versions), node.SerializeToString(), inputs
        )
    )


def _parsed(content: bytes) -> onnx.FunctionProto | None:
    import onnx

    return onnx.FunctionProto.FromString(content) if content else None


def _tensor_type(tensor: onnx.TensorProto) -> onnx.TypeProto:
    import onnx

    return onnx.helper.make_tensor_type_proto(tensor.data_type, tuple(tensor.dims))


def _opset(domain: str, version: int) -> onnx.OperatorSetIdProto:
    import onnx

    return onnx.helper.make_opsetid(domain, version)
