"""Casts and quantisation to and from the element types of ``storage_types.py``, and in blocks.

QuantizeLinear and DequantizeLinear of other types stay, those of ONNX Runtime's own domain as the standard's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes
from edgepack.compiler.frontend.onnx.rewrites.quantised import one_number
from edgepack.compiler.frontend.onnx.storage_types import as_bytes, encoding, storage_name

if TYPE_CHECKING:
    import onnx

__all__ = ["cast", "dequantize", "quantize"]

_BITS = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2}

#: Types with neither a negative zero nor infinities.
_UNSIGNED_ZERO = ("float8e4m3fnuz", "float8e5m2fnuz")


def cast(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Cast and CastLike from or to a storage type: by a table of all numbers, or by where a number lies."""
    values, x = attributes(node), str(node.input[0])
    target = editor.element(node.input[1]) if node.op_type == "CastLike" else int(values["to"])
    source = editor.element(x)
    if not storage_name(source) and not storage_name(target):
        return None
    wide = _number(editor, x) if storage_name(source) else x
    name = storage_name(target)
    if not name:
        return [editor.op("Cast", wide, to=target)]
    if name in _BITS:
        return [_wrapped(editor, wide, name)]
    saturate = bool(values.get("saturate", 1))
    return [_encoded(editor, wide, name, saturate=saturate, rounding=values.get("round_mode", "up"))]


