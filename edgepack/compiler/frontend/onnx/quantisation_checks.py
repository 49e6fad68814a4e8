"""Refuses quantised models whose constants cannot be meant: scales of zero, zero points of another type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.shapes import all_nodes, infer_shapes
from edgepack.compiler.frontend.onnx.support import node_name
from edgepack.errors import ModelError

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["QUANTISED_PLACES", "check_quantisation"]

_ELEMENTS = ((0, 1, 2), (-1, 3, 4))
_PAIRS = ((0, 1, 2), (3, 4, 5), (-1, 6, 7))

#: By operator, the places of integers, scale and zero point among the inputs; -1 for a result.
QUANTISED_PLACES: dict[str, tuple[tuple[int, int, int], ...]] = {
    "DequantizeLinear": ((0, 1, 2),),
    "DynamicQuantizeLSTM": ((1, 8, 9), (2, 10, 11)),
    "DynamicQuantizeMatMul": ((1, 2, 3),),
    "MatMulIntegerToFloat": ((0, 2, 4), (1, 3, 5)),
    "QAttention": ((0, 3, 6), (1, 4, 7)),
    "QEmbedLayerNormalization": tuple((i, i + 6, i + 11) for i in range(2, 7)),
    "QGemm": ((0, 1, 2), (3, 4, 5), (-1, 7, 8)),
    "QLinearAdd": _PAIRS,
    "QLinearAveragePool": _ELEMENTS,
    "QLinearConv": _PAIRS,
    "QLinearGlobalAveragePool": _ELEMENTS,
    "QLinearLeakyRelu": _ELEMENTS,
    "QLinearMatMul": _PAIRS,
    "QLinearMul": _PAIRS,
    "QLinearReduceMean": _ELEMENTS,
    "QLinearSigmoid": _ELEMENTS,
    "QLinearSoftmax": _ELEMENTS,
    "QLinearWhere": ((1, 2, 3), (4, 5, 6), (-1, 7, 8)),
    "QuantizeLinear": ((-1, 1, 2),),
}

#: Types that values are quantised to, by ONNX's names in lower case.
_RESULTS = (
    *("int2", "uint2", "int4", "uint4", "int8", "uint8", "int16", "uint16"),
    *("float4e2m1", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"),
)

#: And those that are dequantised: biases are int32.
_OPERANDS = (*_RESULTS, "int32")

#: Operators that ONNX Runtime aborts on if they leave out the zero point of their result, though they may.
_TABLES = ("QLinearLeakyRelu", "QLinearSigmoid")

#: Bits that MatMulNBits has weights of.
_WIDTHS = (2, 4, 8)

AGAIN = "Quantise the model again, or correct the node."


def check_quantisation(model: onnx.ModelProto) -> None:
    """Looks at the constants of all quantised operators of the outermost graph, and in the others for what
    ONNX Runtime dies of.

    Raises:
        ModelError: names the node, and what is wrong with it.
    """
    for index, node in enumerate(all_nodes(model.graph)):
        if node.op_type in _TABLES and not any(node.input[4:]):
            subject = _Subject(node, f"The {node.op_type} node {node_name(node, index)}")
            raise subject.refused("lacks the zero point of its result, which ONNX Runtime reads all the same")
    quantised = {*QUANTISED_PLACES, "MatMulNBits", "QLinearConcat"}
    if not any(node.op_type in quantised for node in model.graph.node):
        return
    values = _Values(model)
    for index, node in enumerate(model.graph.node):
        if node.op_type not in quantised or node.domain not in ("", "ai.onnx", "com.microsoft"):
            continue
        subject = _Subject(node, f"The {node.op_type} node {node_name(node, index)}")
        if node.op_type == "MatMulNBits":
            _check_blocks_of_bits(subject, values)
        for each in _quantities(node):
            _check_scale(subject, each, values)
            _check_zero(subject, each, values)
            _check_axis(subject, each, values)


@dataclass(frozen=True)
class _Subject:
    """A node and how a sentence about it begins."""

    node: onnx.NodeProto
    sentence: str

    def attribute(self, name: str, default: int) -> int:
        return next((int(item.i) for item in self.node.attribute if item.name == name), default)

    def refused(self, what: str, detail: str = "") -> ModelError:
        return ModelError(f"{self.sentence} {what}.", hint=AGAIN, detail=detail)


@dataclass(frozen=True)
class _Quantity:
    """Names of integers ("" for a result), their scale and their zero point, "" where it is left out."""

    integers: str
    scale: str
    zero: str


class _Values:
    """Constants, types and shapes of a graph."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
                found = [item.t for item in node.attribute if item.name == "value"]
                self._tensors.update(dict.fromkeys(node.output, found[0]) if found else {})
        graph = infer_shapes(model).graph
        self._types = {value.name: value.type.tensor_type for value in (*graph.value_info, *graph.input)}

    def constant(self, name: str) -> NDArray[Any] | None:
        from onnx import numpy_helper

        return numpy_helper.to_array(self._tensors[name]) if name in self._tensors else None

    def element(self, name: str) -> str:
        """The type of an element by ONNX's name in lower case; "" if it is unknown."""
        tensor = self._tensors.get(name)
        if tensor is not None:
            return _type_name(tensor.data_type)
        return _type_name(self._types[name].elem_type) if name in self._types else ""

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape, with 0 for an unknown extent; None if the rank is unknown."""
        if name in self._tensors:
            return tuple(self._tensors[name].dims)
        kind = self._types.get(name)
        if kind is None or not kind.HasField("shape"):
            return None
        return tuple(int(dim.dim_value) for dim in kind.shape.dim)


def _type_name(element: int) -> str:
    import onnx

    return onnx.TensorProto.DataType.Name(element).lower() if element else ""


def _quantities(node: onnx.NodeProto) -> Iterator[_Quantity]:
    def named(place: int) -> str:
        return str(node.input[place]) if 0 <= place < len(node.input) else ""

    places = list(QUANTISED_PLACES.get(node.op_type, ()))
    if node.op_type == "QLinearConcat":
        places = [(-1, 0, 1), *((i, i + 1, i + 2) for i in range(2, len(node.input), 3))]
    for triple in places:
        if named(triple[1]):
            yield _Quantity(*(named(place) for place in triple))


def _check_scale(subject: _Subject, each: _Quantity, values: _Values) -> None:
    """Positive and finite; finite for integers in blocks, for which quantisers choose the scale so that the
    number of the largest magnitude is the lowest integer: negative where that is positive, 0 for zeros."""
    import numpy as np

    scale = values.constant(each.scale)
    if scale is None:
        return
    numbers, kind = scale.astype(np.float64).reshape(-1), "positive finite"
    wrong = ~(np.isfinite(numbers) & (numbers > 0))
    if each.integers and subject.attribute("block_size", 0):
        wrong, kind = ~np.isfinite(numbers), "finite"
    if wrong.any():
        first = int(np.argmax(wrong))
        raise subject.refused(f"has a scale of {numbers[first]:g}, where a {kind} number belongs",
                              f"element {first} of {each.scale!r}")  # fmt: skip


def _check_zero(subject: _Subject, each: _Quantity, values: _Values) -> None:
    zero, integers = values.element(each.zero), values.element(each.integers)
    if not each.integers and not zero:
        integers = _type_name(subject.attribute("output_dtype", 0))
    if zero and integers and zero != integers:
        raise subject.refused(f"has a zero point of {zero} for values of {integers}")
    kind = zero or integers
    allowed = _RESULTS if not each.integers else _OPERANDS
    if kind and kind not in allowed:
        verb = "has" if each.integers else "gives"
        raise subject.refused(f"{verb} values of {kind}, which is no quantised type")
    found = values.constant(each.zero)
    if found is not None and kind.startswith(("int32", "float")) and found.astype("float64").any():
        raise subject.refused(f"has a zero point other than 0 for values of {kind}")
    shapes = values.shape(each.zero) if each.zero else None, values.shape(each.scale)
    if shapes[0] is not None and shapes[1] is not None and _numbers(shapes[0]) != _numbers(shapes[1]):
        of_columns = _numbers(shapes[0]) == () and subject.node.domain == "com.microsoft"
        if not of_columns and 0 not in shapes[0] + shapes[1]:
            raise subject.refused(
                f"has zero points of shape {_text(shapes[0])} and scales of {_text(shapes[1])}"
            )


def _numbers(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape, and that of rank 0 for one of a single number."""
    return () if all(extent == 1 for extent in shape) else shape


