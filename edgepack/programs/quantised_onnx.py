"""Operators of quantised programs as QuantizeLinear, DequantizeLinear and MatMulInteger.

PyTorch's exporter translates a part of PT2E's operators (without what bounds their integers) and none of
torchao's. These functions get and return what torchlib's do: values of the ONNX graph, and Python's numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["OPSET", "odd_form", "translations"]

#: Of ONNX: has scales of blocks, and integers of 16 bits.
OPSET = 21

#: What QuantizeLinear makes, by PyTorch's name, and the least and largest of it.
_RANGES = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}


def translations() -> dict[Any, Callable[..., Any]]:
    """What becomes of each operator, for ``torch.onnx.export(custom_translation_table=...)``."""
    import torch

    found: dict[Any, Callable[..., Any]] = {torch.ops.aten._int_mm.default: _integer_product}
    for library, name, function in (
        ("quantized_decomposed", "quantize_per_tensor", _quantize_tensor),
        ("quantized_decomposed", "dequantize_per_tensor", _dequantize_tensor),
        ("quantized_decomposed", "quantize_per_channel", _quantize_channels),
        ("quantized_decomposed", "dequantize_per_channel", _dequantize_channels),
        ("quantized_decomposed", "quantize_per_token", _quantize_tokens),
        ("quantized_decomposed", "dequantize_per_token", _dequantize_tokens),
        ("quantized_decomposed", "dequantize_per_channel_group", _dequantize_groups),
        ("torchao", "quantize_affine", _quantize_affine),
        ("torchao", "dequantize_affine", _dequantize_affine),
    ):
        packet = getattr(getattr(torch.ops, library), name, None)
        if packet is not None:
            found |= {getattr(packet, overload): function for overload in packet.overloads()}
    return found


def odd_form(node: torch.fx.Node) -> str:
    """What in a call of one of these operators ONNX has no form of, as the end of a sentence; "" for nothing.

    Args:
        node: one of :func:`translations`, of a program after :func:`edgepack.programs.quantised.written_out`.
    """
    named = [one.name for one in node.target._schema.arguments]
    given = {**dict(zip(named, node.args, strict=False)), **node.kwargs}
    made = str(given.get("output_dtype", given.get("dtype"))).removeprefix("torch.")
    if "dequantize" not in node.target._opname and made not in _RANGES:
        return f"of {made}"
    if "block_size" in given:
        blocks, value = given["block_size"], given["input"].meta["val"]
        if _granularity(value.shape, blocks, given["scale"].meta["val"].ndim) is None:
            return f"of blocks {list(blocks)}"
    return ""


def _granularity(shape: Sequence[Any], blocks: Sequence[Any], rank: int) -> tuple[int, int, list[int]] | None:
    """Which elements have a scale of their own, as QuantizeLinear says it.

    Args:
        shape: of the tensor; what is no integer is an open size.
        blocks: elements along each axis with one scale; what is no integer is a whole open size.
        rank: of the scales.

    Returns:
        an axis (-1: one scale is for all), the elements in a block along it (0: one), and the axes that the
        scales lack; None where QuantizeLinear has no way to say it.
    """
    sizes = [size if isinstance(size, int) else None for size in shape]
    wide = [block if isinstance(block, int) else None for block in blocks]
    whole = [axis for axis, block in enumerate(wide) if block is None or block == sizes[axis]]
    cut = [axis for axis in range(len(sizes)) if axis not in whole]
    if not cut:
        return -1, 0, []
    if len(cut) == 1 and wide[cut[0]] == 1:
        return cut[0], 0, []
    along = [axis for axis in range(len(sizes)) if wide[axis] != 1] or whole[-1:] or [len(sizes) - 1]
    lacking = [axis for axis in whole if wide[axis] != 1] if rank < len(sizes) else []
    if len(along) != 1 or wide[along[0]] is None or rank + len(lacking) != len(sizes):
        return None
    return along[0], int(blocks[along[0]]), lacking


# Q and DQ: scales are float32, and zero points of the integers' type.


def _quantised(x: Any, scale: Any, zero: Any, bounds: Sequence[Any], dtype: int, **place: int) -> Any:
    """QuantizeLinear, with a Clip where integers are bound closer than their type does.

    Args:
        scale, zero: numbers, or values of the shape that QuantizeLinear takes.
        bounds: the least and the largest integer; None: those of the type.
        dtype: of the integers, ONNX's number.
        place: ``axis`` and ``block_size``.
    """
    from onnxscript.ir import DataType
    from onnxscript.onnx_opset import opset21 as op

    least, most = _RANGES[DataType(dtype).name.lower()]
    low, high = (int(limit if one is None else one) for one, limit in zip(bounds, (least, most), strict=True))
    numbers = isinstance(scale, float) and isinstance(zero, int)
    if numbers and (low, high) != (least, most):  # of the floats: a bound of the product before it
        x = op.Clip(x, _float((low - zero) * scale), _float((high - zero) * scale))
    made = op.QuantizeLinear(_floats(x), _scale(scale), _zero(zero, dtype), **place)
    if not numbers and (low, high) != (least, most):
        made = op.Clip(made, _zero(low, dtype), _zero(high, dtype))
    return made


def _dequantised(x: Any, scale: Any, zero: Any, out: int | None, **place: int) -> Any:
    """DequantizeLinear, of ONNX's type ``out`` (None or -1: float32)."""
    from onnxscript.ir import DataType
    from onnxscript.onnx_opset import opset21 as op

    zeros = () if zero is None else (_zero(zero, x.dtype),)
    made = op.DequantizeLinear(x, _scale(scale), *zeros, **place)
    return made if out in (None, -1, DataType.FLOAT) else op.Cast(made, to=out)


