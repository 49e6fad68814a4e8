"""Blocks of an image as channels or batches, and borders that mirror it."""

from __future__ import annotations

import math

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.model import Operator
from edgepack.compiler.frontend.tflite.operators.contract import (
    Converter,
    UnsupportedFormError,
    constant,
    moved,
    option,
)

__all__ = ["CONVERTERS"]


def _space_to_depth(emitter: Emitter, operator: Operator) -> None:
    x, block = emitter.value(operator.inputs[0]), option(operator, "blockSize", 1)
    n, rows, columns, channels = emitter.shape(x)
    if block < 1 or rows % block or columns % block:
        raise UnsupportedFormError(f"blocks of {block} in {rows}x{columns}")
    parts = emitter.reshape(x, [n, rows // block, block, columns // block, block, channels])
    ordered = emitter.transpose(parts, [0, 1, 3, 2, 4, 5])
    shape = [n, rows // block, columns // block, block * block * channels]
    moved(emitter, operator, emitter.reshape(ordered, shape))


def _depth_to_space(emitter: Emitter, operator: Operator) -> None:
    x, block = emitter.value(operator.inputs[0]), option(operator, "blockSize", 1)
    n, rows, columns, channels = emitter.shape(x)
    if block < 1 or channels % (block * block):
        raise UnsupportedFormError(f"blocks of {block} in {channels} channels")
    depth = channels // (block * block)
    parts = emitter.reshape(x, [n, rows, columns, block, block, depth])
    ordered = emitter.transpose(parts, [0, 1, 3, 2, 4, 5])
    moved(emitter, operator, emitter.reshape(ordered, [n, rows * block, columns * block, depth]))


def _space_to_batch(emitter: Emitter, operator: Operator) -> None:
    """Padded with the zero point; blocks of the dimensions behind the first become batches."""
    import numpy as np

    blocks = [int(n) for n in constant(emitter, operator, 1)]
    widths = constant(emitter, operator, 2).reshape(-1, 2)
    x, result = emitter.value(operator.inputs[0]), emitter.tensors[operator.outputs[0]]
    rank = len(emitter.shape(x))
    if widths.any():
        zero = 0 if result.quantisation is None else int(result.quantisation.zero[0])
        before, behind = ([0, *widths[:, i], *[0] * (rank - 1 - len(blocks))] for i in (0, 1))
        shape = [n + a + b for n, a, b in zip(emitter.shape(x), before, behind, strict=True)]
        pads = emitter.const(np.asarray([*before, *behind], np.int64))
        fill = emitter.const(np.asarray(zero, emitter.dtype(x)))
        x = emitter.op("Pad", x, pads, fill, shape=shape, mode="constant")
    batch, *extents = emitter.shape(x)
    if min(blocks, default=1) < 1 or any(n % by for n, by in zip(extents, blocks, strict=False)):
        raise UnsupportedFormError(f"blocks of {blocks} in {extents}")
    count = len(blocks)
    split = [part for n, by in zip(extents, blocks, strict=False) for part in (n // by, by)]
    parts = emitter.reshape(x, [batch, *split, *extents[count:]])
    inner = [2 * i + 2 for i in range(count)]
    outer = [2 * i + 1 for i in range(count)]
    rest = range(2 * count + 1, 1 + len(split) + len(extents) - count)
    ordered = emitter.transpose(parts, [*inner, 0, *outer, *rest])
    moved(
        emitter,
        operator,
        emitter.reshape(ordered, [batch * math.prod(blocks), *split[::2], *extents[count:]]),
    )


def _batch_to_space(emitter: Emitter, operator: Operator) -> None:
    import numpy as np

    blocks = [int(n) for n in constant(emitter, operator, 1)]
    crops = constant(emitter, operator, 2).reshape(-1, 2)
    x, count = emitter.value(operator.inputs[0]), len(blocks)
    batch, *extents = emitter.shape(x)
    whole = math.prod(blocks)
    if whole < 1 or batch % whole:
        raise UnsupportedFormError(f"blocks of {blocks} of {batch} batches")
    parts = emitter.reshape(x, [*blocks, batch // whole, *extents])
    pairs = [axis for i in range(count) for axis in (count + 1 + i, i)]
    rest = range(2 * count + 1, count + 1 + len(extents))
    ordered = emitter.transpose(parts, [count, *pairs, *rest])
    made = [n * by for n, by in zip(extents, blocks, strict=False)]
    image = emitter.reshape(ordered, [batch // whole, *made, *extents[count:]])
    if crops.any():
        bounds = [(int(a), n - int(b)) for n, (a, b) in zip(made, crops, strict=True)]
        starts, stops = (emitter.const(np.asarray(ends, np.int64)) for ends in zip(*bounds, strict=True))
        axes = emitter.const(np.arange(1, count + 1, dtype=np.int64))
        shape = [batch // whole, *(b - a for a, b in bounds), *extents[count:]]
        image = emitter.op("Slice", image, starts, stops, axes, shape=shape)
    moved(emitter, operator, image)


def _mirror_pad(emitter: Emitter, operator: Operator) -> None:
    """Mirrored at the border's elements (reflect), or with these (symmetric): dimension by dimension."""
    import numpy as np

    widths = constant(emitter, operator, 1).reshape(-1, 2)
    x, symmetric = emitter.value(operator.inputs[0]), option(operator, "mode") == 1
    shape = list(emitter.shape(x))
    if not symmetric:
        pads = emitter.const(np.asarray([*widths[:, 0], *widths[:, 1]], np.int64))
        whole = [n + int(sum(width)) for n, width in zip(shape, widths, strict=True)]
        moved(emitter, operator, emitter.op("Pad", x, pads, shape=whole, mode="reflect"))
        return
    for axis, (before, behind) in enumerate(widths):
        if before or behind:
            places = np.pad(np.arange(shape[axis], dtype=np.int64), (before, behind), "symmetric")
            shape[axis] = len(places)
            x = emitter.op("Gather", x, emitter.const(places), shape=shape, axis=axis)
    moved(emitter, operator, x)


CONVERTERS: dict[str, Converter] = {
    "BATCH_TO_SPACE_ND": _batch_to_space,
    "DEPTH_TO_SPACE": _depth_to_space,
    "MIRROR_PAD": _mirror_pad,
    "SPACE_TO_BATCH_ND": _space_to_batch,
    "SPACE_TO_DEPTH": _space_to_depth,
}
