"""What must hold of any ONNX file before something is computed of it: names are text, tensors have the bytes
that their shapes need, functions end, operators have operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.attribute_limits import check_attributes
from edgepack.errors import ModelError

if TYPE_CHECKING:
    import onnx

__all__ = [
    "MOST_ELEMENTS",
    "MOST_RANK",
    "check_shape",
    "check_structure",
    "expanded_nodes",
    "raw_bytes",
    "tensors_of",
]

#: Dimensions that a tensor may have.
MOST_RANK = 16

#: Elements of a tensor, so many that kernels count them with 32 bits.
MOST_ELEMENTS = 2**31 - 1

#: Functions that call functions: so many levels.
_MOST_LEVELS = 100

_AGAIN = "Export or download the model again."


def check_structure(path: Path, model: onnx.ModelProto) -> None:
    """Raises ModelError, in one sentence that says where, for a model that is damaged in itself.

    Args:
        path: of its file, for the message.
        model: external data not yet loaded.
    """
    _check_texts(path, model, "the model")
    for graph in (model.graph, *model.functions):
        for index, node in enumerate(graph.node):
            _check_node(path, node, index)
    for tensor in tensors_of(model):
        _check_tensor(path, tensor)
    check_attributes(model)
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        # Extents are looked at where they are known; what is too much for a message ends here.
        check_shape(f"{path}: {value.name!r}", [0] * len(value.type.tensor_type.shape.dim))
    expanded_nodes(model)


def check_shape(what: str, shape: Sequence[int]) -> None:
    """Raises ModelError for a shape that no tensor here can have; ``what`` names the tensor."""
    if len(shape) > MOST_RANK:
        raise ModelError(
            f"{what} has rank {len(shape)}; tensors have {MOST_RANK} dimensions at most.",
            hint="Reshape it before export: neighbouring dimensions that are handled alike can be one.",
        )
    if any(extent < 0 for extent in shape):
        raise ModelError(f"{what} has a negative extent: {_shown(shape)}.", hint=_AGAIN)
    if prod(shape) > MOST_ELEMENTS or any(extent > MOST_ELEMENTS for extent in shape):
        raise ModelError(
            f"{what} would have {_shown(shape)} elements; tensors have {MOST_ELEMENTS} at most.",
            hint="Check the sizes that decide its shape.",
        )


def expanded_nodes(model: onnx.ModelProto) -> int:
    """Nodes of the model with its own functions written out, those of inner graphs among them.

    Raises:
        ModelError: a function calls itself.
    """
    bodies = {(one.domain, one.name): one for one in model.functions}
    counts: dict[tuple[str, str], int] = {}

    def of(nodes: Sequence[onnx.NodeProto], within: tuple[tuple[str, str], ...]) -> int:
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type)
            total += of_function(key, within) if key in bodies else 1
            for attribute in node.attribute:
                for inner in (attribute.g, *attribute.graphs):
                    total += of(inner.node, within)
        return total

    def of_function(key: tuple[str, str], within: tuple[tuple[str, str], ...]) -> int:
        if key in counts:
            return counts[key]
        if key in within or len(within) >= _MOST_LEVELS:
            how = "calls itself" if key in within else f"is called {_MOST_LEVELS} levels deep"
            raise ModelError(
                f"The model's function {'.'.join(key)!r} {how}, so it cannot be written out.",
                hint="Export the model again, with functions that end.",
            )
        counts[key] = of(bodies[key].node, (*within, key))
        return counts[key]

    return of(model.graph.node, ())


def _check_texts(path: Path, message: Any, where: str) -> None:
    """Raises ModelError for a text field, of the message or in it, that is not UTF-8."""
    import onnx
    from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]

    # A tensor's numbers are not asked for: they would be copied.
    if isinstance(message, onnx.TensorProto):
        fields = [(message.DESCRIPTOR.fields_by_name["external_data"], message.external_data)]
        texts = [_text(message, "name")]
    else:
        fields = message.ListFields()
        texts = []
    for field, value in fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            texts += value if field.is_repeated else [value]
        elif field.message_type is not None:
            for index, one in enumerate(value if field.is_repeated else [value]):
                _check_texts(path, one, f"node {index}" if isinstance(one, onnx.NodeProto) else where)
    wrong = next((text for text in texts if isinstance(text, bytes)), None)
    if wrong is not None:
        raise ModelError(f"{path} is damaged: a text in {where} is not UTF-8: {wrong[:40]!r}.", hint=_AGAIN)


def _text(message: Any, name: str) -> str | bytes:
    """A text field, as bytes where these are not UTF-8."""
    try:
        return str(getattr(message, name))
    except UnicodeDecodeError as error:
        return bytes(error.object)


def _check_node(path: Path, node: onnx.NodeProto, index: int) -> None:
    import onnx

    name = node.name or f"node {index}"
    if not node.op_type:
        raise ModelError(f"{path}: {name!r} has no operator.", hint=_AGAIN)
    if not any(node.output):
        raise ModelError(f"{path}: the {node.op_type} node {name!r} has no outputs.", hint=_AGAIN)
    domain = "" if node.domain == "ai.onnx" else node.domain
    if onnx.defs.has(node.op_type, domain):
        least = onnx.defs.get_schema(node.op_type, domain).min_input
        if least and not node.input:
            raise ModelError(
                f"{path}: the {node.op_type} node {name!r} has no inputs; it takes {least} at least.",
                hint=_AGAIN,
            )
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            for number, one in enumerate(inner.node):
                _check_node(path, one, number)


def tensors_of(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """All tensors of the model, those in attributes and functions too."""

    def in_nodes(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
        for node in nodes:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
                for inner in (attribute.g, *attribute.graphs):
                    yield from inner.initializer
                    yield from in_nodes(inner.node)

    yield from model.graph.initializer
    yield from in_nodes(model.graph.node)
    for function in model.functions:
        yield from in_nodes(function.node)


def _check_tensor(path: Path, tensor: onnx.TensorProto) -> None:
    """Raises ModelError unless the tensor has an element type, a shape, and the numbers for it."""
    import onnx

    what = f"{path}: tensor {tensor.name!r}"
    if tensor.data_type not in onnx.TensorProto.DataType.values() or not tensor.data_type:
        raise ModelError(f"{what} has no known element type ({tensor.data_type}).", hint=_AGAIN)
    check_shape(what, tensor.dims)
    if tensor.HasField("segment"):
        raise ModelError(
            f"{what} is one part of a tensor in several segments, which nothing here reads.", hint=_AGAIN
        )
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return
    elements = prod(tensor.dims)
    if tensor.HasField("raw_data"):
        found, wanted, unit = len(tensor.raw_data), raw_bytes(tensor.data_type, elements), "bytes"
    else:
        field, wanted = _numbers_field(tensor.data_type, elements)
        found, unit = len(getattr(tensor, field)), "numbers"
    if found != wanted:
        raise ModelError(
            f"{what} is damaged: its shape {list(tensor.dims)} needs {wanted} {unit}, and it has {found}.",
            hint=_AGAIN,
        )


#: Bits of an element in ``raw_data``, where these are not those of the NumPy type that stands for it.
_BITS = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}


def raw_bytes(kind: int, elements: int) -> int:
    """Bytes of ``raw_data``, or of the external data, of a tensor of an element type
    (``onnx.TensorProto.data_type``)."""
    import onnx

    name = onnx.TensorProto.DataType.Name(kind)
    bits = _BITS.get(name) or 8 * onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize
    return (elements * bits + 7) // 8


def _numbers_field(kind: int, elements: int) -> tuple[str, int]:
    """The field that has the numbers of an element type, and how many entries it has for so many elements."""
    import onnx

    name = onnx.TensorProto.DataType.Name(kind)
    field = onnx.helper.tensor_dtype_to_field(kind)
    if name.startswith("COMPLEX"):
        return field, 2 * elements
    per_entry = 8 // _BITS[name] if name in _BITS else 1
    return field, -(-elements // per_entry)


def _shown(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "1"
