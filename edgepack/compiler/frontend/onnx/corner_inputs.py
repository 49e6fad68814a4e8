"""Draws corner data: recorded inputs with special values, ends of ranges and equal numbers in some places.

Most of an input stays as it was recorded, so that a model runs on it and its outputs are not all one number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.input_uses import InputUses, IntegerUse
from edgepack.compiler.frontend.onnx.shapes import all_nodes

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

__all__ = ["CORNERS", "corner_inputs"]

#: What is tried, richest first: floats that are put among those of an input, by the run's name. Exponentials
#: overflow at 100 already.
CORNERS: Mapping[str, Sequence[Sequence[float]]] = {
    "special": ((math.nan, math.inf, -math.inf, 0.0, -0.0), (math.inf, -math.inf, 0.0, -0.0)),
    "large": ((1e12, -1e12), (1e5, -1e5)),
    "ends": ((100.0, -100.0, 0.0, -0.0, 1e-30, -1e-30), (8.0, -8.0, 0.0, -0.0, 1e-6)),
}

#: Denormal numbers, which a run has beside the ends where they are none of zeros.
DENORMAL = (1e-40, -1e-40)

#: Which part of an input is a corner, at most; and of that, which part has other numbers.
_CORNER, _CHANGED = 0.25, 0.5

#: Operators by which an integer of any size can ask for any number of trips or of elements, or that end ONNX
#: Runtime at the least integer.
_COUNTING = {
    *("ConstantOfShape", "Div", "Expand", "Loop", "Mod", "OneHot", "Pad", "Range", "Resize", "Scan", "Slice"),
    *("Tile", "TopK"),
}


def corner_inputs(
    model: onnx.ModelProto,
    arrays: Mapping[str, NDArray[Any]],
    kept: Sequence[str],
    name: str,
    *,
    denormal: bool = False,
) -> Iterator[dict[str, NDArray[Any]]]:
    """The inputs to try for the run ``name`` of :data:`CORNERS`; none where nothing would be changed.

    Args:
        model: all input shapes static.
        arrays: the recorded inputs.
        kept: names of those that stay as they are.
        denormal: whether denormal numbers are others than 0.
    """
    import numpy as np

    uses = InputUses(model)
    counting = any(
        node.op_type in _COUNTING or node.domain not in ("", "ai.onnx") for node in all_nodes(model.graph)
    )
    for plain in CORNERS[name]:
        floats = (*plain, *DENORMAL) if denormal and name == "ends" else plain
        changed = dict(arrays)
        for number, (key, array) in enumerate(arrays.items()):
            rng = np.random.default_rng([len(floats), number])
            if key in kept or array.size < 2:
                continue
            if array.dtype.kind == "f" and uses.use(key).bound is None:
                largest = float(np.finfo(array.dtype).max)
                values = [max(min(v, largest), -largest) if math.isfinite(v) else v for v in floats]
                changed[key] = _with(array, values, rng)
            elif array.dtype.kind in "iu" and name == "ends":
                integers = _integers(uses.use(key), array.dtype, array, counting=counting)
                changed[key] = _with(array, integers, rng)
        if any(changed[key] is not array for key, array in arrays.items()):
            yield changed


def _integers(
    use: IntegerUse, dtype: np.dtype[Any], array: NDArray[Any], *, counting: bool
) -> list[float | int]:
    """Integers at the ends of what an input may be."""
    import numpy as np

    limits = np.iinfo(dtype)
    if use.ends is not None:
        ends = [int(end) for end in use.ends if math.isfinite(end)]
    elif use.mask or use.bound is not None:
        return []
    elif counting or use.divisor:
        ends = [int(array.min()), int(array.max())]
    else:
        ends = [limits.min, limits.max, limits.min + 1, limits.max - 1, 0]
    return [number for number in (*ends, *use.special) if limits.min <= number <= limits.max]


def _with(array: NDArray[Any], values: Sequence[float], rng: np.random.Generator) -> NDArray[Any]:
    """The array with other values in some places of its end, and, where there is room, equal ones behind each
    other; itself if there are no others."""
    import numpy as np

    if not len(values):
        return array
    flat = array.reshape(-1).copy()
    corner = max(min(len(flat) // 2, 2 * len(values)), int(_CORNER * len(flat)))
    places = rng.permutation(np.arange(len(flat) - corner, len(flat)))[: max(int(_CHANGED * corner), 1)]
    flat[places] = np.asarray([values[i % len(values)] for i in range(len(places))]).astype(array.dtype)
    if corner >= 16:  # scores that are equal
        flat[-corner : -corner + 4] = flat[-corner]
    return flat.reshape(array.shape)
