"""GridSample as weighted sums of pixels, and AffineGrid as sums of what is known of each row and column.

The importer's own computes positions and weights anew for each channel, and gathers each channel's elements
lane by lane. Here they are computed once, and neighbours are read as pixels, whose channels lie side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes

if TYPE_CHECKING:
    import numpy as np
    import onnx

__all__ = ["affine_grid", "grid_sample"]

#: Channels of an image from which on pixels are read as a whole.
LEAST_PIXEL = 4

#: Where the neighbours of a position lie, from the pixel at or before it.
OFFSETS = {"nearest": [0], "linear": [0, 1], "cubic": [-1, 0, 1, 2]}

#: The parameter of cubic convolution (R. Keys, 1981).
CUBIC = -0.75


@dataclass(frozen=True)
class _Axis:
    """One spatial axis of the images, and what is read along it.

    Attributes:
        size: pixels along the axis.
        mode: "nearest", "linear" or "cubic".
        padding: "zeros", "border" or "reflection".
        corners: whether -1 and 1 are the centres of the outer pixels, not their edges.
        dtype: of positions and weights.
    """

    editor: Editor
    size: int
    mode: str
    padding: str
    corners: bool
    dtype: np.dtype[Any]

    def number(self, value: float) -> str:
        return self.editor.scalar(value, self.dtype)

    def neighbours(self, grid: str) -> tuple[str, str]:
        """Places and weights of the pixels that positions are sums of: (neighbours, positions) each; "" for
        weights that are all 1. What lies outside weighs nothing where the padding is zeros.

        With cubic convolution positions stay outside, and their neighbours are moved, as ONNX Runtime and
        PyTorch do it.

        Args:
            grid: coordinates of the positions, of shape (1, positions).
        """
        import numpy as np

        editor, x, nearest = self.editor, self._placed(grid), self.mode == "nearest"
        x = editor.op("Round", x) if nearest else x
        x = x if self.padding == "zeros" or self.mode == "cubic" else self._inside(x)
        low = x if nearest else editor.op("Floor", x)
        offsets = np.asarray(OFFSETS[self.mode], self.dtype).reshape(-1, 1)
        at, weights = low, ""
        if not nearest:
            at = editor.op("Add", low, editor.const(offsets))
            weights = self._weights(editor.op("Sub", x, low), offsets)
        if self.padding == "zeros":
            seen = editor.op(
                "And",
                editor.op("GreaterOrEqual", at, self.number(0)),
                editor.op("LessOrEqual", at, self.number(self.size - 1)),
            )
            weights = editor.op("Where", seen, weights or self.number(1), self.number(0))
            at = editor.op("Where", seen, at, self.number(0))
        else:
            at = at if nearest else self._inside(at)
            known = editor.op("GreaterOrEqual", at, self.number(0))  # which NaN is not
            at = editor.op("Min", editor.op("Where", known, at, self.number(0)), self.number(self.size - 1))
        return editor.cast(at, np.dtype(np.int32)), weights

    def _placed(self, grid: str) -> str:
        """Coordinates in pixels, the centre of the first one being 0."""
        editor, size = self.editor, self.size
        above = editor.op("Add", grid, self.number(1))
        if self.corners:
            return editor.op("Mul", above, self.number((size - 1) / 2))
        wide = editor.op("Mul", above, self.number(size))
        return editor.op("Mul", editor.op("Sub", wide, self.number(1)), self.number(0.5))

    def _inside(self, x: str) -> str:
        """Positions outside of the image moved to its border, or reflected there."""
        editor = self.editor
        if self.padding == "border":
            return editor.op("Clip", x, self.number(0), self.number(self.size - 1))
        least, length = (0.0, self.size - 1) if self.corners else (-0.5, self.size)
        if length == 0:  # of one pixel, between whose centres nothing lies
            return editor.op("Clip", x, self.number(0), self.number(0))
        behind = editor.op("Abs", editor.op("Sub", x, self.number(least)))
        turns = editor.op("Floor", editor.op("Div", behind, self.number(length)))
        rest = editor.op("Sub", behind, editor.op("Mul", turns, self.number(length)))
        half = editor.op("Mul", turns, self.number(0.5))
        even = editor.op("Equal", editor.op("Floor", half), half)
        back = editor.op("Sub", self.number(length), rest)
        return editor.op("Add", editor.op("Where", even, rest, back), self.number(least))

    def _weights(self, share: str, offsets: np.ndarray[Any, Any]) -> str:
        """The weights of the neighbours, by how far a position lies behind the pixel at or before it."""
        editor = self.editor
        distance = editor.op("Abs", editor.op("Sub", share, editor.const(offsets)))
        if self.mode == "linear":
            return editor.op("Sub", self.number(1), distance)
        near = self._polynomial(distance, (CUBIC + 2, -(CUBIC + 3), 0.0, 1.0))
        far = self._polynomial(distance, (CUBIC, -5 * CUBIC, 8 * CUBIC, -4 * CUBIC))
        return editor.op("Where", editor.op("LessOrEqual", distance, self.number(1)), near, far)

    def _polynomial(self, x: str, factors: Sequence[float]) -> str:
        editor, total = self.editor, self.number(factors[0])
        for factor in factors[1:]:
            total = editor.op("Mul", total, x)
            total = editor.op("Add", total, self.number(factor)) if factor else total
        return total


def grid_sample(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """GridSample of images or volumes of some channels; those of few are left to the importer."""
    import numpy as np

    x, grid = node.input
    shape, points, dtype = editor.shape(x), editor.shape(grid), editor.dtype(x)
    if shape is None or points is None or dtype.kind != "f" or shape[1] < LEAST_PIXEL:
        return None
    values, (images, channels, *sizes) = attributes(node), shape
    mode = values.get("mode", "linear")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    if mode == "cubic" and len(sizes) != 2:
        return None
    form = mode, values.get("padding_mode", "zeros"), bool(values.get("align_corners", 0)), dtype
    grid = editor.cast(grid, dtype) if editor.dtype(grid) != dtype else grid
    count, taps = prod(points[:-1]), len(OFFSETS[mode])
    place, weight = "", ""
    for axis, size in enumerate(sizes):
        own = _sliced(editor, grid, len(sizes) - 1 - axis, -1)
        at, share = _Axis(editor, size, *form).neighbours(editor.reshape(own, [1, count]))
        spread = [taps if i == axis else 1 for i in range(len(sizes))]
        at = editor.reshape(at, [*spread, count])
        share = editor.reshape(share, [*spread, count]) if share else ""
        if place:
            at = editor.op("Add", editor.op("Mul", place, editor.scalar(size, np.dtype(np.int32))), at)
            share = editor.op("Mul", weight, share) if weight else share
        place, weight = at, share
    if images > 1:
        first = np.repeat(np.arange(images, dtype=np.int32) * prod(sizes), count // images)
        place = editor.op("Add", place, editor.const(first))
    flat = editor.reshape(x, [images, channels, prod(sizes)])
    pixels = editor.op("Transpose", flat, perm=[0, 2, 1])
    pixels = editor.reshape(pixels, [images * prod(sizes), channels])
    if mode == "nearest":
        sampled = _nearest(editor, pixels, place, weight, dtype)
    else:
        sampled = _sum(editor, pixels, place, weight, (taps ** len(sizes), count))
    sampled = editor.reshape(sampled, [images, count // images, channels])
    return [
        editor.reshape(editor.op("Transpose", sampled, perm=[0, 2, 1]), [images, channels, *points[1:-1]])
    ]


def _nearest(editor: Editor, pixels: str, place: str, weight: str, dtype: np.dtype[Any]) -> str:
    """The pixels at places: (positions, channels); where the weight is 0 that is 0, whatever the pixel is.

    Args:
        weight: "" where all are 1.
    """
    read = editor.op("Gather", pixels, editor.reshape(place, [-1]), axis=0)
    if not weight:
        return read
    seen = editor.op("Greater", editor.reshape(weight, [-1, 1]), editor.scalar(0, dtype))
    return editor.op("Where", seen, read, editor.scalar(0, dtype))


def _sum(editor: Editor, pixels: str, place: str, weight: str, form: tuple[int, int]) -> str:
    """The sums of weighted pixels: (positions, channels).

    Args:
        form: neighbours of a position, and positions.
    """
    (taps, count), total = form, ""
    place, weight = editor.reshape(place, [taps, count]), editor.reshape(weight, [taps, count, 1])
    for tap in range(taps):
        at = editor.reshape(_sliced(editor, place, tap, 0), [count])
        own = editor.reshape(_sliced(editor, weight, tap, 0), [count, 1])
        term = editor.op("Mul", editor.op("Gather", pixels, at, axis=0), own)
        total = editor.op("Add", total, term) if total else term
    return total


def _sliced(editor: Editor, x: str, number: int, axis: int) -> str:
    """An element of an axis, which stays."""
    import numpy as np

    bounds = (np.asarray([n], np.int64) for n in (number, number + 1, axis))
    return editor.op("Slice", x, *(editor.const(n) for n in bounds))


def affine_grid(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """AffineGrid of images: what the column of a pixel adds to that which its row and the shift add."""
    import numpy as np

    theta, size = node.input[0], editor.constant(node.input[1])
    if size is None or len(size) != 4:
        return None
    (images, _, height, width), dtype = (int(n) for n in size), editor.dtype(theta)
    corners = bool(attributes(node).get("align_corners", 0))

    def along(extent: int) -> np.ndarray[Any, Any]:
        """The coordinates of the pixels of an axis."""
        steps = np.arange(extent)
        if corners:
            return np.asarray(-1 + 2 * steps / max(1, extent - 1), dtype)
        return np.asarray((2 * steps + 1) / extent - 1, dtype)

    columns = editor.op("Transpose", theta, perm=[0, 2, 1])  # images x (x, y, 1) x two results
    x, y, shift = (_sliced(editor, columns, i, 1) for i in range(3))
    across = editor.op("Mul", editor.const(along(width).reshape(1, width, 1)), x)
    down = editor.op("Mul", editor.const(along(height).reshape(1, height, 1)), y)
    down = editor.op("Add", down, shift)
    rows = editor.op("Tile", down, editor.const(np.asarray([1, 1, width], np.int64)))
    total = editor.op("Add", rows, editor.reshape(across, [images, 1, 2 * width]))
    return [editor.reshape(total, [images, height, width, 2])]
