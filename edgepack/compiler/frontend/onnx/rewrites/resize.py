"""Resize as gathers and weighted sums, one axis after the other.

The importer's own resize is used for the nearest element where it agrees with ONNX: images in NCHW, only
height and width changed, the output exactly scale times the input, and no element that lies between two of
the input. It takes the scale from the sizes, knows none of the old forms (Upsample, Resize of opset 10),
resizes the wrong axes of any other layout, and reads all taps of both axes for each element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

__all__ = ["resize"]


@dataclass(frozen=True)
class _Numbers:
    """What elements are while they are resized: those of integers float32.

    ONNX Runtime truncates sums of a linear resize, and rounds those of an antialiased one after each axis,
    as Pillow does; it resizes integers in no other way, and the standard's reference rounds.
    """

    editor: Editor
    dtype: np.dtype[Any]
    sampling: Sampling

    @property
    def whole(self) -> bool:
        """Whether they are integers that are computed with."""
        return self.dtype.kind in "iu" and self.sampling.mode != "nearest"

    @property
    def truncated(self) -> bool:
        return self.whole and self.sampling.mode == "linear" and not self.sampling.antialias

    @property
    def computed(self) -> np.dtype[Any]:
        """The type that sums and weights have."""
        import numpy as np

        return np.dtype(np.float32) if self.whole else self.dtype

    def widened(self, x: str) -> str:
        """The input as it is computed with."""
        return self.editor.cast(x, self.computed) if self.whole else x

    def between_axes(self, x: str) -> str:
        """After one axis."""
        return self._rounded(x) if self.whole and self.sampling.antialias else x

    def _rounded(self, x: str) -> str:
        import numpy as np

        editor, wide, limits = self.editor, self.computed, np.iinfo(self.dtype)
        rounded = editor.op("Floor", editor.op("Add", x, editor.scalar(0.5, wide)))
        # float32 has no largest int32: the next number below it
        most = np.nextafter(np.float32(limits.max), np.float32(0)) if limits.bits > 16 else limits.max
        return editor.op("Clip", rounded, editor.scalar(limits.min, wide), editor.scalar(float(most), wide))

    def narrowed(self, x: str) -> str:
        """Computed values in the output's type, rounded where that is an integer."""
        if not self.whole:
            return x
        rounded = x if self.truncated or self.sampling.antialias else self._rounded(x)
        return self.editor.cast(rounded, self.dtype)


@dataclass(frozen=True)
class Sampling:
    """How output positions map to input positions and what is read there; the names are those of ONNX."""

    mode: str
    coordinates: str
    rounding: str  # of "nearest"; "simple" is that of opset 10: up for smaller outputs, else down
    cubic_a: float
    exclude_outside: bool
    antialias: bool
    extrapolation: float  # outside of a region of "tf_crop_and_resize"


