"""Whether each node is one that its operator set knows: so many inputs, these attributes, these types.

The importer takes what it does not expect for nothing. So the nodes that edgepack's own rewrites write are
looked at whenever a model is packed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.model_file import default_opset
from edgepack.errors import InternalError

if TYPE_CHECKING:
    import onnx

__all__ = ["check_forms", "wrong_forms", "wrong_nodes"]

#: Element types, by ONNX's names, that the importer takes beside those that the standard has.
_ALSO = {"Conv": {"INT32"}}


def check_forms(model: onnx.ModelProto) -> None:
    """Raises InternalError if a node of a standard operator has not the form of the model's operator set.

    Args:
        model: with the types of its values, as far as they are known.
    """
    wrong = list(wrong_forms(model))
    if wrong:
        raise InternalError(
            "The model was rewritten to operators in a form that they do not have.",
            hint="Report the model: this is a defect of edgepack.",
            detail="\n".join(wrong[:20]),
        )


def wrong_forms(model: onnx.ModelProto) -> Iterator[str]:
    """What is wrong with which node, of a standard operator, a sentence each."""
    opset = default_opset(model)
    for node, why in wrong_nodes(model):
        yield f"{node.op_type} {node.name or node.output[0]}, opset {opset}: {why}"


def wrong_nodes(model: onnx.ModelProto) -> Iterator[tuple[onnx.NodeProto, str]]:
    """Nodes of standard operators that have not the form of the model's operator set, and why not."""
    opset = default_opset(model)
    graph = model.graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        types[value.name] = value.type.tensor_type.elem_type
    for node in graph.node:
        schema = _schema(node.op_type, opset) if node.domain in ("", "ai.onnx") else None
        if schema is None:
            continue
        for why in _wrong(node, schema, types):
            yield node, why


@cache
def _schema(op_type: str, opset: int) -> Any:
    """The operator's schema in an operator set, or the first one if it came later; None if there is none."""
    import onnx

    try:
        return onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        since = _versions().get(op_type)
        return None if since is None else onnx.defs.get_schema(op_type, since, "")


@cache
def _versions() -> dict[str, int]:
    """The operator set that each standard operator came with."""
    import onnx

    found: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            found[schema.name] = min(schema.since_version, found.get(schema.name, schema.since_version))
    return found


def _wrong(node: onnx.NodeProto, schema: Any, types: dict[str, int]) -> Iterator[str]:
    given = list(node.input)
    while given and not given[-1]:
        given.pop()
    if not schema.min_input <= len(given) <= schema.max_input:
        yield f"it has {len(given)} inputs"
    if not schema.min_output <= len(node.output) <= schema.max_output:
        yield f"it has {len(node.output)} outputs"
    known, names = _attributes(schema), {attribute.name for attribute in node.attribute}
    for name in sorted(names - known.keys()):
        yield f"it has an attribute {name!r}"
    for name in sorted(n for n, required in known.items() if required and n not in names):
        yield f"it has no attribute {name!r}"
    for index, name in enumerate(given):
        allowed = _types(schema, min(index, len(schema.inputs) - 1)) if schema.inputs else frozenset()
        if types.get(name) and allowed and types[name] not in allowed:
            yield f"its input {index} has the element type {types[name]}"


@cache
def _attributes(schema: Any) -> dict[str, bool]:
    """Names of attributes, and whether they must be there."""
    return {name: bool(attribute.required) for name, attribute in schema.attributes.items()}


@cache
def _types(schema: Any, index: int) -> frozenset[int]:
    """Element types of an input that is a tensor, also those that came later: the importer knows all."""
    import onnx

    newest = onnx.defs.get_schema(schema.name, "").inputs[index:][:1]
    texts = {text for formal in (schema.inputs[index], *newest) for text in formal.types}
    names = {text[7:-1].upper() for text in texts if text.startswith("tensor(")}
    names |= _ALSO.get(schema.name, set()) if names else set()
    return frozenset(onnx.TensorProto.DataType.Value(name) for name in names)
