"""Damages ONNX models: what an exporter gets wrong, what a file loses on its way, what somebody writes on
purpose. All of it follows from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from onnx import TensorProto, helper

__all__ = ["EXTERNAL", "damaged"]

#: The external data file that damaged models refer to, which has so many bytes.
EXTERNAL = ("weights.bin", 4096)

_INTEGERS = (
    0,
    1,
    2,
    3,
    -1,
    -2,
    7,
    64,
    300,
    65536,
    2**31 - 1,
    2**31,
    2**40,
    2**62,
    2**63 - 1,
    -(2**31),
    -(2**63),
)
_FLOATS = (0.0, -1.0, 1e-45, 3.4e38, float("inf"), float("-inf"), float("nan"))
_OPERATORS = (
    *("Relu", "Add", "MatMul", "Gemm", "Conv", "ConvTranspose", "MaxPool", "AveragePool", "Softmax"),
    "Reshape",
    *("Expand", "Tile", "Pad", "Resize", "Range", "ConstantOfShape", "Concat", "Slice", "Gather", "Split"),
    *("Transpose", "Squeeze", "Unsqueeze", "Cast", "Where", "TopK", "OneHot", "Identity", "Constant", "Loop"),
    *("If", "Scan", "LSTM", "GRU", "RNN", "NonZero", "Einsum", "ReduceSum", "QuantizeLinear", "DFT", "STFT"),
    *("DequantizeLinear", "LayerNormalization", "BatchNormalization", "Attention", "", "a b"),
    "SequenceConstruct",
    *("TfIdfVectorizer", "StringNormalizer", "RandomNormal", "Bernoulli", "GridSample", "CumSum", "EyeLike"),
)  # fmt: skip
_DOMAINS = ("", "ai.onnx", "com.microsoft", "ai.onnx.ml", "ai.onnx.preview.training", "x", "edgepack.bodies")
_TEXTS = (
    "",
    "x",
    "y",
    "../x",
    "/etc/passwd",
    "a" * 5000,
    "EOF",
    "%s%n",
    "a\nb\x1b[31m",
    "NOTSET",
    "SAME_UPPER",
)
#: Stands in a text field for bytes that are no UTF-8 until the model is serialised.
_PLACEHOLDER, _NOT_UTF8 = b"@@NOT-UTF-8@@", b"\xff\xfe\x80\xc0(\xed\xa0\x80)\xf5\x00\x01"


def damaged(model: onnx.ModelProto, other: bytes, seed: int) -> bytes:
    """The bytes of a model after one to four accidents.

    Args:
        other: another model, parts of which may get into this one.
    """
    draw = random.Random(seed)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    bytes_only = draw.random() < 0.12
    for _ in range(0 if bytes_only else draw.choice((1, 1, 1, 1, 2, 3))):
        draw.choice(_ACCIDENTS)(copy, draw)
    data: bytes = copy.SerializeToString()
    data = data.replace(_PLACEHOLDER, _NOT_UTF8)
    if bytes_only or draw.random() < 0.05:
        for _ in range(draw.choice((1, 1, 2, 5))):
            data = _bytes(data, other, draw)
    return data


def _bytes(data: bytes, other: bytes, draw: random.Random) -> bytes:
    at, length = draw.randrange(len(data) + 1), draw.choice((1, 1, 2, 8, 40))
    match draw.randrange(6):
        case 0:  # a bit
            return data[:at] + bytes(b ^ (1 << draw.randrange(8)) for b in data[at : at + 1]) + data[at + 1 :]
        case 1:
            return data[:at] + draw.randbytes(length) + data[at + length :]
        case 2:
            return data[:at]
        case 3:
            return data[:at] + data[at + length :]
        case 4:
            return data[:at] + data[max(0, at - length) :]
        case _:
            start = draw.randrange(len(other) + 1)
            return data[:at] + other[start : start + 4 * length] + data[at:]


def _messages(message: Any, depth: int = 0) -> Iterator[Any]:
    """The message and all in it, not deeper than 12."""
    yield message
    if depth < 12:
        for field, value in message.ListFields():
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                for one in value if field.is_repeated else [value]:
                    yield from _messages(one, depth + 1)


def _integer(draw: random.Random, field: Any) -> int:
    value = draw.choice(_INTEGERS) if draw.random() < 0.7 else draw.randrange(-8, 40)
    return (value + 2**31) % 2**32 - 2**31 if field.cpp_type in _SMALL else value


_SMALL = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_ENUM)


def _scalar(message: Any, field: Any, draw: random.Random) -> Any:
    """A value of the field's type."""
    if field.type == FieldDescriptor.TYPE_ENUM:
        return draw.choice(list(field.enum_type.values_by_number))
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        text = draw.choice((*_TEXTS, *_OPERATORS, _PLACEHOLDER.decode(), _PLACEHOLDER.decode()))
        return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
    if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return draw.choice(_FLOATS)
    if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
        return abs(_integer(draw, field))
    return _integer(draw, field)


