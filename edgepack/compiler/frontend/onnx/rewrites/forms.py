"""Forms and types of common operators that the importer lacks: mixed types, second outputs, and the like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes

if TYPE_CHECKING:
    import numpy as np
    import onnx

__all__ = [
    "batch_normalization",
    "eye_like",
    "for_each_element",
    "is_inf",
    "pad_with_value",
    "power",
    "reduce_bool",
    "scalar_axes",
    "split_of_nothing",
]

#: Bits of an exponent of an integer power: an integer of 64 bits holds no higher power of 2.
EXPONENT_BITS = 6


def power(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Pow of two types, in the first one's; of integers by squaring, which is exact."""
    import numpy as np

    x, y = node.input
    base, exponent = editor.dtype(x), editor.dtype(y)
    if base.kind in "iu" and exponent.kind in "iu":
        return [_integer_power(editor, x, editor.cast(y, np.dtype(np.int64)), base)]
    if base == exponent:
        return None
    if base.kind in "iu":
        double = np.dtype(np.float64)
        return [editor.cast(editor.op("Pow", editor.cast(x, double), editor.cast(y, double)), base)]
    return [editor.op("Pow", x, editor.cast(y, base))]


def _integer_power(editor: Editor, x: str, y: str, dtype: np.dtype[Any]) -> str:
    import numpy as np

    int64 = np.dtype(np.int64)
    square, result = editor.cast(x, int64), editor.scalar(1, int64)
    for bit in range(EXPONENT_BITS):
        half = editor.op("Div", y, editor.scalar(2, int64))
        odd = editor.op("Equal", editor.op("Sub", y, editor.op("Add", half, half)), editor.scalar(1, int64))
        result = editor.op("Where", odd, editor.op("Mul", result, square), result)
        if bit + 1 < EXPONENT_BITS:
            square, y = editor.op("Mul", square, square), half
    return editor.cast(result, dtype)


