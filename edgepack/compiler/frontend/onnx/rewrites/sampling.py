"""Operators that read images between their elements, and pooling that says where it found it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes

if TYPE_CHECKING:
    import onnx

__all__ = ["deform_conv", "max_pool_with_indices", "max_unpool"]


def deform_conv(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """DeformConv: each tap is read at its own place, linearly between its neighbours; then a product.

    Neighbours are read as pixels, whose channels lie side by side: the columns of the product are those of a
    convolution with the channels last. X. Zhu, H. Hu, S. Lin and J. Dai, "Deformable ConvNets v2", 2018.
    """

    values = attributes(node)
    x, w, offset = node.input[:3]
    shape, weights, out = editor.shape(x), editor.shape(w), editor.shape(offset)
    if shape is None or weights is None or out is None:
        return None
    rank, dtype = len(shape) - 2, editor.dtype(x)
    kernel, sizes, target = weights[2:], shape[2:], out[2:]
    taps, points, groups = prod(kernel), prod(out[2:]), values.get("offset_group", 1)
    strides, dilations = values.get("strides", [1] * rank), values.get("dilations", [1] * rank)
    pads = values.get("pads", [0] * 2 * rank)
    images, channels, parts = shape[0], shape[1] // groups, values.get("group", 1)
    positions = _positions(editor, offset, (images * groups, kernel, target), strides, dilations, pads)
    pixels = _turned(editor, x, [images, groups, channels, prod(sizes)], [0, 1, 3, 2])
    pixels = editor.reshape(pixels, [images * groups * prod(sizes), channels])
    sampled = _linear(editor, pixels, positions, sizes, [images * groups, points * taps], dtype)
    if len(node.input) > 4 and node.input[4]:
        mask = _turned(editor, node.input[4], [images, groups, taps, points], [0, 1, 3, 2])
        sampled = editor.op("Mul", sampled, editor.reshape(mask, [images * groups * points * taps, 1]))
    columns = _turned(editor, sampled, [images, groups, points, taps, channels], [0, 2, 3, 1, 4])
    split = [images, points, taps, parts, shape[1] // parts]
    columns = editor.reshape(
        _turned(editor, columns, split, [0, 3, 1, 2, 4]), [images, parts, points, taps * shape[1] // parts]
    )
    filters = _turned(editor, w, [parts, weights[0] // parts, weights[1], taps], [0, 3, 2, 1])
    filters = editor.reshape(filters, [parts, taps * weights[1], weights[0] // parts])
    if parts == 1:  # one matrix for all rows
        columns = editor.reshape(columns, [images * points, taps * shape[1]])
        filters = editor.reshape(filters, [taps * weights[1], weights[0]])
    found = [images, parts, points, weights[0] // parts]
    result = _turned(editor, editor.op("MatMul", columns, filters), found, [0, 1, 3, 2])
    result = editor.reshape(result, [images, weights[0], *target])
    if len(node.input) > 3 and node.input[3]:
        result = editor.op("Add", result, editor.reshape(node.input[3], [1, -1, *[1] * rank]))
    return [result]


def _positions(
    editor: Editor,
    offset: str,
    shape: tuple[int, Sequence[int], Sequence[int]],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> list[str]:
    """Where the taps of each point are read, along each axis: (images, points * taps).

    Args:
        shape: images times groups, the kernel's sizes, and those of the output.
    """
    import numpy as np

    count, kernel, target = shape
    rank, taps, points, dtype = len(kernel), prod(kernel), prod(target), editor.dtype(offset)
    moved = editor.reshape(offset, [count, taps, rank, points])
    moved = editor.op("Transpose", moved, perm=[0, 2, 3, 1])
    found = []
    for i in range(rank):
        tap = np.asarray([offsets[i] for offsets in product(*(range(k) for k in kernel))]) * dilations[i]
        along = np.arange(target[i]).reshape([-1, *[1] * (rank - 1 - i)]) * strides[i] - pads[i]
        place = np.broadcast_to(along, target).reshape(-1, 1) + tap
        own = editor.op("Slice", moved, *(editor.const(np.asarray([v], np.int64)) for v in (i, i + 1, 1)))
        own = editor.reshape(own, [count, points * taps])
        found.append(editor.op("Add", own, editor.const(place.reshape(1, -1).astype(dtype))))
    return found


def _turned(editor: Editor, x: str, shape: Sequence[int], order: Sequence[int]) -> str:
    """``x`` in this shape, then with its axes in this order."""
    viewed = editor.reshape(x, shape)
    moving = [axis for axis in order if shape[axis] > 1]
    return viewed if moving == sorted(moving) else editor.op("Transpose", viewed, perm=list(order))


def _linear(
    editor: Editor,
    pixels: str,
    positions: Sequence[str],
    sizes: Sequence[int],
    count: Sequence[int],
    dtype: object,
) -> str:
    """Rows of ``pixels``, those of one image after those of another, at positions along each axis: between
    them linearly, zero outside.

    Args:
        count: images, and positions in each of them.
    """
    import numpy as np

    element, int64 = np.dtype(dtype), np.dtype(np.int64)  # type: ignore[call-overload]
    first = editor.const((np.arange(count[0]) * prod(sizes)).reshape(-1, 1))
    lows = [editor.op("Floor", position) for position in positions]
    shares = [editor.op("Sub", p, low) for p, low in zip(positions, lows, strict=True)]
    total = ""
    for corner in product((0, 1), repeat=len(sizes)):
        place, weight = "", ""
        for low, share, far, size in zip(lows, shares, corner, sizes, strict=True):
            at = editor.op("Add", low, editor.scalar(1, element)) if far else low
            inside = editor.op(
                "And",
                editor.op("GreaterOrEqual", at, editor.scalar(0, element)),
                editor.op("LessOrEqual", at, editor.scalar(size - 1, element)),
            )
            part = share if far else editor.op("Sub", editor.scalar(1, element), share)
            part = editor.op("Where", inside, part, editor.scalar(0, element))
            weight = editor.op("Mul", weight, part) if weight else part
            step = editor.cast(editor.op("Where", inside, at, editor.scalar(0, element)), int64)
            if place:
                step = editor.op("Add", editor.op("Mul", place, editor.scalar(size, int64)), step)
            place = step
        place = editor.reshape(editor.op("Add", place, first), [prod(count)])
        read = editor.op("Gather", pixels, place, axis=0)
        term = editor.op("Mul", read, editor.reshape(weight, [prod(count), 1]))
        total = editor.op("Add", total, term) if total else term
    return total


def max_pool_with_indices(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """MaxPool that also says where each largest element lies in the flat input: the first of equals, NaN
    being less than all numbers."""
    import numpy as np

    values = attributes(node)
    shape, out = editor.shape(node.input[0]), editor.shape(node.output[0])
    if len(node.output) < 2 or not node.output[1] or shape is None or out is None:
        return None
    dtype, rank, int64 = editor.dtype(node.input[0]), len(shape) - 2, np.dtype(np.int64)
    kernel, sizes, target = values["kernel_shape"], shape[2:], out[2:]
    strides, dilations = values.get("strides", [1] * rank), values.get("dilations", [1] * rank)
    begins = _begins(values, kernel, strides, dilations, sizes, target)
    taps = list(product(*(range(k) for k in kernel)))
    table = np.zeros((len(taps), prod(target)), np.int64)
    valid = np.ones((len(taps), prod(target)), bool)
    for number, offsets in enumerate(taps):
        place, inside = np.zeros(target, np.int64), np.ones(target, bool)
        strides_in = [prod(sizes[i + 1 :]) for i in range(rank)]
        if values.get("storage_order", 0):
            strides_in = [prod(sizes[:i]) for i in range(rank)]
        gather = np.zeros(target, np.int64)
        for i in range(rank):
            at = np.arange(target[i]) * strides[i] - begins[i] + offsets[i] * dilations[i]
            at = at.reshape([-1, *[1] * (rank - 1 - i)])
            inside &= (at >= 0) & (at < sizes[i])
            safe = np.clip(at, 0, sizes[i] - 1)
            place = place + safe * strides_in[i]
            gather = gather + safe * prod(sizes[i + 1 :])
        table[number], valid[number] = gather.reshape(-1), inside.reshape(-1)
        if number == 0:
            reported = np.zeros_like(table)
        reported[number] = place.reshape(-1)
    lowest = np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf
    flat = editor.reshape(node.input[0], [shape[0], shape[1], prod(sizes)])
    if dtype.kind == "f":
        flat = editor.op("Where", editor.op("IsNaN", flat), editor.scalar(lowest, dtype), flat)
    read = editor.op("Gather", flat, editor.const(table), axis=2)  # batch x channel x tap x place
    read = editor.op("Where", editor.const(valid), read, editor.scalar(lowest, dtype))
    largest = editor.reduce("ReduceMax", read, 2)
    best = editor.op("ArgMax", read, axis=2, keepdims=1)
    chosen = editor.op("Equal", editor.const(np.arange(len(taps)).reshape(-1, 1)), best)
    where = editor.op("Where", chosen, editor.const(reported), editor.scalar(0, int64))
    base = np.arange(shape[0] * shape[1]).reshape(shape[0], shape[1], 1, 1) * prod(sizes)
    index = editor.op("Add", editor.reduce("ReduceSum", where, 2), editor.const(base))
    return [editor.reshape(largest, out), editor.reshape(index, out)]


def _begins(
    values: dict[str, object],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    sizes: Sequence[int],
    target: Sequence[int],
) -> list[int]:
    """Padding before each axis."""
    auto = values.get("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            max(0, (target[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - sizes[i])
            for i in range(len(kernel))
        ]
        return [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in totals]
    pads = values.get("pads") or [0] * len(kernel)
    return list(pads)[: len(kernel)]  # type: ignore[call-overload, no-any-return]


def max_unpool(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """MaxUnpool: the elements are scattered to their places in zeros."""
    import numpy as np

    values = attributes(node)
    shape, out = editor.shape(node.input[0]), editor.shape(node.output[0])
    if shape is None:
        return None
    rank = len(shape) - 2
    kernel, strides = values["kernel_shape"], values.get("strides", [1] * rank)
    pads = values.get("pads", [0] * 2 * rank)
    sizes = [
        *shape[:2],
        *((shape[i + 2] - 1) * strides[i] + kernel[i] - pads[i] - pads[i + rank] for i in range(rank)),
    ]
    if len(node.input) > 2 and node.input[2]:
        given = editor.constant(node.input[2])
        if given is None:
            return None
        out = tuple(int(n) for n in given)
    dtype = editor.dtype(node.input[0])
    zeros = editor.const(np.zeros(prod(sizes), dtype))
    flat = [editor.reshape(name, [-1]) for name in node.input[:2]]
    image = editor.reshape(editor.op("ScatterElements", zeros, flat[1], flat[0], axis=0), sizes)
    if out is not None and tuple(sizes) != tuple(out):
        ends = [o - s for o, s in zip(out, sizes, strict=True)]
        image = editor.op("Pad", image, editor.const(np.asarray([*[0] * len(ends), *ends], np.int64)))
    return [image]