def _any_field(model: onnx.ModelProto, draw: random.Random) -> None:
    """Any field of any message: gone, doubled, set to something else."""
    message = draw.choice(list(_messages(model)))
    if not message.DESCRIPTOR.fields:
        return
    field = draw.choice(message.DESCRIPTOR.fields)
    held = getattr(message, field.name)
    if field.is_repeated:
        what = draw.randrange(4)
        if what == 0:
            message.ClearField(field.name)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            if what == 1 and len(held):
                held.add().CopyFrom(draw.choice(list(held)))
            elif what == 2 and len(held):
                del held[draw.randrange(len(held))]
            else:
                held.add()
        elif what == 1 and len(held):
            held[draw.randrange(len(held))] = _scalar(message, field, draw)
        else:
            held.extend(_scalar(message, field, draw) for _ in range(draw.choice((1, 1, 2, 9))))
    elif draw.random() < 0.3:
        message.ClearField(field.name)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        held.SetInParent()
    else:
        setattr(message, field.name, _scalar(message, field, draw))


def _graphs(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    return [m for m in _messages(model) if isinstance(m, onnx.GraphProto)]


def _node(model: onnx.ModelProto, draw: random.Random) -> onnx.NodeProto:
    nodes = [m for m in _messages(model) if isinstance(m, onnx.NodeProto)]
    return draw.choice(nodes) if nodes else model.graph.node.add()


def _names(model: onnx.ModelProto) -> list[str]:
    found = ["", "nobody"]
    for graph in _graphs(model):
        found += [v.name for v in (*graph.input, *graph.output, *graph.initializer)]
        found += [name for node in graph.node for name in (*node.input, *node.output)]
    return found


def _operator(model: onnx.ModelProto, draw: random.Random) -> None:
    node = _node(model, draw)
    if draw.random() < 0.7:
        node.op_type = draw.choice(_OPERATORS)
    else:
        node.domain = draw.choice(_DOMAINS)
        if draw.random() < 0.5:
            model.opset_import.add(domain=node.domain, version=1)


def _edge(model: onnx.ModelProto, draw: random.Random) -> None:
    node = _node(model, draw)
    ends = node.input if draw.random() < 0.6 else node.output
    what, name = draw.randrange(4), draw.choice(_names(model))
    if what == 0 or not ends:
        ends.append(name)
    elif what == 1:
        ends[draw.randrange(len(ends))] = name
    elif what == 2:
        del ends[draw.randrange(len(ends)) :]
    else:
        del ends[:]


def _order(model: onnx.ModelProto, draw: random.Random) -> None:
    """Nodes of a graph in another order, doubled, or gone."""
    graph = draw.choice(_graphs(model) or [model.graph])
    nodes = list(graph.node)
    if not nodes:
        return
    match draw.randrange(3):
        case 0:
            draw.shuffle(nodes)
        case 1:
            nodes.append(draw.choice(nodes))
        case _:
            nodes.remove(draw.choice(nodes))
    _set_nodes(graph, nodes)


def _set_nodes(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> None:
    copies = [onnx.NodeProto() for _ in nodes]
    for copy, node in zip(copies, nodes, strict=True):
        copy.CopyFrom(node)
    del graph.node[:]
    graph.node.extend(copies)


def _extents(model: onnx.ModelProto, draw: random.Random) -> None:
    """The shape of an input, an output or an initializer."""
    graph = draw.choice(_graphs(model) or [model.graph])
    holders: list[Any] = [*graph.input, *graph.output, *graph.initializer, *graph.value_info]
    if not holders:
        return
    holder = draw.choice(holders)
    if isinstance(holder, onnx.TensorProto):
        _numbers(holder.dims, draw)
        return
    dims = holder.type.tensor_type.shape.dim
    match draw.randrange(4):
        case 0 if dims:
            draw.choice(list(dims)).dim_value = draw.choice(_INTEGERS)
        case 1 if dims:
            draw.choice(list(dims)).dim_param = draw.choice(("N", "", "batch", _PLACEHOLDER.decode()))
        case 2:
            for _ in range(draw.choice((1, 2, 8, 300))):
                dims.add().dim_value = draw.choice((1, 1, 2))
        case _:
            holder.type.tensor_type.ClearField("shape")


def _numbers(numbers: Any, draw: random.Random) -> None:
    match draw.randrange(4):
        case 0 if numbers:
            numbers[draw.randrange(len(numbers))] = draw.choice(_INTEGERS)
        case 1 if numbers:
            numbers.pop()
        case 2 if numbers:
            numbers.extend(list(numbers))
        case _:
            numbers.extend([1] * draw.choice((1, 2, 300)))


def _type(model: onnx.ModelProto, draw: random.Random) -> None:
    """The element type of a value or tensor, or what kind of value it is."""
    graph = draw.choice(_graphs(model) or [model.graph])
    holders: list[Any] = [*graph.input, *graph.output, *graph.initializer, *graph.value_info]
    if not holders:
        return
    holder, element = draw.choice(holders), draw.randrange(0, 30)
    if isinstance(holder, onnx.TensorProto):
        holder.data_type = element
    elif draw.random() < 0.8:
        holder.type.tensor_type.elem_type = element
    elif draw.random() < 0.5:
        holder.type.sequence_type.elem_type.tensor_type.elem_type = element
    else:
        holder.type.optional_type.elem_type.tensor_type.elem_type = element


def _attribute(model: onnx.ModelProto, draw: random.Random) -> None:
    nodes = [m for m in _messages(model) if isinstance(m, onnx.NodeProto) and m.attribute]
    if not nodes or draw.random() < 0.15:
        name = draw.choice(
            ("axis", "axes", "perm", "to", "shape", "value", "body", "keepdims", "kernel_shape")
        )
        _node(model, draw).attribute.append(
            helper.make_attribute(name, draw.choice((0, 2**40, [1, 2], "x", 1.5)))
        )
        return
    attribute = draw.choice(list(draw.choice(nodes).attribute))
    what = draw.randrange(6)
    if what == 0:
        attribute.type = draw.randrange(0, 15)
    elif what == 1:
        attribute.name = draw.choice(("axis", "", _PLACEHOLDER.decode(), "body"))
    elif attribute.type == onnx.AttributeProto.INTS:
        _numbers(attribute.ints, draw)
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = draw.choice(_FLOATS)
    elif attribute.type == onnx.AttributeProto.STRING:
        attribute.s = draw.choice(_TEXTS).encode() if draw.random() < 0.7 else _NOT_UTF8
    else:
        attribute.i = draw.choice(_INTEGERS)


def _tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    return [m for m in _messages(model) if isinstance(m, onnx.TensorProto)]


def _data(model: onnx.ModelProto, draw: random.Random) -> None:
    """The numbers of a tensor: too few, too many, in another field, absurd ones where sizes are expected."""
    tensors = _tensors(model)
    if not tensors:
        return
    tensor = draw.choice(tensors)
    match draw.randrange(6):
        case 0:
            tensor.raw_data = tensor.raw_data[: draw.randrange(len(tensor.raw_data) + 1)]
        case 1:
            tensor.raw_data += draw.randbytes(draw.choice((1, 4, 100)))
        case 2:
            tensor.float_data.extend(_FLOATS)
        case 3:
            count = max(1, len(tensor.raw_data) // 8)
            tensor.ClearField("raw_data")
            tensor.int64_data.extend(draw.choice(_INTEGERS) for _ in range(count))
        case 4:
            sizes = [t for t in tensors if t.data_type == TensorProto.INT64]
            tensor = draw.choice(sizes or tensors)
            count = len(tensor.raw_data) // 8
            values = [draw.choice(_INTEGERS) for _ in range(count)]
            tensor.raw_data = b"".join(v.to_bytes(8, "little", signed=True) for v in values)
        case _:
            tensor.string_data.append(draw.choice(_TEXTS).encode())


def _external(model: onnx.ModelProto, draw: random.Random) -> None:
    tensors = _tensors(model)
    if not tensors:
        return
    tensor = draw.choice(tensors)
    length = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    numbers = (
        "",
        "-1",
        "0",
        "4",
        "1e9",
        "0x10",
        str(2**40),
        str(2**63),
        "9" * 5000,
        str(length),
        "x",
        " 8 ",
        "٣",
    )
    location = (EXTERNAL[0],) * 12 + (
        "",
        ".",
        "missing",
        "../weights.bin",
        "/dev/zero",
        "a\0b",
        "a" * 300,
        "a/b",
    )
    entries = {
        "location": draw.choice(location),
        "offset": draw.choice(numbers),
        "length": draw.choice(numbers),
    }
    if draw.random() < 0.5:
        entries |= {"offset": "0", "length": str(length)}
        entries[draw.choice(list(entries))] = draw.choice((*numbers, EXTERNAL[0]))
    for key, value in entries.items():
        if draw.random() < 0.9:
            tensor.external_data.add(key=key, value=value)


def _function(model: onnx.ModelProto, draw: random.Random) -> None:
    """A call of a function that calls itself, another that calls it, or so many that it never ends."""
    node = _node(model, draw)
    depth = draw.choice((0, 1, 2, 12, 40))
    for level in range(depth + 1):
        function = model.functions.add(domain="mine", name=f"f{level}")
        function.opset_import.add(domain="", version=draw.choice((17, 17, 1, 99)))
        function.opset_import.add(domain="mine", version=1)
        function.input.append("a")
        function.output.append("b")
        last = level == depth
        recursive = last and draw.random() < 0.6
        callee = f"f{0 if recursive else level + 1}"
        op, domain = (callee, "mine") if recursive or not last else ("Relu", "")
        function.node.append(helper.make_node(op, ["a"], ["t"], domain=domain))
        function.node.append(helper.make_node(op, ["t"], ["b"], domain=domain))
    model.opset_import.add(domain="mine", version=1)
    node.op_type, node.domain = "f0", "mine"
    del node.attribute[:]
    if draw.random() < 0.3:
        _any_field(model, draw)


def _nest(model: onnx.ModelProto, draw: random.Random) -> None:
    """All nodes in the branches of an If, or the body of a Loop, as often as it takes."""
    graph = model.graph
    for _ in range(draw.choice((1, 1, 1, 2, 12))):
        inner = onnx.GraphProto(name="inner")
        inner.node.extend(graph.node)
        inner.output.extend(graph.output)
        outputs = [value.name for value in graph.output]
        del graph.node[:]
        if draw.random() < 0.5:
            graph.initializer.append(helper.make_tensor("condition", TensorProto.BOOL, [], [True]))
            node = helper.make_node(
                "If", ["condition"], outputs, then_branch=inner, else_branch=_other(inner)
            )
        else:
            trips = draw.choice((0, 1, 3, 2**40, -1))
            graph.initializer.append(helper.make_tensor("trips", TensorProto.INT64, [], [trips]))
            body = onnx.GraphProto(name="body")
            body.node.append(helper.make_node("Identity", ["go"], ["on"]))
            body.node.extend(inner.node)
            body.input.append(helper.make_tensor_value_info("i", TensorProto.INT64, []))
            body.input.append(helper.make_tensor_value_info("go", TensorProto.BOOL, []))
            body.output.append(helper.make_tensor_value_info("on", TensorProto.BOOL, []))
            body.output.extend(inner.output)
            node = helper.make_node("Loop", ["trips", ""], outputs, body=body)
        graph.node.append(node)


def _other(branch: onnx.GraphProto) -> onnx.GraphProto:
    """A branch of a node or two, with the same outputs: both alike would double the model's size."""
    other = onnx.GraphProto(name="other")
    other.output.extend(branch.output)
    for value in branch.output:
        other.node.append(helper.make_node("Identity", ["condition"], [value.name]))
    return other


def _giant(model: onnx.ModelProto, draw: random.Random) -> None:
    """A value that is far larger than the model, behind an input or out of nothing."""
    graph = model.graph
    size = draw.choice((2**20, 2**28, 2**31, 2**33, 2**40, 2**62))
    values: Sequence[str] = [v.name for v in graph.input] or ["nobody"]
    name = draw.choice(values)
    op = draw.choice(("Range", "ConstantOfShape", "Expand", "Tile", "Pad", "Resize", "OneHot", "EyeLike"))
    scalar, vector = partial_tensor(graph, []), partial_tensor(graph, [1])
    match op:
        case "Range":
            node = helper.make_node(op, [scalar(0), scalar(size), scalar(1)], ["giant"])
        case "ConstantOfShape":
            node = helper.make_node(op, [vector(size)], ["giant"])
        case "Expand" | "Tile":
            node = helper.make_node(op, [name, vector(size)], ["giant"])
        case "Pad":
            node = helper.make_node(op, [name, vector(size), "", vector(0)], ["giant"])
        case "Resize":
            node = helper.make_node(op, [name, "", "", vector(size)], ["giant"], axes=[0])
        case "OneHot":
            graph.initializer.append(helper.make_tensor("pair", TensorProto.FLOAT, [2], [0.0, 1.0]))
            node = helper.make_node(op, [vector(1), scalar(size), "pair"], ["giant"])
        case _:
            node = helper.make_node("ConstantOfShape", [vector(size)], ["giant"])
    _set_nodes(graph, [node, *graph.node])
    if draw.random() < 0.5:
        graph.output.append(onnx.ValueInfoProto(name="giant"))
    else:
        graph.node.append(helper.make_node("ReduceMax", ["giant"], ["most"], keepdims=0))
        graph.output.append(onnx.ValueInfoProto(name="most"))


def partial_tensor(graph: onnx.GraphProto, shape: list[int]) -> Callable[[int], str]:
    """A function that adds a constant of this shape and gives its name."""

    def add(value: int) -> str:
        name = f"giant_{len(graph.initializer)}"
        graph.initializer.append(helper.make_tensor(name, TensorProto.INT64, shape, [value]))
        return name

    return add


_ACCIDENTS: tuple[Callable[[onnx.ModelProto, random.Random], None], ...] = (
    *(_any_field,) * 6,
    *(
        _operator,
        _edge,
        _edge,
        _order,
        _extents,
        _extents,
        _type,
        _attribute,
        _attribute,
        _data,
        _data,
        _external,
    ),
    *(_function, _nest, _giant),
)
