"""Matrix products of integers, by constant scales as dequantise, compute, quantise (QDQ).

Where a scale is known at run time only (dynamic quantisation), the product is MatMulInteger and its sums are
multiplied by the scales: the form that ONNX Runtime's quantiser writes, in which sums are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.contrib import given
from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes
from edgepack.compiler.frontend.onnx.rewrites.quantised import Quantised, one_number, product_scale

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

__all__ = [
    "dynamic_quantize_matmul",
    "dynamically_quantised",
    "integer_matmul",
    "matmul_integer_to_float",
    "matmul_nbits",
    "qgemm",
    "qlinear_matmul",
]


def qlinear_matmul(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """QLinearMatMul(a, b) = Quantize(MatMul(Dequantize(a), Dequantize(b))), scales by rows of a and y and by
    columns of b."""
    a, b, y = Quantised.of(node, 0, 1, 2), Quantised.of(node, 3, 4, 5), Quantised.result(node, 6, 7)
    shapes = editor.shape(a.x), editor.shape(b.x)
    if shapes[0] is None or shapes[1] is None:
        return None
    rows, columns = len(shapes[0]) - 2, len(shapes[1]) - 1
    product = editor.op("MatMul", a.dequantised(editor, axis=rows), b.dequantised(editor, axis=columns))
    return [y.quantised(editor, product, a.x, axis=max(len(shapes[0]), len(shapes[1])) - 2)]


def qgemm(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """QGemm = alpha A' B' + C, the scale of C being alpha * a_scale * b_scale; float32 without a y_scale."""
    values = attributes(node)
    alpha = float(values.get("alpha", 1.0))
    a, b, y = Quantised.of(node, 0, 1, 2), Quantised.of(node, 3, 4, 5), Quantised.result(node, 7, 8)
    swapped = bool(values.get("transB", 0))
    weights = editor.constant(b.x)
    if swapped and weights is not None:
        b, swapped = Quantised(editor.const(weights.T.copy()), b.scale, b.zero), False
    factors = [a.dequantised(editor), b.dequantised(editor, axis=0 if swapped else 1)]
    inputs, bias = factors, given(node, 6)
    if bias:
        scale = product_scale(editor, a.scale, b.scale, alpha)
        last = len(editor.shape(bias) or ()) - 1
        inputs = [*factors, Quantised(bias, scale, "").dequantised(editor, axis=last)]
    found = {"transA": int(bool(values.get("transA", 0))), "transB": int(swapped), "alpha": alpha}
    result = editor.op("Gemm", *inputs, **found)
    return [y.quantised(editor, result, a.x) if y.scale else result]


def matmul_integer_to_float(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """MatMulIntegerToFloat = Dequantize(A) Dequantize(B) + bias."""
    a, b = Quantised.of(node, 0, 2, 4), Quantised.of(node, 1, 3, 5)
    return [_with_bias(editor, integer_matmul(editor, a, b), given(node, 6))]


def dynamic_quantize_matmul(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """DynamicQuantizeMatMul: A is quantised at run time, as DynamicQuantizeLinear does it."""
    a = dynamically_quantised(editor, node.input[0])
    b = Quantised.of(node, 1, 2, 3)
    return [_with_bias(editor, integer_matmul(editor, a, b), given(node, 4))]


def dynamically_quantised(editor: Editor, x: str) -> Quantised:
    """The uint8 of a tensor of floats, with scale and zero point."""
    return Quantised(*editor.ops("DynamicQuantizeLinear", x, outputs=3))


def integer_matmul(editor: Editor, a: Quantised, b: Quantised) -> str:
    """The float32 product of two integer matrices; scales and zero points of b may be those of columns."""
    import numpy as np

    rank = len(editor.shape(b.x) or (0, 0))
    if all(editor.constant(name) is not None for name in (a.scale, b.scale)):
        return editor.op("MatMul", a.dequantised(editor), b.dequantised(editor, axis=rank - 1))
    zeros = [a.zero or _zero(editor, a.x), b.zero or _zero(editor, b.x)]
    if (editor.shape(zeros[0]) or ()) != ():
        zeros[0] = one_number(editor, zeros[0])
    sums = editor.op("MatMulInteger", a.x, b.x, *zeros)
    scale = product_scale(editor, a.scale, b.scale)
    return editor.op("Mul", editor.cast(sums, np.dtype(np.float32)), scale)


def _zero(editor: Editor, x: str) -> str:
    return editor.scalar(0, editor.dtype(x))


def _with_bias(editor: Editor, x: str, bias: str) -> str:
    return editor.op("Add", x, bias) if bias else x


def matmul_nbits(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """MatMulNBits: A times a constant matrix, whose numbers of 2, 4 or 8 bits are stored in blocks."""
    import numpy as np

    values = attributes(node)
    packed, scales, zeros = (editor.constant(given(node, i)) for i in (1, 2, 3))
    bits = int(values.get("bits", 4))
    block, columns, rows = (int(values.get(name, 0)) for name in ("block_size", "N", "K"))
    unusual = given(node, 4) or values.get("weight_prepacked", 0) or bits not in (2, 4, 8)
    if unusual or packed is None or scales is None or (given(node, 3) and zeros is None) or block < 1:
        return None
    blocks = -(-rows // block)
    numbers = unpacked(packed.reshape(columns, -1), bits).reshape(columns, blocks, block)
    if zeros is None:
        shift: NDArray[Any] = np.full((columns, blocks), 2 ** (bits - 1), np.uint8)
    elif zeros.dtype == np.uint8:
        shift = unpacked(zeros.reshape(columns, -1), bits)[:, :blocks]
    else:
        shift = zeros.reshape(columns, blocks)
    scale = scales.reshape(columns, blocks)
    if blocks == 1 and shift.dtype == np.uint8:
        weights = [numbers[:, 0, :rows].T.copy(), scale[:, 0].copy(), shift[:, 0].copy()]
        matrix = Quantised(*(editor.const(array) for array in weights)).dequantised(editor, axis=1)
    else:
        floats = (numbers.astype(np.float32) - shift.astype(np.float32)[..., None]) * scale[..., None]
        matrix = editor.const(floats.reshape(columns, -1)[:, :rows].T.astype(scale.dtype, copy=True))
    return [_with_bias(editor, editor.op("MatMul", node.input[0], matrix), given(node, 5))]


def unpacked(array: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """The numbers of ``bits`` bits in bytes, the lowest bits first, along the last axis."""
    import numpy as np

    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (array[..., None] >> shifts) & np.uint8(2**bits - 1)
    return parts.reshape(*array.shape[:-1], -1)
