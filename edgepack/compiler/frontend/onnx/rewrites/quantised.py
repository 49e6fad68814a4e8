"""Integer operators as dequantise, compute, quantise (QDQ): the one form that later stages look for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor

if TYPE_CHECKING:
    import onnx

__all__ = ["conv_integer", "qlinear_conv", "qlinear_matmul"]


def qlinear_conv(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """QLinearConv(x, w, b) = Quantize(Conv(Dequantize(x), Dequantize(w), b * x_scale * w_scale))."""
    import numpy as np

    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = node.input[:8]
    inputs = [_dequantise(editor, x, x_scale, x_zero), _dequantise(editor, w, w_scale, w_zero, axis=0)]
    if len(node.input) > 8 and node.input[8]:
        bias = editor.constant(node.input[8])
        scales = editor.constant(x_scale), editor.constant(w_scale)
        if bias is None or scales[0] is None or scales[1] is None:
            return None
        inputs.append(editor.const((bias * scales[0].astype(np.float64) * scales[1]).astype(np.float32)))
    y = editor.op("Conv", *inputs, **_attributes(node))
    return [editor.op("QuantizeLinear", y, y_scale, y_zero)]


def qlinear_matmul(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """QLinearMatMul(a, b) = Quantize(MatMul(Dequantize(a), Dequantize(b)))."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.input
    rank = len(editor.shape(b) or ())
    left = _dequantise(editor, a, a_scale, a_zero, axis=-2)
    right = _dequantise(editor, b, b_scale, b_zero, axis=rank - 1)
    return [editor.op("QuantizeLinear", editor.op("MatMul", left, right), y_scale, y_zero)]


def conv_integer(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """ConvInteger(x, w) = int32 Conv of x - x_zero_point and w - w_zero_point, then padded with 0."""
    import numpy as np

    int32 = np.dtype(np.int32)
    zeros = [*node.input[2:], "", ""][:2]
    terms = []
    for index, (name, zero) in enumerate(zip(node.input[:2], zeros, strict=True)):
        value = editor.constant(name)
        zero_value = editor.constant(zero)
        if zero and zero_value is None:
            wide = editor.cast(zero, int32)
            if index == 1 and (editor.shape(zero) or (1,))[0] > 1:
                wide = editor.reshape(wide, [-1, *[1] * (len(editor.shape(name) or ()) - 1)])
            terms.append(editor.op("Sub", editor.cast(name, int32), wide))
            continue
        shift = np.zeros((), np.int32) if zero_value is None else zero_value.astype(np.int32)
        if index == 1 and shift.ndim == 1 and shift.size > 1:
            shift = shift.reshape(-1, *[1] * (len(editor.shape(name) or ()) - 1))
        if value is not None:
            terms.append(editor.const(value.astype(np.int32) - shift))
        else:
            terms.append(editor.op("Sub", editor.cast(name, int32), editor.const(shift)))
    return [editor.op("Conv", *terms, **_attributes(node))]


def _dequantise(editor: Editor, x: str, scale: str, zero: str, *, axis: int | None = None) -> str:
    scales = editor.shape(scale)
    if axis is not None and scales and scales[0] > 1:
        return editor.op("DequantizeLinear", x, scale, zero, axis=axis)
    return editor.op("DequantizeLinear", x, scale, zero)


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    import onnx

    return {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