def is_inf(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """IsInf of one sign: the importer looks for both."""
    import numpy as np

    values, x = attributes(node), node.input[0]
    wanted = [sign for sign, name in ((1, "detect_positive"), (-1, "detect_negative")) if values.get(name, 1)]
    if len(wanted) == 2 and editor.dtype(x) == np.float32:
        return None
    hits = [editor.op("Equal", x, editor.scalar(sign * np.inf, editor.dtype(x))) for sign in wanted]
    if not hits:
        return [editor.op("And", editor.op("IsNaN", x), editor.scalar(0, np.dtype(bool)))]
    return [hits[0] if len(hits) == 1 else editor.op("Or", *hits)]


def elu(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Elu of other types than float32, with which the importer would mix its constants."""
    import numpy as np

    x, dtype = str(node.input[0]), editor.dtype(node.input[0])
    if dtype == np.float32:
        return None
    grown = editor.op("Sub", editor.op("Exp", x), editor.scalar(1, dtype))
    below = editor.op("Mul", grown, editor.scalar(attributes(node).get("alpha", 1.0), dtype))
    return [editor.op("Where", editor.op("Less", x, editor.scalar(0, dtype)), below, x)]


def floor_mod(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Mod of floats with the sign of the divisor, by the remainder with that of the dividend."""
    a, b = node.input
    dtype = editor.dtype(a)
    if attributes(node).get("fmod", 0) or dtype.kind in "iu":
        return None
    zero = editor.scalar(0, dtype)
    rest = editor.op("Mod", a, b, fmod=1)
    other = editor.op("Xor", editor.op("Less", rest, zero), editor.op("Less", b, zero))
    moves = editor.op("And", other, editor.op("Not", editor.op("Equal", rest, zero)))
    return [editor.op("Where", moves, editor.op("Add", rest, b), rest)]


def trilu(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Trilu whose diagonal lies outside of the matrix: all of it, or nothing."""
    import numpy as np

    shape = editor.shape(node.input[0])
    k = editor.constant(node.input[1]) if len(node.input) > 1 and node.input[1] else None
    if shape is None or k is None:
        return None
    upper, diagonal = bool(attributes(node).get("upper", 1)), int(k.reshape(-1)[0])
    if -shape[-2] < diagonal < shape[-1]:
        return None
    if upper == (diagonal < 0):
        return [str(node.input[0])]
    return [editor.const(np.zeros(shape, editor.dtype(node.input[0])))]


def space_to_depth(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """SpaceToDepth of mode CRD (opset 28): the blocks' places after the channel instead of before it."""
    values, shape = attributes(node), editor.shape(node.input[0])
    if values.get("mode", "DCR") != "CRD" or shape is None:
        return None
    size, (n, c, h, w) = values["blocksize"], shape
    split = editor.reshape(node.input[0], [n, c, h // size, size, w // size, size])
    moved = editor.op("Transpose", split, perm=[0, 1, 3, 5, 2, 4])
    return [editor.reshape(moved, [n, c * size * size, h // size, w // size])]


def reduce_bool(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """ReduceMax and ReduceMin of bools, as integers."""
    import numpy as np
    import onnx

    if editor.dtype(node.input[0]).kind != "b":
        return None
    kept = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    wide = editor.cast(node.input[0], np.dtype(np.int32))
    return [editor.cast(editor.op(node.op_type, wide, *node.input[1:], **kept), np.dtype(bool))]


def eye_like(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """EyeLike as the constant that it is."""
    import numpy as np
    import onnx

    values, shape = attributes(node), editor.shape(node.input[0])
    if shape is None:
        return None
    dtype = (
        onnx.helper.tensor_dtype_to_np_dtype(values["dtype"])
        if "dtype" in values
        else editor.dtype(node.input[0])
    )
    return [editor.const(np.eye(shape[0], shape[1], k=values.get("k", 0)).astype(dtype))]


def pad_with_value(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Pad with a value that is computed: zeros around, then the value where they are."""
    import numpy as np

    shape, result = editor.shape(node.input[0]), editor.shape(node.output[0])
    if len(node.input) < 3 or not node.input[2] or editor.constant(node.input[2]) is not None:
        return None
    pads = editor.constant(node.input[1])
    if (
        attributes(node).get("mode", "constant") != "constant"
        or pads is None
        or shape is None
        or result is None
    ):
        return None
    rank = len(shape)
    chosen = editor.constant(node.input[3]) if len(node.input) > 3 else None
    axes = range(rank) if chosen is None else [int(axis) % rank for axis in chosen]
    begins = dict(zip(axes, (int(p) for p in pads), strict=False))
    inside = np.zeros(result, bool)
    places = []
    for axis in range(rank):
        begin = begins.get(axis, 0)
        places.append(slice(max(begin, 0), min(max(begin + shape[axis], 0), result[axis])))
    inside[tuple(places)] = True
    zeros = editor.op("Pad", node.input[0], node.input[1], "", *node.input[3:])
    return [editor.op("Where", editor.const(inside), zeros, node.input[2])]


def batch_normalization(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """BatchNormalization with constants as a product and a sum; in training mode by the batch's mean and
    variance, the running ones after it."""
    import numpy as np

    values, shape = attributes(node), editor.shape(node.input[0])
    if shape is None:
        return None
    if not values.get("training_mode", 0):
        return _scaled_and_shifted(editor, node, len(shape), values.get("epsilon", 1e-5))
    x, scale, bias, mean, variance = node.input
    dtype, column = editor.dtype(x), [1, -1, *[1] * (len(shape) - 2)]
    axes = editor.const(np.asarray([i for i in range(len(shape)) if i != 1], np.int64))

    def average(value: str) -> str:
        if editor.opset >= 18:
            return editor.op("ReduceMean", value, axes, keepdims=1)
        return editor.op("ReduceMean", value, axes=[i for i in range(len(shape)) if i != 1], keepdims=1)

    batch_mean = average(x)
    centred = editor.op("Sub", x, batch_mean)
    batch_variance = average(editor.op("Mul", centred, centred))
    safe = editor.op("Add", batch_variance, editor.scalar(values.get("epsilon", 1e-5), dtype))
    normal = editor.op("Div", centred, editor.op("Sqrt", safe))
    scaled = editor.op("Mul", normal, editor.reshape(scale, column))
    momentum = values.get("momentum", 0.9)

    def running(old: str, new: str) -> str:
        before = editor.op("Mul", old, editor.scalar(momentum, editor.dtype(old)))
        flat = editor.reshape(new, [-1])
        return editor.op("Add", before, editor.op("Mul", flat, editor.scalar(1 - momentum, dtype)))

    results = [editor.op("Add", scaled, editor.reshape(bias, column))]
    results += [running(mean, batch_mean), running(variance, batch_variance)][: len(node.output) - 1]
    return results


def for_each_element(editor: Editor, node: onnx.NodeProto, epsilon: float) -> str:
    """BatchNormalization whose statistics are those of each element of a sample (``spatial=0``, up to
    opset 8)."""
    x, scale, bias, mean, variance = node.input
    root = editor.op("Sqrt", editor.op("Add", variance, editor.scalar(epsilon, editor.dtype(variance))))
    normal = editor.op("Div", editor.op("Sub", x, mean), root)
    return editor.op("Add", editor.op("Mul", normal, scale), bias)


def _scaled_and_shifted(
    editor: Editor, node: onnx.NodeProto, rank: int, epsilon: float
) -> Sequence[str] | None:
    """x * a + b, a = scale / sqrt(variance + epsilon), b = bias - mean * a; computed in float64."""
    import numpy as np

    dtype, known = editor.dtype(node.input[0]), [editor.value(name) for name in node.input[1:]]
    if any(array is None or array.ndim != 1 for array in known) or dtype not in (np.float32, np.float64):
        return None
    scale, bias, mean, variance = (np.asarray(array, np.float64) for array in known)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + epsilon)
        terms = [factor, bias - mean * factor]
    if len(node.output) > 1 or not all(np.isfinite(term.astype(dtype)).all() for term in terms):
        return None
    a, b = (editor.const(term.astype(dtype).reshape(-1, *[1] * (rank - 2))) for term in terms)
    return [editor.op("Add", editor.op("Mul", node.input[0], a), b)]


def scalar_axes(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Unsqueeze whose axis is a scalar, as in the standard's own function bodies."""
    axes = editor.constant(node.input[1]) if len(node.input) > 1 else None
    if axes is None or axes.ndim:
        return None
    return [editor.op("Unsqueeze", node.input[0], editor.const(axes.reshape(1)))]


def split_of_nothing(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Split without the parts that have no elements, which the importer cannot make, nor a part alone."""
    import numpy as np

    if len(node.output) == 1:
        return [node.input[0]]
    shape, values = editor.shape(node.input[0]), attributes(node)
    given = editor.constant(node.input[1]) if len(node.input) > 1 else values.get("split")
    if shape is None or given is None or all(given):
        return None
    axis, sizes = values.get("axis", 0) % len(shape), [int(n) for n in given]
    kept = [n for n in sizes if n]
    parts = [str(node.input[0])]
    if len(kept) > 1 and len(node.input) > 1:
        lengths = editor.const(np.asarray(kept, np.int64))
        parts = editor.ops("Split", node.input[0], lengths, outputs=len(kept), axis=axis)
    elif len(kept) > 1:
        parts = editor.ops("Split", node.input[0], outputs=len(kept), axis=axis, split=kept)
    rest = iter(parts)
    empty = np.zeros([0 if i == axis else n for i, n in enumerate(shape)], editor.dtype(node.input[0]))
    return [next(rest) if n else editor.const(empty) for n in sizes]
