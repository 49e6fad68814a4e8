"""RoiAlign as gathers of pixels: means of all channels at once, and maxima, which the importer has not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NoReturn

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes
from edgepack.compiler.frontend.onnx.support import RefusedNodesError, node_name

if TYPE_CHECKING:
    import onnx

__all__ = ["roi_align"]


#: Samples of a bin along each axis, of which a mean is written out.
MOST_SAMPLES = 4


def roi_align(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """RoiAlign of a known number of samples, in images that there are; a mean of others has its regions
    scaled before they are shifted.

    The standard's maximum is that of the four neighbours of all samples, each times its weight.
    """
    import numpy as np

    values, (x, rois, batches) = attributes(node), node.input
    default = "half_pixel" if editor.opset >= 16 else "output_half_pixel"
    half = values.get("coordinate_transformation_mode", default) == "half_pixel"
    scale, dtype = values.pop("spatial_scale", 1.0), editor.dtype(x)
    average, ratio = values.get("mode", "avg") == "avg", values.get("sampling_ratio", 0)
    known = 0 < ratio <= MOST_SAMPLES or (ratio > 0 and not average)
    images = editor.shape(x)
    if average and not known and (not half or scale == 1) and editor.constant(batches) is not None:
        return None
    if images is None:
        return None
    batches = _clipped(editor, editor.cast(batches, np.dtype(np.int64)), images[0] - 1)
    scaled = editor.op("Mul", rois, editor.scalar(scale, dtype)) if scale != 1 else rois
    if average and not known:
        return [editor.op("RoiAlign", x, scaled, batches, **values)]
    shape, regions = editor.shape(x), editor.shape(rois)
    if shape is None or regions is None:
        return None
    if not known:
        _refuse(node)
    bounds = editor.op("Sub", scaled, editor.scalar(0.5, dtype)) if half else scaled
    chosen = _mean if average else _maximum
    return [chosen(editor, (x, bounds, batches), (regions[0], *shape), values, shifted=half)]


def _clipped(editor: Editor, numbers: str, last: int) -> str:
    """Whole numbers from 0 to ``last``."""
    import numpy as np

    zero, end = (editor.scalar(n, np.dtype(np.int64)) for n in (0, last))
    return editor.op("Min", editor.op("Max", numbers, zero), end)


def _refuse(node: onnx.NodeProto) -> NoReturn:
    name = node_name(node, 0)
    raise RefusedNodesError(
        f"The RoiAlign node {name} cannot be compiled: it takes maxima of as many samples as a region has "
        "pixels, which is known at run time only.",
        hint="Export it with a sampling_ratio, or with the mode avg.",
        refused=[{"operator": "RoiAlign", "nodes": [name], "reason": "mode max without a sampling_ratio"}],
        tensors=list(node.output),
    )


def _mean(
    editor: Editor,
    operands: tuple[str, str, str],
    shape: tuple[int, ...],
    values: dict[str, Any],
    *,
    shifted: bool,
) -> str:
    """The mean of each bin's samples. Neighbours are read as pixels, whose channels lie side by side.

    Args:
        operands: images, regions in pixels, and the image of each region.
        shape: (regions, images, channels, height, width).
        shifted: regions may be smaller than a pixel.
    """
    import numpy as np

    (x, bounds, batches), (count, images, channels, height, width) = operands, shape
    grid, int64, dtype = values["sampling_ratio"], np.dtype(np.int64), editor.dtype(x)
    tall, wide = (values.get(name, 1) for name in ("output_height", "output_width"))
    rows = _neighbours(editor, bounds, 1, (tall, grid, height), shifted=shifted)
    columns = _neighbours(editor, bounds, 0, (wide, grid, width), shifted=shifted)
    pixels = editor.reshape(editor.op("Transpose", x, perm=[0, 2, 3, 1]), [images * height * width, channels])
    first = editor.op("Mul", batches, editor.scalar(height * width, int64))
    first = editor.reshape(first, [1, 1, count, 1, 1])
    down, across = [grid, 1, count, tall, 1], [1, grid, count, 1, wide]

    def apart(x: str, bins: int, shape: Sequence[int]) -> str:
        """What belongs to the same sample of all bins, side by side."""
        parts = editor.op("Transpose", editor.reshape(x, [count, bins, grid]), perm=[2, 0, 1])
        return editor.reshape(parts, shape)

    total, samples = "", [grid**2, count * tall * wide]
    for row, by_row in rows:
        begin = editor.op("Mul", apart(row, tall, down), editor.scalar(width, int64))
        begin = editor.op("Add", begin, first)
        share = editor.op("Mul", apart(by_row, tall, down), editor.scalar(1 / grid**2, dtype))
        for column, by_column in columns:
            place = editor.op("Add", begin, apart(column, wide, across))
            weight = editor.op("Mul", share, apart(by_column, wide, across))
            place, weight = editor.reshape(place, samples), editor.reshape(weight, [*samples, 1])
            for sample in range(grid**2):
                read = editor.op("Gather", pixels, _one(editor, place, sample), axis=0)
                term = editor.op("Mul", read, _one(editor, weight, sample))
                total = editor.op("Add", total, term) if total else term
    mean = editor.reshape(total, [count, tall, wide, channels])
    return editor.op("Transpose", mean, perm=[0, 3, 1, 2])


def _one(editor: Editor, x: str, number: int) -> str:
    """An element of the first axis, which stays."""
    import numpy as np

    return editor.op("Slice", x, *(editor.const(np.asarray([n], np.int64)) for n in (number, number + 1, 0)))


def _maximum(
    editor: Editor,
    operands: tuple[str, str, str],
    shape: tuple[int, ...],
    values: dict[str, Any],
    *,
    shifted: bool,
) -> str:
    """The largest weighted neighbour of each bin's samples; arguments as those of :func:`_mean`."""
    import numpy as np

    (x, bounds, batches), (count, _, channels, height, width) = operands, shape
    grid, int64 = values["sampling_ratio"], np.dtype(np.int64)
    bins = [values.get(name, 1) for name in ("output_height", "output_width")]
    tall, wide = (n * grid for n in bins)
    rows = _neighbours(editor, bounds, 1, (bins[0], grid, height), shifted=shifted)
    columns = _neighbours(editor, bounds, 0, (bins[1], grid, width), shifted=shifted)
    flat = editor.reshape(editor.op("Gather", x, batches, axis=0), [count, channels, height * width])
    every = editor.const(np.asarray([count, channels, tall * wide], np.int64))
    best = ""
    for (row, by_row), (column, by_column) in product(rows, columns):
        begin = editor.op("Mul", editor.reshape(row, [count, tall, 1]), editor.scalar(width, int64))
        place = editor.op("Add", begin, editor.reshape(column, [count, 1, wide]))
        weight = editor.op(
            "Mul", editor.reshape(by_row, [count, tall, 1]), editor.reshape(by_column, [count, 1, wide])
        )
        place, weight = (editor.reshape(value, [count, 1, tall * wide]) for value in (place, weight))
        read = editor.op("GatherElements", flat, editor.op("Expand", place, every), axis=2)
        term = editor.op("Mul", read, weight)
        best = editor.op("Max", best, term) if best else term
    samples = editor.reshape(best, [count, channels, bins[0], grid, wide])
    lines = editor.reduce("ReduceMax", samples, 3)
    largest = editor.reduce("ReduceMax", editor.reshape(lines, [count, channels, *bins, grid]), 4)
    return editor.reshape(largest, [count, channels, *bins])