def _float(number: float) -> Any:
    from onnxscript.onnx_opset import opset21 as op

    return op.Constant(value_float=float(number))


def _floats(x: Any) -> Any:
    from onnxscript.ir import DataType
    from onnxscript.onnx_opset import opset21 as op

    return x if x.dtype == DataType.FLOAT else op.Cast(x, to=DataType.FLOAT)


def _scale(scale: Any) -> Any:
    return _float(scale) if isinstance(scale, int | float) else _floats(scale)


def _zero(zero: Any, dtype: int) -> Any:
    from onnxscript.onnx_opset import opset21 as op

    if isinstance(zero, int | float):
        return op.Cast(op.Constant(value_int=int(zero)), to=dtype)
    return zero if zero.dtype == dtype else op.Cast(zero, to=dtype)


def _reshaped(x: Any, shape: Sequence[int]) -> Any:
    """A value in another shape; a number, and None, as they are."""
    from onnxscript.onnx_opset import opset21 as op

    if x is None or isinstance(x, int | float):
        return x
    return op.Reshape(x, op.Constant(value_ints=list(shape))) if shape else op.Squeeze(x)


# quantized_decomposed ------------------------------------------------------------------------------------


def _quantize_tensor(x: Any, scale: Any, zero: Any, least: Any, most: Any, dtype: int) -> Any:
    return _quantised(x, _reshaped(scale, ()), _reshaped(zero, ()), (least, most), dtype)


def _dequantize_tensor(
    x: Any, scale: Any, zero: Any, least: Any, most: Any, dtype: int, out_dtype: int | None = None
) -> Any:
    del least, most, dtype
    return _dequantised(x, _reshaped(scale, ()), _reshaped(zero, ()), out_dtype)


def _quantize_channels(x: Any, scales: Any, zeros: Any, axis: int, least: Any, most: Any, dtype: int) -> Any:
    return _quantised(x, scales, zeros, (least, most), dtype, axis=axis)


def _dequantize_channels(
    x: Any,
    scales: Any,
    zeros: Any,
    axis: int,
    least: Any,
    most: Any,
    dtype: int,
    out_dtype: int | None = None,
) -> Any:
    del least, most, dtype
    return _dequantised(x, scales, zeros, out_dtype, axis=axis)


def _quantize_tokens(x: Any, scales: Any, zeros: Any, least: Any, most: Any, dtype: int) -> Any:
    return _quantize_affine(x, _row(x), scales, zeros, dtype, least, most)


def _dequantize_tokens(
    x: Any, scales: Any, zeros: Any, least: Any, most: Any, dtype: int, output_dtype: int | None = None
) -> Any:
    return _dequantize_affine(x, _row(x), scales, zeros, dtype, least, most, output_dtype)


def _row(x: Any) -> list[Any]:
    return [*[1] * (len(x.shape) - 1), x.shape[-1]]


def _dequantize_groups(
    x: Any,
    scales: Any,
    zeros: Any,
    least: Any,
    most: Any,
    dtype: int,
    group_size: int = 128,
    output_dtype: int | None = None,
) -> Any:
    rows, columns = x.shape
    group = columns if columns < group_size else group_size
    shape = [rows, columns // group]
    scales, zeros = _reshaped(scales, shape), _reshaped(zeros, shape)
    return _dequantize_affine(x, [1, group], scales, zeros, dtype, least, most, output_dtype)


# torchao ---------------------------------------------------------------------------------------------------


def _quantize_affine(
    x: Any, block_size: Sequence[Any], scale: Any, zero: Any, dtype: int, least: Any = None, most: Any = None
) -> Any:
    place, (scale, zero) = _placed(x, block_size, scale, zero)
    return _quantised(x, scale, 0 if zero is None else zero, (least, most), dtype, **place)


def _dequantize_affine(
    x: Any,
    block_size: Sequence[Any],
    scale: Any,
    zero: Any,
    dtype: int,
    least: Any = None,
    most: Any = None,
    output_dtype: int | None = None,
) -> Any:
    del dtype, least, most
    place, (scale, zero) = _placed(x, block_size, scale, zero)
    return _dequantised(x, scale, zero, output_dtype, **place)


def _placed(x: Any, blocks: Sequence[Any], *values: Any) -> tuple[dict[str, int], list[Any]]:
    """Attributes of QuantizeLinear, and scale and zero point in the shapes that it takes."""
    from onnxscript.onnx_opset import opset21 as op

    found = _granularity(x.shape, blocks, len(values[0].shape))
    if found is None:
        raise NotImplementedError(f"blocks {list(blocks)} of a tensor {x.shape}")
    axis, block, lacking = found
    if not block:
        return ({} if axis < 0 else {"axis": axis}), [
            _reshaped(one, () if axis < 0 else [-1]) for one in values
        ]
    if lacking:
        axes = op.Constant(value_ints=lacking)
        values = tuple(one if one is None else op.Unsqueeze(one, axes) for one in values)
    return {"axis": axis, "block_size": block}, list(values)


def _integer_product(a: Any, b: Any) -> Any:
    """``aten::_int_mm``: int32 sums of int8 or uint8 times int8."""
    from onnxscript.onnx_opset import opset21 as op

    return op.MatMulInteger(a, b, _zero(0, a.dtype), _zero(0, b.dtype))