def _text(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(str(extent) for extent in shape) + "]"


def _check_axis(subject: _Subject, each: _Quantity, values: _Values) -> None:
    """QuantizeLinear and DequantizeLinear: the axis, and as many scales as it has places or blocks."""
    if subject.node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
        return
    shape, scales = values.shape(subject.node.input[0]), values.shape(each.scale)
    axis, block = subject.attribute("axis", 1), subject.attribute("block_size", 0)
    if block < 0:
        raise subject.refused(f"has blocks of {block} values")
    if shape is None or scales is None or _numbers(scales) == ():
        return
    if not -len(shape) <= axis < len(shape):
        raise subject.refused(f"has scales along axis {axis} of a tensor of rank {len(shape)}")
    extent = shape[axis]
    if not block:
        if len(scales) != 1 or (extent and scales[0] and scales[0] != extent):
            raise subject.refused(f"has scales of shape {_text(scales)} for axis {axis} of {_text(shape)}")
        return
    wanted = [size if place != axis % len(shape) else -(-size // block) for place, size in enumerate(shape)]
    if 0 not in shape + scales and list(scales) != wanted:
        raise subject.refused(
            f"has scales of shape {_text(scales)} for blocks of {block} along axis {axis} of {_text(shape)}"
        )


def _check_blocks_of_bits(subject: _Subject, values: _Values) -> None:
    """MatMulNBits: widths and blocks that there are, and as many bytes and scales as they say."""
    bits, block = subject.attribute("bits", 4), subject.attribute("block_size", 0)
    rows, columns = subject.attribute("K", 0), subject.attribute("N", 0)
    if bits not in _WIDTHS:
        raise subject.refused(f"has weights of {bits} bits; there are kernels for 2, 4 and 8")
    if block < 16 or block & (block - 1):
        raise subject.refused(f"has blocks of {block} values, where a power of two from 16 on belongs")
    if rows < 1 or columns < 1:
        raise subject.refused(f"has a matrix of {rows} rows and {columns} columns")
    blocks = -(-rows // block)
    for place, size in ((1, columns * blocks * block * bits // 8), (2, columns * blocks)):
        found = values.constant(subject.node.input[place]) if place < len(subject.node.input) else None
        if found is not None and found.size != size:
            what = "bytes of weights" if place == 1 else "scales"
            raise subject.refused(f"has {found.size} {what}, where {size} belong")
    if len(subject.node.input) > 2:
        _check_scale(subject, _Quantity(subject.node.input[1], subject.node.input[2], ""), values)