def _neighbours(
    editor: Editor, bounds: str, axis: int, sizes: tuple[int, int, int], *, shifted: bool
) -> list[tuple[str, str]]:
    """Place and weight of the pixel before and of the one behind each sample: (regions, bins * grid).

    Args:
        axis: 0 for x, 1 for y, as the regions have them.
        sizes: bins, samples of a bin, pixels.
    """
    import numpy as np

    (bins, grid, size), dtype = sizes, np.dtype(np.float32)
    one, zero, last = (editor.scalar(n, dtype) for n in (1, 0, size - 1))
    start, end = (
        editor.op("Slice", bounds, *(editor.const(np.asarray([n], np.int64)) for n in (i, i + 1, 1)))
        for i in (axis, axis + 2)
    )
    length = editor.op("Sub", end, start)
    if not shifted:
        length = editor.op("Max", length, one)
    step = editor.op("Div", length, editor.scalar(bins, dtype))
    along = (np.arange(bins)[:, None] + (np.arange(grid) + 0.5) / grid).reshape(1, -1).astype(dtype)
    place = editor.op("Add", start, editor.op("Mul", step, editor.const(along)))
    inside = editor.op(
        "And",
        editor.op("GreaterOrEqual", place, editor.scalar(-1, dtype)),
        editor.op("LessOrEqual", place, editor.scalar(size, dtype)),
    )
    place = editor.op("Clip", editor.op("Where", inside, place, zero), zero, last)  # no place is NaN
    before = editor.op("Floor", place)
    share = editor.op("Sub", place, before)
    found = []
    for at, weight in (
        (before, editor.op("Sub", one, share)),
        (editor.op("Min", editor.op("Add", before, one), last), share),
    ):
        index = editor.cast(at, np.dtype(np.int64))
        found.append((index, editor.op("Where", inside, weight, zero)))
    return found
