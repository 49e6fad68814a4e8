"""Draws random inputs that make sense to a model: indices in range, numbers on both sides of what they are
compared with, masks of 0 and 1, no zero divisors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.binding import ModelInput, model_inputs
from edgepack.compiler.frontend.onnx.input_uses import InputUses, IntegerRange, IntegerUse
from edgepack.compiler.frontend.onnx.storage_types import as_bytes, storage_name

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

__all__ = ["drawn_inputs", "integer_range", "random_inputs"]

#: Least and greatest value of integers that index nothing, where 8-bit ones take all values that they can.
FREE_RANGE = (-8, 8)

#: Which part of integers are numbers at which something changes, where they would seldom be drawn: from more
#: than so many.
_SPECIAL, _FEW = 0.25, 16

#: What they are drawn from where the model cannot run on these: they count or index something after all.
SMALLER_RANGES = ((0, 1), (0, 0))


def drawn_inputs(
    model: onnx.ModelProto, seed: int, given: Mapping[str, NDArray[Any]], magnitude: float = 1.0
) -> Iterator[dict[str, NDArray[Any]]]:
    """The inputs to try one after the other until the model runs on them: :func:`random_inputs`, then with
    smaller integers. ``given`` ones stay as they are; floats are ``magnitude`` times as large as usual."""
    import numpy as np

    before: dict[str, NDArray[Any]] = {}
    for free in (FREE_RANGE, *SMALLER_RANGES):
        arrays = {**random_inputs(model, seed, free, magnitude), **given}
        if not before or any(not np.array_equal(arrays[name], before[name]) for name in integers(arrays)):
            yield arrays
        before = arrays


def integers(arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    """The names of those whose elements are integers."""
    return [name for name, array in arrays.items() if array.dtype.kind in "iu"]


def random_inputs(
    model: onnx.ModelProto, seed: int, free: tuple[int, int] = FREE_RANGE, magnitude: float = 1.0
) -> dict[str, NDArray[Any]]:
    """One array per input, by name: floats normally distributed, the rest by :func:`integer_range`.

    Args:
        model: all input shapes static.
        seed: the same seed and model give the same arrays on any machine.
        free: least and greatest value of integers that index nothing.
        magnitude: standard deviation of floats.
    """
    import numpy as np

    uses = InputUses(model)
    elements = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    arrays = {}
    for index, item in enumerate(model_inputs(model)):
        rng = np.random.default_rng([seed, index])
        shape = tuple(dim for dim in item.shape or () if isinstance(dim, int))
        element = elements.get(item.name, 0)
        arrays[item.name] = (
            _draw_stored(rng, shape, element)
            if storage_name(element)
            else _draw(rng, item, shape, uses, free, magnitude)
        )
    return arrays


def integer_range(model: onnx.ModelProto, name: str) -> tuple[int, int] | None:
    """Least and greatest value that the input ``name`` is drawn from for what it is used for; None if that
    says nothing."""
    return _drawn_from(InputUses(model).use(name), FREE_RANGE)


def _draw_stored(rng: np.random.Generator, shape: tuple[int, ...], element: int) -> NDArray[Any]:
    """Numbers around 0 as a bundle holds an element type of few bits."""
    import numpy as np
    import onnx

    dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
    return as_bytes(np.asarray(rng.standard_normal(shape), np.float32).astype(dtype))


def _draw(
    rng: np.random.Generator,
    item: ModelInput,
    shape: tuple[int, ...],
    uses: InputUses,
    free: tuple[int, int],
    magnitude: float,
) -> NDArray[Any]:
    import ml_dtypes
    import numpy as np

    if item.dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape), bool)
    use = uses.use(item.name)
    if "float" in item.dtype:
        dtype = ml_dtypes.bfloat16 if item.dtype == "bfloat16" else np.dtype(item.dtype)
        if use.bound is not None:  # a cast makes indices of them
            return np.asarray(rng.integers(*_whole(use.bound, (0, 1)), shape, endpoint=True)).astype(dtype)
        return np.asarray(magnitude * rng.standard_normal(shape)).astype(dtype)
    return _draw_integers(rng, np.dtype(item.dtype), shape, use, free)


def _draw_integers(
    rng: np.random.Generator,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    use: IntegerUse,
    free: tuple[int, int],
) -> NDArray[Any]:
    import numpy as np

    limits = np.iinfo(dtype)
    first = free == FREE_RANGE
    found = _drawn_from(use, (limits.min, limits.max)) if first or use.bound is not None else None
    if first and use.bound is None and use.chosen is not None:
        found = (use.chosen, use.chosen)
    elif use.bound is None and limits.bits > 8 and use.mask:
        mask = np.asarray(rng.integers(0, 2, shape), dtype)
        if shape:
            mask[..., 0] = 1  # a row without any 1 has no defined softmax
        return mask
    elif use.bound is None and limits.bits == 8 and first:
        found = (limits.min, limits.max)
    low, high = found or free
    low, high = max(low, limits.min), min(high, limits.max)
    if use.divisor:
        low, high = max(low, 1), max(high, 1)
    drawn = np.asarray(rng.integers(low, high, shape, endpoint=True), dtype)
    special = [number for number in use.special if low <= number <= high]
    if not special or not first or high - low <= _FEW:
        return drawn
    chosen = np.asarray(rng.choice(special, shape), dtype)
    return np.where(rng.random(shape) < _SPECIAL, chosen, drawn)


def _drawn_from(use: IntegerUse, limits: tuple[int, int]) -> tuple[int, int] | None:
    """Least and greatest number that integers are drawn from for what they are used for."""
    if use.bound is not None:
        return _whole(use.bound, use.usual or FREE_RANGE)
    return None if use.usual is None else _whole(use.usual, limits)


def _whole(wanted: IntegerRange, otherwise: IntegerRange) -> tuple[int, int]:
    """A range with the ends of another one in the place of infinite ones."""
    low = wanted[0] if math.isfinite(wanted[0]) else min(otherwise[0], wanted[1])
    high = wanted[1] if math.isfinite(wanted[1]) else max(otherwise[1], low)
    return int(low), int(max(low, high))