def dequantize(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """(x - zero point) * scale of storage types and of blocks."""
    import onnx

    values, x, scale = attributes(node), str(node.input[0]), str(node.input[1])
    zero = node.input[2] if len(node.input) > 2 else ""
    name = storage_name(editor.element(x))
    if not values.get("block_size", 0) and (not name or (name in _BITS and editor.constant(x) is not None)):
        return _plain(editor, node, values)
    scale_type = editor.element(scale)
    target = values.get("output_dtype", 0) or scale_type
    number = _number(editor, x)
    if zero:
        number = editor.op("Sub", number, _along(editor, _number(editor, zero), zero, x, values))
    factor = editor.op("Cast", scale, to=onnx.TensorProto.FLOAT)
    result = editor.op("Mul", number, _along(editor, factor, scale, x, values))
    return [result if target == onnx.TensorProto.FLOAT else editor.op("Cast", result, to=target)]


def quantize(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """x / scale + zero point, rounded and saturated, to storage types and in blocks."""
    import numpy as np
    import onnx

    values, x, scale = attributes(node), str(node.input[0]), str(node.input[1])
    zero = node.input[2] if len(node.input) > 2 else ""
    target = editor.element(zero) if zero else values.get("output_dtype", 0) or onnx.TensorProto.UINT8
    name, single = storage_name(target), np.dtype(np.float32)
    if not name and not values.get("block_size", 0):
        return _plain(editor, node, values)
    divisor = _along(editor, editor.op("Cast", scale, to=onnx.TensorProto.FLOAT), scale, x, values)
    number = editor.op("Div", editor.op("Cast", x, to=onnx.TensorProto.FLOAT), divisor)
    if name.startswith("float"):
        saturate = bool(values.get("saturate", 1))
        return [_encoded(editor, number, name, saturate=saturate, rounding="nearest")]
    number = editor.op("Round", number)
    if zero:
        number = editor.op("Add", number, _along(editor, _number(editor, zero), zero, x, values))
    low, high = _limits(name, target)
    held = editor.op("Clip", number, editor.scalar(low, single), editor.scalar(high, single))
    byte = onnx.TensorProto.INT8 if name.startswith("int") else onnx.TensorProto.UINT8
    return [editor.op("Cast", held, to=byte if name else target)]


def _plain(editor: Editor, node: onnx.NodeProto, values: dict[str, Any]) -> Sequence[str] | None:
    """The node of the standard's domain, with integers of at least 8 bits, and a scale and a zero point of
    rank 0 where these are one number; None if it is so already."""
    given = [str(name) for name in node.input if name]
    inputs = [_bytes(editor, name) for name in given]
    if (editor.shape(given[1]) or ()) == (1,):
        inputs[1:] = [one_number(editor, name) for name in inputs[1:]]
    if inputs == given and not node.domain:
        return None
    return [editor.op(node.op_type, *inputs, **values)]


def _bytes(editor: Editor, name: str) -> str:
    """A constant of integers of fewer than 8 bits as one of bytes."""
    value = editor.constant(name)
    if value is None or storage_name(editor.element(name)) not in _BITS:
        return name
    return editor.const(as_bytes(value))


def _limits(name: str, element: int) -> tuple[int, int]:
    import numpy as np
    import onnx

    if name:
        bits = _BITS[name]
        return (0, 2**bits - 1) if name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    limits = np.iinfo(onnx.helper.tensor_dtype_to_np_dtype(element))
    return int(limits.min), int(limits.max)


def _number(editor: Editor, x: str) -> str:
    """The float32 that a value of a storage type (or any other integer) is."""
    import numpy as np
    import onnx

    name = storage_name(editor.element(x))
    if not name or name in _BITS:
        return editor.op("Cast", x, to=onnx.TensorProto.FLOAT)
    table = editor.const(encoding(name, "nearest")[1])
    return editor.op("Gather", table, editor.cast(x, np.dtype(np.int32)), axis=0)


def _along(editor: Editor, value: str, source: str, x: str, values: dict[str, Any]) -> str:
    """A scale or zero point in the shape of x: one for all, one for each place of an axis, or its blocks."""
    import numpy as np

    shape, own = editor.shape(x) or (), editor.shape(source) or ()
    if not own or own == (1,):
        return editor.reshape(value, []) if own else value
    axis = values.get("axis", 1) % len(shape)
    if not values.get("block_size", 0):
        return editor.reshape(value, [-1 if i == axis else 1 for i in range(len(shape))])
    places = np.arange(shape[axis]) // values["block_size"]
    return editor.op("Gather", value, editor.const(places), axis=axis)


def _wrapped(editor: Editor, x: str, name: str) -> str:
    """The lowest bits of a number, as what they are in two's complement."""
    import numpy as np

    int32, bits = np.dtype(np.int32), _BITS[name]
    whole = editor.cast(x, int32)
    size, half = 2**bits, 0 if name.startswith("u") else 2 ** (bits - 1)
    shifted = editor.op("Add", whole, editor.scalar(half, int32))
    rest = editor.op("Mod", shifted, editor.scalar(size, int32))
    rest = editor.op("Sub", rest, editor.scalar(half, int32))
    return editor.cast(rest, np.dtype(np.uint8 if name.startswith("u") else np.int8))


def _encoded(editor: Editor, x: str, name: str, *, saturate: bool, rounding: str) -> str:
    """Bits of the stored float of a number: its code is how many of the codes' least numbers it reaches."""
    import numpy as np

    single, int32 = np.dtype(np.float32), np.dtype(np.int32)
    scale = name == "float8e8m0"  # powers of two, without a sign
    least, _, nan = encoding(name, rounding if scale else "nearest")
    x = editor.cast(x, single)
    size = editor.op("Abs", x)
    last = editor.const(np.asarray([-1], np.int64))
    column = (
        editor.op("Unsqueeze", size, last) if editor.opset >= 13 else editor.op("Unsqueeze", size, axes=[-1])
    )
    reached = editor.cast(editor.op("GreaterOrEqual", column, editor.const(least)), single)
    if editor.opset >= 13:
        code = editor.op("ReduceSum", reached, last, keepdims=0)
    else:
        code = editor.op("ReduceSum", reached, axes=[-1], keepdims=0)
    code = editor.cast(code, int32)
    largest, beyond = len(least) - 1, _beyond(name, len(least), nan, saturate=saturate)
    high = editor.op("Greater", code, editor.scalar(largest, int32))
    code = editor.op("Where", high, editor.scalar(beyond, int32), code)
    if not scale:
        code = _signed(editor, x, code, name)
    code = editor.op("Where", editor.op("IsNaN", x), editor.scalar(nan, int32), code)
    return editor.cast(code, np.dtype(np.uint8))


def _signed(editor: Editor, x: str, code: str, name: str) -> str:
    """The code with the sign of x, which may be a negative zero."""
    import numpy as np

    single, int32 = np.dtype(np.float32), np.dtype(np.int32)
    bit, zero = 8 if name == "float4e2m1" else 128, editor.scalar(0, single)
    negative = editor.op("Less", x, zero)
    if name in _UNSIGNED_ZERO:  # 128 is NaN
        negative = editor.op("And", negative, editor.op("Greater", code, editor.scalar(0, int32)))
        negative = editor.op("And", negative, editor.op("Less", code, editor.scalar(128, int32)))
    else:
        negative = editor.op("Or", negative, editor.op("Less", editor.op("Reciprocal", x), zero))
    sign = editor.op("Where", negative, editor.scalar(bit, int32), editor.scalar(0, int32))
    return editor.op("Add", code, sign)


def _beyond(name: str, count: int, nan: int, *, saturate: bool) -> int:
    """The code of what is larger than the largest number."""
    if saturate or name == "float4e2m1":
        return count - 1
    return count if name == "float8e5m2" else nan & (255 if name in _UNSIGNED_ZERO else 127)
