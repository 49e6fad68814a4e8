"""Linear algebra and transforms: determinants, Fourier transforms, sums of columns into images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes
from edgepack.compiler.frontend.onnx.rewrites.fourier import LONG, Fourier, is_long
from edgepack.compiler.frontend.onnx.support import node_name
from edgepack.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

__all__ = ["col2im", "det", "dft", "stft"]

#: Largest matrix whose determinant is written out, step by step.
DET_LIMIT = 16

#: Longest frame of an STFT: its matrix is a constant of the square of this.
DFT_LIMIT = 4096


def det(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Gaussian elimination with partial pivoting, a step per row."""
    import numpy as np

    shape = editor.shape(node.input[0])
    if shape is None or shape[-1] > DET_LIMIT:
        return None
    n, batch, dtype = shape[-1], prod(shape[:-2]), editor.dtype(node.input[0])
    matrix, result = editor.reshape(node.input[0], [batch, n, n]), ""
    for size in range(n, 0, -1):
        first = _cut(editor, matrix, 2, 0, 1)
        place = editor.op("ArgMax", editor.op("Abs", first), axis=1, keepdims=1)  # batch x 1 x 1
        chosen = editor.op("Equal", editor.const(np.arange(size).reshape(1, size, 1)), place)
        one_hot = editor.cast(chosen, dtype)
        pivot_row = editor.reduce("ReduceSum", editor.op("Mul", matrix, one_hot), 1)
        pivot = _cut(editor, pivot_row, 2, 0, 1)
        stays = editor.op("Equal", place, editor.scalar(0, np.dtype(np.int64)))
        factor = editor.op("Where", stays, pivot, editor.op("Neg", pivot))
        result = editor.op("Mul", result, factor) if result else factor
        if size == 1:
            break
        swapped = editor.op("Where", chosen, _cut(editor, matrix, 1, 0, 1), matrix)
        rest = _cut(editor, swapped, 1, 1, size)
        zero = editor.op("Equal", pivot, editor.scalar(0, dtype))
        divisor = editor.op("Where", zero, editor.scalar(1, dtype), pivot)
        share = editor.op("Div", _cut(editor, rest, 2, 0, 1), divisor)
        tail = editor.op("Mul", share, _cut(editor, pivot_row, 2, 1, size))
        matrix = editor.op("Sub", _cut(editor, rest, 2, 1, size), tail)
    return [editor.reshape(result, shape[:-2])]


def _cut(editor: Editor, x: str, axis: int, start: int, end: int) -> str:
    import numpy as np

    return editor.op("Slice", x, *(editor.const(np.asarray([i], np.int64)) for i in (start, end, axis)))


