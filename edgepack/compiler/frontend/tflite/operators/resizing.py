"""Images in other sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.fixed_point import DOMAIN, ROUNDING_SHIFT
from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.model import Operator
from edgepack.compiler.frontend.tflite.operators.contract import (
    Converter,
    UnsupportedFormError,
    constant,
    moved,
    option,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CONVERTERS"]

#: Bits behind the point of positions between pixels.
_BITS = 10

#: As many that products with bytes are exact in float32, along both sides.
_EXACT_BITS = 7


def _sizes(emitter: Emitter, operator: Operator) -> tuple[str, list[int]]:
    """The image, and rows and columns of the result."""
    x = emitter.value(operator.inputs[0])
    sizes = [int(n) for n in constant(emitter, operator, 1).reshape(-1)]
    if len(emitter.shape(x)) != 4 or len(sizes) != 2 or min(sizes) < 1:
        raise UnsupportedFormError(f"an image of {list(emitter.shape(x))} as {sizes}")
    return x, sizes


def _resized(emitter: Emitter, x: str, sizes: list[int], **attributes: Any) -> str:
    """By ONNX's operator, along rows and columns of (N, H, W, C)."""
    import numpy as np

    first = emitter.channels_first(x)
    shape = [*emitter.shape(first)[:2], *sizes]
    whole = emitter.const(np.asarray(shape, np.int64))
    return emitter.channels_last(emitter.op("Resize", first, "", "", whole, shape=shape, **attributes))


def _bilinear(emitter: Emitter, operator: Operator) -> None:
    x, sizes = _sizes(emitter, operator)
    tensor = emitter.tensors[operator.inputs[0]]
    aligned, half = (bool(option(operator, name)) for name in ("alignCorners", "halfPixelCenters"))
    if emitter.dtype(x).kind == "f":
        mode = "align_corners" if aligned else "half_pixel" if half else "asymmetric"
        made = _resized(emitter, x, sizes, mode="linear", coordinate_transformation_mode=mode)
        emitter.result(operator.outputs[0], made)
        return
    if tensor.dtype not in {"int8", "uint8"}:
        raise UnsupportedFormError(f"an image of {tensor.dtype}")
    import numpy as np

    found = _of_int8 if tensor.dtype == "int8" else _of_uint8
    wide = emitter.cast(x, np.int32)
    for axis, size in zip((1, 2), sizes, strict=True):
        wide = _between(emitter, wide, axis, found(emitter.shape(x)[axis], size, aligned=aligned, half=half))
    exponent = emitter.scalar(2 * (_BITS if tensor.dtype == "int8" else _EXACT_BITS), wide)
    made = emitter.op(ROUNDING_SHIFT, wide, exponent, domain=DOMAIN)
    moved(emitter, operator, emitter.cast(made, tensor.dtype))


@dataclass(frozen=True)
class _Neighbours:
    """Of each pixel of the result along a dimension, int64.

    Attributes:
        low, high: the two pixels of the image.
        part: the weight of the second one, of ``whole``.
    """

    low: NDArray[Any]
    high: NDArray[Any]
    part: NDArray[Any]
    whole: int


def _of_int8(extent: int, size: int, *, aligned: bool, half: bool) -> _Neighbours:
    """``ComputeInterpolationValuesInteger``."""
    import numpy as np

    one = 1 << _BITS
    if aligned and size > 1:
        scale = (one * (extent - 1) + (size - 1) // 2) // (size - 1)
    else:
        scale = (one * extent + size // 2) // size
    place = np.arange(size, dtype=np.int64) * scale + (scale // 2 - one // 2 if half else 0)
    low = np.maximum(np.trunc(place / one).astype(np.int64), 0)
    high = np.minimum(np.trunc((place + one - 1) / one).astype(np.int64), extent - 1)
    return _Neighbours(low, high, place - one * low, one)


def _of_uint8(extent: int, size: int, *, aligned: bool, half: bool) -> _Neighbours:
    """``ComputeInterpolationValues``, in float32: integers where no product is rounded.

    Raises:
        UnsupportedFormError: one is.
    """
    import numpy as np

    if aligned and size > 1:
        scale = np.float32(extent - 1) / np.float32(size - 1)
    else:
        scale = np.float32(extent) / np.float32(size)
    steps, near = np.arange(size, dtype=np.float32), np.float32(0.5)
    place = (steps + near) * scale - near if half else steps * scale
    low = np.maximum(np.floor(place).astype(np.int64), 0)
    high = np.minimum(np.ceil(place).astype(np.int64), extent - 1)
    one = 1 << _EXACT_BITS
    part = (place.astype(np.float64) - low) * one
    if (part != np.rint(part)).any():
        raise UnsupportedFormError(f"{extent} pixels of uint8 as {size}, between which floats are rounded")
    return _Neighbours(low, high, part.astype(np.int64), one)


def _between(emitter: Emitter, x: str, axis: int, near: _Neighbours) -> str:
    """Neighbours along a dimension, weighted by integers."""
    import numpy as np

    along = [-1 if n == axis else 1 for n in range(len(emitter.shape(x)))]
    shape = [len(near.low) if n == axis else whole for n, whole in enumerate(emitter.shape(x))]
    terms = []
    for places, weights in ((near.low, near.whole - near.part), (near.high, near.part)):
        found = emitter.op("Gather", x, emitter.const(places), shape=shape, axis=axis)
        factors = emitter.const(weights.astype(np.int32).reshape(along))
        terms.append(emitter.op("Mul", found, factors))
    return emitter.op("Add", *terms)


def _nearest(emitter: Emitter, operator: Operator) -> None:
    import numpy as np

    x, sizes = _sizes(emitter, operator)
    aligned, half = (bool(option(operator, name)) for name in ("alignCorners", "halfPixelCenters"))
    for axis, size in zip((1, 2), sizes, strict=True):
        places = _nearest_places(emitter.shape(x)[axis], size, aligned=aligned, half=half)
        shape = [size if n == axis else whole for n, whole in enumerate(emitter.shape(x))]
        if not np.array_equal(places, np.arange(emitter.shape(x)[axis])):
            x = emitter.op("Gather", x, emitter.const(places), shape=shape, axis=axis)
    moved(emitter, operator, x)


def _nearest_places(extent: int, size: int, *, aligned: bool, half: bool) -> NDArray[Any]:
    """``GetNearestNeighbor``, in float32."""
    import numpy as np

    if aligned and size > 1:
        scale = np.float32(extent - 1) / np.float32(size - 1)
    else:
        scale = np.float32(extent) / np.float32(size)
    exact = (np.arange(size, dtype=np.float32) + np.float32(0.5 if half else 0)) * scale
    near = np.floor(exact + np.float32(0.5)) if aligned else np.floor(exact)
    return np.asarray(np.clip(near.astype(np.int64), 0, extent - 1), np.int64)


CONVERTERS: dict[str, Converter] = {
    "RESIZE_BILINEAR": _bilinear,
    "RESIZE_NEAREST_NEIGHBOR": _nearest,
}
