"""ONNX Runtime's integer operators (com.microsoft) that are no products, as dequantise, compute, quantise.

Its kernels round at other places than this form: a result may be one step off where the exact one lies in the
middle of two. Those of sums and products add the zero point before they round, Softmax works with integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes
from edgepack.compiler.frontend.onnx.rewrites.quantised import Quantised, channels_first, channels_last

if TYPE_CHECKING:
    import onnx

    from edgepack.compiler.frontend.onnx.rewrites.editor import Rewrite

__all__ = [
    "qlinear_add",
    "qlinear_average_pool",
    "qlinear_concat",
    "qlinear_global_average_pool",
    "qlinear_leaky_relu",
    "qlinear_mul",
    "qlinear_reduce_mean",
    "qlinear_sigmoid",
    "qlinear_softmax",
    "qlinear_where",
]


def _binary(op_type: str) -> Rewrite:
    def rewrite(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
        a, b, y = Quantised.of(node, 0, 1, 2), Quantised.of(node, 3, 4, 5), Quantised.result(node, 6, 7)
        result = editor.op(op_type, a.dequantised(editor), b.dequantised(editor))
        return [y.quantised(editor, result, a.x)]

    return rewrite


def _unary(compute: Callable[[Editor, str, dict[str, Any]], str]) -> Rewrite:
    def rewrite(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
        x, y = Quantised.of(node, 0, 1, 2), Quantised.result(node, 3, 4)
        result = compute(editor, x.dequantised(editor), attributes(node))
        return [y.quantised(editor, result, x.x)]

    return rewrite


qlinear_add = _binary("Add")
qlinear_mul = _binary("Mul")
qlinear_sigmoid = _unary(lambda editor, x, values: editor.op("Sigmoid", x))
qlinear_leaky_relu = _unary(
    lambda editor, x, values: editor.op("LeakyRelu", x, alpha=values.get("alpha", 0.01))
)


def qlinear_reduce_mean(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """QLinearReduceMean: the mean over the axes, or over all."""
    import numpy as np

    x, y, values = Quantised.of(node, 0, 1, 2), Quantised.result(node, 3, 4), attributes(node)
    axes, kept = values.get("axes", []), values.get("keepdims", 1)
    whole = x.dequantised(editor)
    if editor.opset >= 18 and axes:
        mean = editor.op("ReduceMean", whole, editor.const(np.asarray(axes, np.int64)), keepdims=kept)
    else:
        mean = editor.op("ReduceMean", whole, keepdims=kept, **({"axes": axes} if axes else {}))
    return [y.quantised(editor, mean, x.x)]


def qlinear_softmax(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """QLinearSoftmax: before opset 13, which its attribute says, over all axes from one on.

    ONNX Runtime quantises by 1 / floor(1 / y_scale), which is y_scale where that is 1/256, as it should be.
    """
    import numpy as np

    x, y, values = Quantised.of(node, 0, 1, 2), Quantised.result(node, 3, 4), attributes(node)
    shape, axis = editor.shape(x.x), values.get("axis", -1)
    scale = editor.constant(y.scale)
    if shape is None or scale is None:
        return None
    if scale.size == 1 and float(scale.reshape(())) <= 1:
        steps = np.floor(np.float32(1) / scale.astype(np.float32))
        y = Quantised("", editor.const((1 / steps).astype(np.float32)), y.zero)
    whole = x.dequantised(editor)
    if values.get("opset", editor.opset) >= 13:
        result = editor.op("Softmax", whole, axis=axis)
    else:
        rows = int(np.prod(shape[: axis % len(shape)], dtype=np.int64))
        flat = editor.op("Softmax", editor.reshape(whole, [rows, -1]), axis=1)
        result = editor.reshape(flat, shape)
    return [y.quantised(editor, result, x.x)]


def qlinear_concat(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """QLinearConcat: parts with scales and zero points of their own."""
    parts = [Quantised.of(node, i, i + 1, i + 2) for i in range(2, len(node.input), 3)]
    joined = editor.op("Concat", *(part.dequantised(editor) for part in parts), axis=attributes(node)["axis"])
    return [Quantised.result(node, 0, 1).quantised(editor, joined, parts[0].x)]


def qlinear_average_pool(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """QLinearAveragePool, also of images with channels last.

    Where padding counts, ONNX Runtime divides by the whole window, also by what of it ``ceil_mode`` puts
    behind the padding: that is padding too, here.
    """
    values = attributes(node)
    last = bool(values.pop("channels_last", 0))
    if values.get("ceil_mode", 0) and values.get("count_include_pad", 0):
        shape = editor.shape(node.input[0])
        if shape is None or values.get("auto_pad", "NOTSET") != "NOTSET":
            return None
        values |= {"ceil_mode": 0, "pads": _whole_windows(values, shape[1:-1] if last else shape[2:])}
    return _pool(editor, node, "AveragePool", last, values)


def _whole_windows(values: dict[str, Any], sizes: Sequence[int]) -> list[int]:
    """The pads with which all windows lie inside the padded image."""
    rank = len(sizes)
    pads, strides = values.get("pads", [0] * 2 * rank), values.get("strides", [1] * rank)
    ends = []
    for axis, (size, step) in enumerate(zip(sizes, strides, strict=True)):
        begin, end, window = pads[axis], pads[rank + axis], values["kernel_shape"][axis]
        last = -(-(begin + size + end - window) // step)
        last -= last * step >= begin + size  # a window of nothing but what lies behind the image
        ends.append(max(end, last * step + window - size - begin))
    return [*pads[:rank], *ends]


def qlinear_global_average_pool(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """QLinearGlobalAveragePool, also of images with channels last."""
    return _pool(editor, node, "GlobalAveragePool", bool(attributes(node).get("channels_last", 0)), {})


def _pool(
    editor: Editor, node: onnx.NodeProto, op_type: str, last: bool, values: dict[str, Any]
) -> list[str] | None:
    x, y = Quantised.of(node, 0, 1, 2), Quantised.result(node, 3, 4)
    shape = editor.shape(x.x)
    if shape is None:
        return None
    image = x.dequantised(editor, x=channels_first(editor, x.x, len(shape)) if last else "")
    result = y.quantised(editor, editor.op(op_type, image, **values), x.x)
    return [channels_last(editor, result, len(shape)) if last else result]


def qlinear_where(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """QLinearWhere: each element of one tensor or of the other."""
    x, y, z = Quantised.of(node, 1, 2, 3), Quantised.of(node, 4, 5, 6), Quantised.result(node, 7, 8)
    chosen = editor.op("Where", node.input[0], x.dequantised(editor), y.dequantised(editor))
    return [z.quantised(editor, chosen, x.x)]