def col2im(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Blocks are summed up one axis after the other: along an axis the sum of a block's places,
    each moved to where it belongs."""
    values, shape = attributes(node), editor.shape(node.input[0])
    image, block = editor.constant(node.input[1]), editor.constant(node.input[2])
    if shape is None or image is None or block is None:
        return None
    sizes, kernel = [int(n) for n in image], [int(n) for n in block]
    rank = len(sizes)
    strides, dilations = values.get("strides", [1] * rank), values.get("dilations", [1] * rank)
    pads = values.get("pads", [0] * 2 * rank)
    steps = [
        (sizes[i] + pads[i] + pads[i + rank] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1
        for i in range(rank)
    ]
    if shape[1] % prod(kernel) or shape[2] != prod(steps) or min(steps) < 1:
        raise ModelError(
            f"The Col2Im node {node_name(node, 0)} has {shape[2]} blocks of {shape[1]} elements, not those "
            f"of an image of {sizes} by blocks of {kernel}.",
            hint="Export the model again.",
        )
    x, dtype, rows = str(node.input[0]), editor.dtype(node.input[0]), shape[0] * shape[1] // prod(kernel)
    for i in reversed(range(rank)):
        tail = prod(sizes[i + 1 :])
        lead, taps, mid = rows * prod(kernel[:i]), kernel[i], prod(steps[:i])
        places = [tap * dilations[i] for tap in range(taps)]
        x = editor.reshape(x, [lead, taps, mid, steps[i] * tail])
        x = _summed(editor, x, dtype, (lead, mid, steps[i], tail), places, (sizes[i], strides[i], pads[i]))
    return [editor.reshape(x, [shape[0], shape[1] // prod(kernel), *sizes])]


def _summed(
    editor: Editor,
    x: str,
    dtype: np.dtype[Any],
    shape: tuple[int, int, int, int],
    places: Sequence[int],
    axis: tuple[int, int, int],
) -> str:
    """(lead, taps, mid, steps * tail) summed up along an axis: (lead, mid, size * tail).

    Args:
        shape: lead, mid, steps, tail.
        places: of each tap, before strides and pads.
        axis: size, stride, and padding before the axis.
    """
    import numpy as np

    (lead, mid, steps, tail), (size, stride, pad) = shape, axis
    length = -(-(size + pad) // stride)
    phases = []
    for phase in range(stride):
        total = ""
        for tap, place in enumerate(places):
            first, count = place // stride, min(steps, length - place // stride)
            if place % stride != phase or count <= 0:
                continue
            own = editor.op("Slice", x, *_bounds(editor, [tap, 0], [tap + 1, count * tail], [1, 3]))
            widths = np.zeros(8, np.int64)
            widths[3], widths[7] = first * tail, (length - first - count) * tail
            own = editor.op("Pad", own, editor.const(widths)) if widths.any() else own
            total = editor.op("Add", total, own) if total else own
        phases.append(total or editor.const(np.zeros((lead, 1, mid, length * tail), dtype)))
    if stride > 1:
        parts = [editor.reshape(part, [lead, mid, length, 1, tail]) for part in phases]
        phases = [editor.reshape(editor.op("Concat", *parts, axis=3), [lead, 1, mid, length * stride * tail])]
    return editor.op("Slice", phases[0], *_bounds(editor, [pad * tail], [(pad + size) * tail], [3]))


def _bounds(editor: Editor, *values: Sequence[int]) -> list[str]:
    """Starts, ends and axes of a Slice."""
    import numpy as np

    return [editor.const(np.asarray(numbers, np.int64)) for numbers in values]


def dft(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """DFT over one axis as one product with a matrix of roots of unity, a long one as some small products
    (opset 17: axis is an attribute)."""
    import numpy as np

    values, x = attributes(node), str(node.input[0])
    shape, inputs = editor.shape(x), [*node.input, "", ""]
    axis, given = editor.constant(inputs[2]), editor.constant(inputs[1])
    if axis is None:
        axis = np.asarray(values.get("axis", 1 if editor.opset < 20 else -2))
    if shape is None or (inputs[1] and given is None) or (inputs[2] and editor.constant(inputs[2]) is None):
        return None
    place, rank = int(axis.reshape(-1)[0]) % len(shape), len(shape)
    inverse, onesided = bool(values.get("inverse", 0)), bool(values.get("onesided", 0))
    bins, parts = shape[place], shape[-1]
    length = 2 * (bins - 1) if inverse and onesided else bins
    length = int(given.reshape(-1)[0]) if given is not None else length
    order = [*(i for i in range(rank - 1) if i != place), place, rank - 1]
    moved = order != list(range(rank))
    rows = editor.op("Transpose", x, perm=order) if moved else x
    real = inverse and onesided
    out = length // 2 + 1 if onesided and not inverse else length
    if is_long(length) or bins > LONG:
        if real and bins != length // 2 + 1:
            return None
        found = _long_dft(editor, rows, (prod(shape) // (bins * parts), bins, parts), length, values)
    else:
        matrix = _roots(bins, length, complex_in=parts == 2, inverse=inverse, onesided=onesided)
        flat = editor.reshape(rows, [-1, bins * parts])
        found = editor.op("MatMul", flat, editor.const(matrix.astype(editor.dtype(x))))
    found = editor.reshape(found, [*(shape[i] for i in order[:-2]), out, 1 if real else 2])
    return [editor.op("Transpose", found, perm=np.argsort(order).tolist()) if moved else found]


def _long_dft(
    editor: Editor, x: str, shape: tuple[int, int, int], length: int, values: Mapping[str, Any]
) -> str:
    """The transform of [rows, bins, 1 or 2] by small products; [rows, results * parts]."""
    import numpy as np

    rows, bins, parts = shape
    inverse, onesided = bool(values.get("inverse", 0)), bool(values.get("onesided", 0))
    whole = editor.reshape(x, shape)
    planes = [editor.reshape(_cut(editor, whole, 2, part, part + 1), [rows, bins]) for part in range(parts)]
    dtype = editor.dtype(x)
    if inverse and onesided:  # the other half has the same numbers, conjugate
        k = np.arange(length)
        places = editor.const(np.minimum(k, length - k))
        planes = [editor.op("Gather", plane, places, axis=1) for plane in planes]
        if parts == 2:
            sign = np.where(k <= length // 2, 1, -1).astype(dtype)
            planes[1] = editor.op("Mul", planes[1], editor.const(sign))
    elif bins > length:
        planes = [_cut(editor, plane, 1, 0, length) for plane in planes]
    elif bins < length:
        zeros = editor.const(np.zeros((rows, length - bins), dtype))
        planes = [editor.op("Concat", plane, zeros, axis=1) for plane in planes]
    both = (planes[0], planes[1] if parts == 2 else "")
    found = list(Fourier(editor, rows, dtype, 1 if inverse else -1).transform(both, length))
    if inverse:
        found = [editor.op("Mul", part, editor.scalar(1 / length, dtype)) for part in found]
    if inverse and onesided:
        return found[0]
    if onesided:
        found = [_cut(editor, part, 1, 0, length // 2 + 1) for part in found]
    results = length // 2 + 1 if onesided else length
    return editor.op("Concat", *(editor.reshape(part, [rows, results, 1]) for part in found), axis=2)


def stft(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """STFT: frames are gathered, weighted with the window, and transformed in one product."""
    import numpy as np

    shape, inputs = editor.shape(node.input[0]), [*node.input, "", ""]
    step, window, given = editor.constant(inputs[1]), inputs[2], editor.constant(inputs[3])
    window_shape = editor.shape(window) if window else None
    if shape is None or step is None or (given is None and (inputs[3] or window_shape is None)):
        return None
    length = int(given.reshape(-1)[0]) if given is not None else int((window_shape or (0,))[0])
    if length > DFT_LIMIT:
        return None
    hop, onesided = int(step.reshape(-1)[0]), bool(attributes(node).get("onesided", 1))
    parts, dtype = shape[2] if len(shape) == 3 else 1, editor.dtype(node.input[0])
    frames = (shape[1] - length) // hop + 1
    matrix = _roots(length, length, complex_in=parts == 2, inverse=False, onesided=onesided)
    fixed = editor.constant(window) if window else None
    if fixed is not None:
        matrix = matrix * np.repeat(fixed.astype(np.float64), parts)[:, None]
    signal = editor.reshape(node.input[0], [shape[0], shape[1], parts])
    places = np.arange(frames)[:, None] * hop + np.arange(length)
    framed = editor.op("Gather", signal, editor.const(places), axis=1)  # batch x frames x length x parts
    if window and fixed is None:
        framed = editor.op("Mul", framed, editor.reshape(window, [length, 1]))
    flat = editor.reshape(framed, [shape[0] * frames, length * parts])
    found = editor.op("MatMul", flat, editor.const(matrix.astype(dtype)))
    return [editor.reshape(found, [shape[0], frames, matrix.shape[1] // 2, 2])]


def _roots(bins: int, length: int, *, complex_in: bool, inverse: bool, onesided: bool) -> NDArray[np.float64]:
    """What a row of ``bins`` values is multiplied with: real and imaginary parts lie beside each other.

    X[k] = sum of x[n] e**(-+ 2 pi i k n / length), the inverse one over ``length``. What is missing of a row
    up to ``length`` is zero, what is beyond does not count. With ``inverse`` and ``onesided`` the row holds
    the first half of the bins of real values, and the result is these values alone.
    """
    import numpy as np

    half = length // 2 + 1
    rows = min(bins, half if inverse and onesided else length)
    columns = half if onesided and not inverse else length
    turns = (np.arange(rows)[:, None] * np.arange(columns)) % length / length
    root = np.exp((2j if inverse else -2j) * np.pi * turns) / (length if inverse else 1)
    if inverse and onesided:
        k = np.arange(rows)[:, None]
        root = root * np.where((k == 0) | (2 * k == length), 1, 2)
        pairs = np.stack([root.real, -root.imag], axis=1) if complex_in else root.real[:, None]
        matrix = pairs.reshape(-1, columns)
    else:
        first = np.stack([root.real, root.imag], axis=-1)
        second = np.stack([-root.imag, root.real], axis=-1)
        pairs = np.stack([first, second], axis=1) if complex_in else first[:, None]
        matrix = pairs.reshape(-1, 2 * columns)
    missing = (bins - rows) * (2 if complex_in else 1)
    return np.concatenate([matrix, np.zeros((missing, matrix.shape[1]))])
