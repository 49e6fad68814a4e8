"""Operators in terms of simpler ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes
from edgepack.compiler.frontend.onnx.support import node_name
from edgepack.errors import ModelError

if TYPE_CHECKING:
    import onnx

__all__ = [
    "conv_transpose",
    "equal_bool",
    "fast_gelu",
    "gelu",
    "local_response_normalization",
    "lp_normalization",
    "one_hot",
    "quick_gelu",
]


#: Channels that one of LRN is normalised by: a slice each.
_MOST_NEIGHBOURS = 1024


def equal_bool(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Equal of bools = Not(Xor): LLVM has no floating point comparison of one-bit integers."""
    if editor.dtype(node.input[0]).kind != "b":
        return None
    return [editor.op("Not", editor.op("Xor", *node.input))]


def conv_transpose(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Writes the padding that ``output_shape`` implies, which the importer ignores."""
    import onnx

    values = attributes(node)
    shapes = editor.shape(node.input[0]), editor.shape(node.input[1])
    if shapes[0] is None or shapes[1] is None or "output_shape" not in values:
        return None
    spatial = shapes[0][2:]
    rank = len(spatial)
    kernel = values.get("kernel_shape", shapes[1][2:])
    strides, dilations = values.get("strides", [1] * rank), values.get("dilations", [1] * rank)
    extra = list(values.get("output_padding", [0] * rank))
    pads = list(values.get("pads", [0] * 2 * rank))
    wanted = values["output_shape"][-rank:]
    for i in range(rank):
        full = strides[i] * (spatial[i] - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1
        extra[i] += max(0, wanted[i] - full)
        total = max(0, full - wanted[i])
        small, large = total // 2, total - total // 2
        upper = values.get("auto_pad") == "SAME_UPPER"  # the formula of the ONNX specification
        pads[i], pads[i + rank] = (small, large) if upper else (large, small)
    kept = {
        item.name: onnx.helper.get_attribute_value(item)
        for item in node.attribute
        if item.name not in ("output_shape", "auto_pad", "pads", "output_padding")
    }
    kept.update(pads=pads, output_padding=extra)
    return [editor.op("ConvTranspose", *node.input, **kept)]


def lp_normalization(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """x / norm(x) over an axis; 0 where the norm is 0."""
    import numpy as np

    values = attributes(node)
    x = node.input[0]
    norm = editor.reduce(f"ReduceL{values.get('p', 2)}", x, values.get("axis", -1))
    zero, infinite = (editor.scalar(number, editor.dtype(x)) for number in (0, np.inf))
    none = editor.op("Equal", norm, zero)  # also of numbers whose squares are
    return [editor.op("Div", x, editor.op("Where", none, infinite, norm))]


def local_response_normalization(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """x / (bias + alpha / size * sum of squares of neighbouring channels)**beta.

    The sum is one of slices of the squares between zeros, which vectors along the channels read as they lie.
    """
    import numpy as np

    values, x = attributes(node), str(node.input[0])
    shape, dtype = editor.shape(x), editor.dtype(x)
    if shape is None:
        return None
    size, channels = int(values["size"]), shape[1]
    before = min((size - 1) // 2, channels)  # beyond the channels there are zeros
    after = min(size - 1 - (size - 1) // 2, channels)
    width = before + 1 + after
    if width > _MOST_NEIGHBOURS:
        raise ModelError(
            f"The LRN node {node_name(node, 0)} adds up {width} neighbouring channels; "
            f"{_MOST_NEIGHBOURS} is the most.",
            hint="Check its attribute size.",
        )
    zeros = [editor.const(np.zeros([shape[0], n, *shape[2:]], dtype)) for n in (before, after) if n]
    squares = editor.op("Mul", x, x)
    if width > 1:
        parts = [zeros[0], squares, *zeros[1:]] if before else [squares, *zeros]
        padded = editor.op("Concat", *parts, axis=1)
        starts = [
            [editor.const(np.asarray([i], np.int64)) for i in (n, n + channels, 1)] for n in range(width)
        ]
        slices = [editor.op("Slice", padded, *start) for start in starts]
        squares = slices[0]
        for part in slices[1:]:
            squares = editor.op("Add", squares, part)
    scaled = editor.op("Mul", squares, editor.scalar(values.get("alpha", 1e-4) / size, dtype))
    base = editor.op("Add", scaled, editor.scalar(values.get("bias", 1.0), dtype))
    return [editor.op("Div", x, editor.op("Pow", base, editor.scalar(values.get("beta", 0.75), dtype)))]


def one_hot(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """OneHot as Where(index == 0..depth-1, on, off); the importer turns the values into float64."""
    import numpy as np

    indices, depth, pair = node.input
    count, values, shape = editor.constant(depth), editor.constant(pair), editor.shape(indices)
    if count is None or shape is None:
        return None
    size, int64 = int(count.reshape(-1)[0]), np.dtype(np.int64)
    axis = attributes(node).get("axis", -1) % (len(shape) + 1)
    wide = editor.reshape(editor.cast(indices, int64), [*shape[:axis], 1, *shape[axis:]])
    negative = editor.op("Less", wide, editor.scalar(0, int64))
    wide = editor.op("Where", negative, editor.op("Add", wide, editor.scalar(size, int64)), wide)
    steps = np.arange(size, dtype=np.int64).reshape([size, *[1] * (len(shape) - axis)])
    hit = editor.op("Equal", wide, editor.const(steps))
    if values is None:
        off, on = (editor.op("Gather", pair, editor.scalar(i, int64), axis=0) for i in (0, 1))
    else:
        off, on = (editor.const(value) for value in values)
    return [editor.op("Where", hit, on, off)]


def gelu(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """com.microsoft Gelu and BiasGelu: x / 2 * (1 + erf(x / sqrt 2)), after the bias if there is one."""
    x, dtype = _biased(editor, node), editor.dtype(node.input[0])
    erf = editor.op("Erf", editor.op("Mul", x, editor.scalar(0.5**0.5, dtype)))
    half = editor.op("Mul", x, editor.scalar(0.5, dtype))
    return [editor.op("Mul", half, editor.op("Add", erf, editor.scalar(1.0, dtype)))]


def fast_gelu(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """com.microsoft FastGelu: x / 2 * (1 + tanh(0.79788456 x + 0.035677408 x^3)) after the optional bias."""
    x, dtype = _biased(editor, node), editor.dtype(node.input[0])
    cube = editor.op("Mul", editor.op("Mul", x, x), editor.scalar(0.035677408136300125, dtype))
    inner = editor.op("Mul", x, editor.op("Add", cube, editor.scalar(0.7978845608028654, dtype)))
    half = editor.op("Mul", x, editor.scalar(0.5, dtype))
    return [editor.op("Mul", half, editor.op("Add", editor.op("Tanh", inner), editor.scalar(1.0, dtype)))]


def quick_gelu(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """com.microsoft QuickGelu: x * sigmoid(alpha x)."""
    x, alpha = node.input[0], attributes(node).get("alpha", 1.702)
    gate = editor.op("Sigmoid", editor.op("Mul", x, editor.scalar(alpha, editor.dtype(x))))
    return [editor.op("Mul", x, gate)]


def _biased(editor: Editor, node: onnx.NodeProto) -> str:
    if len(node.input) > 1 and node.input[1]:
        return editor.op("Add", node.input[0], node.input[1])
    return str(node.input[0])
