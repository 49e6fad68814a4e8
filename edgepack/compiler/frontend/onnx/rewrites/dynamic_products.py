"""Products of what DequantizeLinear makes by scales that are computed at run time, as products of integers.

PyTorch's quantisers write them so (PT2E's and torchao's dynamic activations): scales of a whole tensor, or of
each of its rows. Sums are int32, as those of MatMulInteger, and are multiplied by both scales::

    sum_k (x_rk - zx_r) sx_r (w_kc - zw_c) sw_c
        = sx_r sw_c (sum_k x_rk (w_kc - zw_c) - zx_r sum_k (w_kc - zw_c))
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes
from edgepack.compiler.frontend.onnx.rewrites.quantised import Quantised, one_number

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    _Array = NDArray[Any]

__all__ = ["gemm", "matmul"]

_BYTES = ("int8", "uint8")


def matmul(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """MatMul(Dequantize(x), Dequantize(constant)), with a Transpose between the last two or not."""
    product = _product(editor, str(node.input[0]), str(node.input[1]), swapped=False)
    return None if product is None else [product]


def gemm(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Gemm(Dequantize(x), Dequantize(constant), bias). A summand times 0 is left out, whatever it holds."""
    values = attributes(node)
    if values.get("beta", 1.0) == 0 and len(node.input) > 2 and node.input[2]:
        return [editor.op("Gemm", *node.input[:2], **values)]
    if values.get("transA", 0) or values.get("alpha", 1.0) != 1.0 or values.get("beta", 1.0) != 1.0:
        return None
    swapped = bool(values.get("transB", 0))
    product = _product(editor, str(node.input[0]), str(node.input[1]), swapped=swapped)
    if product is None:
        return None
    bias = str(node.input[2]) if len(node.input) > 2 else ""
    return [editor.op("Add", product, bias) if bias else product]


def _product(editor: Editor, left: str, right: str, *, swapped: bool) -> str | None:
    """The float32 product; None where its operands are not of this form.

    Args:
        swapped: the right operand is transposed.
    """
    import numpy as np

    found, weights = _rows(editor, left), _columns(editor, right, swapped)
    if found is None or weights is None:
        return None
    (x, by_row), (w, scale, zero) = found, weights
    int32, single = np.dtype(np.int32), np.dtype(np.float32)
    zeros = [x.zero if x.zero and not by_row else editor.scalar(0, editor.dtype(x.x))]
    zeros.append(editor.const(zero.reshape(()) if zero.size == 1 else zero))
    sums = editor.op("MatMulInteger", x.x, editor.const(w), *zeros)
    if x.zero and by_row:
        columns = (w.astype(np.int32) - zero.astype(np.int32)).sum(0, dtype=np.int32)
        taken = editor.op("Mul", editor.cast(x.zero, int32), editor.const(columns))
        sums = editor.op("Sub", sums, taken)
    scaled = editor.op("Mul", editor.cast(sums, single), x.scale)
    return editor.op("Mul", scaled, editor.const(scale))


def _rows(editor: Editor, name: str) -> tuple[Quantised, bool] | None:
    """The bytes that a matrix is dequantised from, by a scale that is computed, and whether there is one for
    each row (with 1 in the place of the columns), or one alone. None for another matrix."""
    node = editor.producer(name)
    if node is None or node.op_type != "DequantizeLinear" or node.domain not in ("", "ai.onnx"):
        return None
    found = Quantised.of(node, 0, 1, 2)
    shape, scales = editor.shape(found.x), editor.shape(found.scale)
    if shape is None or len(shape) < 2 or scales is None or editor.dtype(found.x).name not in _BYTES:
        return None
    if editor.constant(found.scale) is not None or editor.dtype(found.scale).name != "float32":
        return None
    if prod(scales) == 1:
        zero = found.zero and one_number(editor, found.zero)
        return Quantised(found.x, one_number(editor, found.scale), zero), False
    values, wanted = attributes(node), (*shape[:-1], 1)
    axis, block = values.get("axis", 1) % len(shape), values.get("block_size", 0)
    if block and scales == wanted:
        return found, True
    if block or prod(scales) != prod(wanted) or axis != len(shape) - 2 or prod(shape[:-2]) != 1:
        return None
    zero = found.zero and editor.reshape(found.zero, wanted)
    return Quantised(found.x, editor.reshape(found.scale, wanted), zero), True


def _columns(editor: Editor, name: str, swapped: bool) -> tuple[_Array, _Array, _Array] | None:
    """A constant matrix of bytes that is dequantised by one scale or one for each column: the bytes, the
    scales, and the zero points. None for another one."""
    import numpy as np

    node = editor.producer(name)
    if node is not None and node.op_type == "Transpose" and attributes(node).get("perm") in (None, [1, 0]):
        return _columns(editor, str(node.input[0]), not swapped)
    if node is None or node.op_type != "DequantizeLinear" or node.domain not in ("", "ai.onnx"):
        return None
    found, values = Quantised.of(node, 0, 1, 2), attributes(node)
    w, scale, zero = (editor.constant(one) if one else None for one in (found.x, found.scale, found.zero))
    if w is None or scale is None or w.ndim != 2 or w.dtype.name not in _BYTES or values.get("block_size", 0):
        return None
    if found.zero and zero is None:
        return None
    if scale.dtype != np.float32 or (scale.size > 1 and values.get("axis", 1) % 2 != (0 if swapped else 1)):
        return None
    zeros = np.zeros(scale.shape, w.dtype) if zero is None else zero
    return (w.T.copy() if swapped else w), scale.reshape(-1), zeros.reshape(-1)