def resize(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Rewrites Resize of any opset and Upsample, where the importer would be wrong."""
    import numpy as np

    x, y = node.input[0], node.output[0]
    source, target = editor.shape(x), editor.shape(y)
    values = attributes(node)
    if source is None or target is None:
        return None
    if values.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return _crop_and_resize(editor, node, source, target, values)
    scales = _scales(editor, node, source, target, values)
    sampling = _sampling(editor, node, values)
    changed = [axis for axis in range(len(source)) if source[axis] != target[axis] or scales[axis] != 1]
    exact = all(np.isclose(source[a] * scales[a], target[a], rtol=1e-6) for a in changed)
    plain = len(source) == 4 and all(axis >= 2 for axis in changed) and "axes" not in values
    policy = values.get("keep_aspect_ratio_policy", "stretch")
    known = sampling.rounding != "simple" and sampling.coordinates != "half_pixel_symmetric"
    positions = {a: _positions(sampling.coordinates, source[a], target[a], scales[a]) for a in changed}
    if changed and sampling.mode == "nearest":
        tables = {a: _nearest(sampling, positions[a], source[a], scales[a]) for a in changed}
        if all(_step(table) for table in tables.values()):
            return [_every(editor, x, tables)]
    numbers = _Numbers(editor, editor.dtype(x), sampling)
    if (
        exact
        and plain
        and known
        and policy == "stretch"
        and (sampling.mode == "nearest" or numbers.truncated)
        and not any(_undecided(sampling, source[a], target[a], scales[a]) for a in changed)
    ):
        return _without_empty_operands(editor, node, values)
    x = numbers.widened(x)
    for axis in sorted(changed, key=lambda axis: _turn(axis, source, target)):
        taps = _taps(sampling, positions[axis], source[axis], scales[axis])
        x = numbers.between_axes(_apply(editor, x, axis, len(source), taps=taps, dtype=numbers.computed))
    return [numbers.narrowed(x)]


def _without_empty_operands(
    editor: Editor, node: onnx.NodeProto, values: Mapping[str, Any]
) -> Sequence[str] | None:
    """The node for the importer, to which an operand without elements is not one that is left out, as it was
    in opset 11; None where it has no such operand."""
    shapes = [editor.shape(name) if name else None for name in node.input[1:]]
    if (0,) not in shapes:
        return None
    given = ["" if shape == (0,) else str(name) for name, shape in zip(node.input[1:], shapes, strict=True)]
    return [editor.op("Resize", node.input[0], *given, **values)]


def _nearest(sampling: Sampling, x: NDArray[np.float32], source: int, scale: float) -> NDArray[np.int64]:
    """The element of the input that each of the output is."""
    import numpy as np

    return np.clip(_round(sampling.rounding, x, scale), 0, source - 1).astype(np.int64)


def _step(table: NDArray[np.int64]) -> int:
    """How far neighbours are apart, where all of them are equally far; otherwise 0."""
    steps = {int(n) for n in table[1:] - table[:-1]}
    return steps.pop() if len(steps) == 1 else 0


def _every(editor: Editor, x: str, tables: Mapping[int, NDArray[np.int64]]) -> str:
    """A slice: every so many elements along each axis."""
    import numpy as np

    bounds = [(int(t[0]), int(t[-1]) + 1, axis, _step(t)) for axis, t in tables.items()]
    operands = (editor.const(np.asarray(numbers, np.int64)) for numbers in zip(*bounds, strict=True))
    return editor.op("Slice", x, *operands)


def _turn(axis: int, source: Sequence[int], target: Sequence[int]) -> tuple[int, int]:
    """A sort key: what makes the tensor smaller comes first, what makes it larger last, the last axis, along
    which neighbours are gathered one by one, before the others that do the same."""
    return (target[axis] > source[axis]) - (target[axis] < source[axis]), -axis


def _undecided(sampling: Sampling, source: int, target: int, scale: float) -> bool:
    """Whether an element lies between two of the input, which the importer's multiplication by a reciprocal
    that is not exact moves to one side."""
    import numpy as np

    if sampling.mode != "nearest" or not sampling.rounding.startswith("round"):
        return False
    x = _positions(sampling.coordinates, source, target, scale).astype(np.float64)
    between = np.any(np.abs(x - np.floor(x) - 0.5) < 1e-4)
    return bool(between) and float(np.float32(source / target)) * target != source


def _crop_and_resize(
    editor: Editor,
    node: onnx.NodeProto,
    source: tuple[int, ...],
    target: tuple[int, ...],
    values: dict[str, Any],
) -> Sequence[str] | None:
    """Resizes a constant region of each axis; what lies outside of the input is a given number."""
    import numpy as np

    region = editor.constant(node.input[1])
    if region is None:
        return None
    x, dtype, sampling = str(node.input[0]), editor.dtype(node.input[0]), _sampling(editor, node, values)
    numbers = _Numbers(editor, dtype, sampling)
    x = numbers.widened(x)
    axes = [axis % len(source) for axis in values.get("axes", range(len(source)))]
    inside = np.ones(target, bool)
    for number, axis in enumerate(axes):
        begin, end = float(region[number]), float(region[number + len(axes)])
        if source[axis] == target[axis] and (begin, end) == (0, 1):
            continue
        last = source[axis] - 1
        shares = np.linspace(begin, end, target[axis]) if target[axis] > 1 else np.array([(begin + end) / 2])
        positions = (shares * last).astype(np.float32)
        taps = _taps(sampling, positions, source[axis], target[axis] / source[axis])
        x = numbers.between_axes(_apply(editor, x, axis, len(source), taps=taps, dtype=numbers.computed))
        kept = ((positions >= 0) & (positions <= last)).reshape([-1, *[1] * (len(source) - axis - 1)])
        inside &= kept
    x = numbers.narrowed(x)
    if not inside.all():
        x = editor.op("Where", editor.const(inside), x, editor.scalar(sampling.extrapolation, dtype))
    return [x]


def _scales(
    editor: Editor,
    node: onnx.NodeProto,
    source: tuple[int, ...],
    target: tuple[int, ...],
    values: dict[str, Any],
) -> list[float]:
    """Scale of every axis in float32, as ONNX Runtime computes with it."""
    import numpy as np

    rank = len(source)
    axes = [axis % rank for axis in values.get("axes", range(rank))]
    scales = [1.0] * rank
    old = node.op_type == "Upsample" or editor.opset < 11
    name = node.input[1] if old and len(node.input) > 1 else ([*node.input, "", ""][2] if not old else "")
    given = editor.constant(name) if name else np.asarray(values.get("scales", []), np.float32)
    if given is not None and given.size:
        for axis, scale in zip(axes, given.reshape(-1), strict=True):
            scales[axis] = float(np.float32(scale))
        return scales
    ratios = {axis: float(np.float32(target[axis]) / np.float32(source[axis])) for axis in axes}
    policy = values.get("keep_aspect_ratio_policy", "stretch")
    sizes = editor.constant(node.input[3]) if policy != "stretch" and len(node.input) > 3 else None
    if sizes is not None:
        wanted = [
            float(np.float32(size) / np.float32(source[a]))
            for a, size in zip(axes, sizes.reshape(-1), strict=True)
        ]
        common = min(wanted) if policy == "not_larger" else max(wanted)
        ratios = dict.fromkeys(axes, common)
    for axis, ratio in ratios.items():
        scales[axis] = ratio
    return scales


def _sampling(editor: Editor, node: onnx.NodeProto, values: dict[str, Any]) -> Sampling:
    old = node.op_type == "Upsample" or editor.opset < 11
    return Sampling(
        mode={"bilinear": "linear"}.get(values.get("mode", "nearest"), values.get("mode", "nearest")),
        coordinates="asymmetric" if old else values.get("coordinate_transformation_mode", "half_pixel"),
        rounding="simple" if old else values.get("nearest_mode", "round_prefer_floor"),
        cubic_a=values.get("cubic_coeff_a", -0.75),
        exclude_outside=bool(values.get("exclude_outside", 0)),
        antialias=bool(values.get("antialias", 0)),
        extrapolation=values.get("extrapolation_value", 0.0),
    )


def _positions(coordinates: str, source: int, target: int, scale: float) -> NDArray[np.float32]:
    """Where each output element lies on the input axis."""
    import numpy as np

    f = np.float32
    i = np.arange(target, dtype=f)
    if coordinates == "asymmetric":
        return (i / f(scale)).astype(f)
    if coordinates == "align_corners":
        return (i * f(source - 1) / f(target - 1) if target > 1 else np.zeros(1, f)).astype(f)
    if coordinates == "pytorch_half_pixel" and target == 1:
        return np.zeros(1, f)
    position = (i + f(0.5)) / f(scale) - f(0.5)
    if coordinates == "half_pixel_symmetric":
        adjustment = f(target) / (f(scale) * f(source))
        position = position + f(source) / f(2) * (f(1) - adjustment)
    return position.astype(f)


def _taps(
    sampling: Sampling, x: NDArray[np.float32], source: int, scale: float
) -> list[tuple[NDArray[np.int64], NDArray[np.float64] | None]]:
    """For each tap the index that every output element reads, and the weight (None is 1 everywhere).

    Args:
        x: where each output element lies on the input axis.
    """
    import numpy as np

    if sampling.mode == "nearest":
        return [(_nearest(sampling, x, source, scale), None)]
    if sampling.antialias and scale < 1:
        return _antialiased(sampling, x.astype(np.float64), source, scale)
    if sampling.mode == "linear":
        x = np.clip(x, 0, source - 1)
        low = np.floor(x).astype(np.int64)
        share = (x - low).astype(np.float64)
        return [(low, 1 - share), (np.minimum(low + 1, source - 1), share)]
    low = np.floor(x).astype(np.int64)
    offsets = np.arange(-1, 3)
    weights = _cubic(np.abs((x - low)[:, None].astype(np.float64) - offsets), sampling.cubic_a)
    return _clamped(low[:, None] + offsets, weights, source, sampling.exclude_outside)


def _antialiased(
    sampling: Sampling, x: NDArray[np.float64], source: int, scale: float
) -> list[tuple[NDArray[np.int64], NDArray[np.float64] | None]]:
    """The filter is stretched by 1 / scale, so that every input element counts (as Pillow does)."""
    import numpy as np

    support = (1.0 if sampling.mode == "linear" else 2.0) / scale
    centre = x + 0.5
    first = np.floor(centre - support + 0.5).astype(np.int64)
    indices = first[:, None] + np.arange(int(np.ceil(2 * support)) + 1)
    distance = np.abs((indices + 0.5 - centre[:, None]) * scale)
    weights = np.maximum(0, 1 - distance) if sampling.mode == "linear" else _cubic(distance, sampling.cubic_a)
    weights = weights / weights.sum(axis=1, keepdims=True)
    return _clamped(indices, weights, source, sampling.exclude_outside)


def _clamped(
    indices: NDArray[np.int64], weights: NDArray[np.float64], source: int, exclude: bool
) -> list[tuple[NDArray[np.int64], NDArray[np.float64] | None]]:
    import numpy as np

    if exclude:
        weights = np.where((indices >= 0) & (indices < source), weights, 0)
        weights = weights / weights.sum(axis=1, keepdims=True)
    inside = np.clip(indices, 0, source - 1)
    return [(inside[:, tap], weights[:, tap]) for tap in range(weights.shape[1]) if np.any(weights[:, tap])]


def _round(rounding: str, x: NDArray[np.float32], scale: float) -> NDArray[np.float32]:
    import numpy as np

    if rounding == "simple":
        rounding = "ceil" if scale < 1 else "floor"
    if rounding == "floor":
        return np.floor(x)
    if rounding == "ceil":
        return np.ceil(x)
    if rounding == "round_prefer_ceil":
        return np.asarray(np.floor(x + np.float32(0.5)), np.float32)
    return np.asarray(np.ceil(x - np.float32(0.5)), np.float32)


def _cubic(distance: NDArray[np.float64], a: float) -> NDArray[np.float64]:
    """Cubic convolution (R. Keys, 1981)."""
    import numpy as np

    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def _apply(
    editor: Editor,
    x: str,
    axis: int,
    rank: int,
    *,
    taps: list[tuple[NDArray[np.int64], NDArray[np.float64] | None]],
    dtype: np.dtype[Any],
) -> str:
    total = ""
    for indices, weights in taps:
        term = editor.op("Gather", x, editor.const(indices), axis=axis)
        if weights is not None:
            column = weights.astype(dtype).reshape([-1, *[1] * (rank - axis - 1)])
            term = editor.op("Mul", term, editor.const(column))
        total = editor.op("Add", total, term) if total else term
    return total
