"""Tensors of parts, and parts of tensors; tensors that are repeated, or known before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.model import Operator
from edgepack.compiler.frontend.tflite.operators.contract import (
    Converter,
    UnsupportedFormError,
    axis_of,
    constant,
    moved,
    option,
    same_quantisation,
)

__all__ = ["CONVERTERS"]


def _parts(emitter: Emitter, operator: Operator, x: str, axis: int, sizes: Sequence[int]) -> list[str]:
    """Slices along a dimension."""
    import numpy as np

    whole = emitter.shape(x)
    if sum(sizes) != whole[axis] or min(sizes, default=0) < 1 or len(sizes) != len(operator.outputs):
        raise UnsupportedFormError(f"parts of {list(sizes)} of {whole[axis]} elements")
    if len(sizes) == 1:
        return [x]
    shapes = [([*whole[:axis], size, *whole[axis + 1 :]], None) for size in sizes]
    return emitter.ops("Split", [x, emitter.const(np.asarray(sizes, np.int64))], shapes, axis=axis)


def _split(emitter: Emitter, operator: Operator) -> None:
    x = emitter.value(operator.inputs[1])
    axis = axis_of(int(constant(emitter, operator, 0).reshape(())), len(emitter.shape(x)))
    count = max(len(operator.outputs), 1)
    sizes = [emitter.shape(x)[axis] // count] * count
    for place, made in enumerate(_parts(emitter, operator, x, axis, sizes)):
        moved(emitter, operator, made, source=1, result=place)


def _split_v(emitter: Emitter, operator: Operator) -> None:
    """One of the sizes may be left open."""
    x = emitter.value(operator.inputs[0])
    axis = axis_of(int(constant(emitter, operator, 2).reshape(())), len(emitter.shape(x)))
    sizes = [int(n) for n in constant(emitter, operator, 1)]
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = emitter.shape(x)[axis] - sum(sizes) - 1
    for place, made in enumerate(_parts(emitter, operator, x, axis, sizes)):
        moved(emitter, operator, made, result=place)


def _unpack(emitter: Emitter, operator: Operator) -> None:
    x = emitter.value(operator.inputs[0])
    shape = emitter.shape(x)
    axis = axis_of(option(operator, "axis"), len(shape))
    parts = _parts(emitter, operator, x, axis, [1] * shape[axis])
    for place, made in enumerate(parts):
        moved(emitter, operator, emitter.reshape(made, [*shape[:axis], *shape[axis + 1 :]]), result=place)


def _pack(emitter: Emitter, operator: Operator) -> None:
    result = emitter.tensors[operator.outputs[0]]
    if any(not same_quantisation(emitter.tensors[index], result) for index in operator.inputs):
        raise UnsupportedFormError("parts of other scales than its result's")
    values = [emitter.value(index) for index in operator.inputs]
    shape = list(emitter.shape(values[0]))
    axis = axis_of(option(operator, "axis"), len(shape) + 1)
    wide = [emitter.reshape(value, [*shape[:axis], 1, *shape[axis:]]) for value in values]
    whole = [*shape[:axis], len(values), *shape[axis:]]
    emitter.result(operator.outputs[0], emitter.op("Concat", *wide, shape=whole, axis=axis))


def _tile(emitter: Emitter, operator: Operator) -> None:
    import numpy as np

    x, repeats = emitter.value(operator.inputs[0]), constant(emitter, operator, 1)
    shape = [n * int(times) for n, times in zip(emitter.shape(x), repeats, strict=True)]
    moved(emitter, operator, emitter.op("Tile", x, emitter.const(repeats.astype(np.int64)), shape=shape))


def _expanded(emitter: Emitter, x: str, shape: Sequence[int]) -> str:
    import numpy as np

    whole = np.broadcast_shapes(emitter.shape(x), tuple(shape))
    return emitter.op("Expand", x, emitter.const(np.asarray(whole, np.int64)), shape=whole)


def _broadcast_to(emitter: Emitter, operator: Operator) -> None:
    shape = [int(n) for n in constant(emitter, operator, 1)]
    moved(emitter, operator, _expanded(emitter, emitter.value(operator.inputs[0]), shape))


def _fill(emitter: Emitter, operator: Operator) -> None:
    shape = [int(n) for n in constant(emitter, operator, 0)]
    moved(emitter, operator, _expanded(emitter, emitter.value(operator.inputs[1]), shape), source=1)


def _zeros_like(emitter: Emitter, operator: Operator) -> None:
    import numpy as np

    x = emitter.value(operator.inputs[0])
    emitter.result(operator.outputs[0], emitter.const(np.zeros(emitter.shape(x), emitter.dtype(x))))


def _shape(emitter: Emitter, operator: Operator) -> None:
    import numpy as np

    shape = emitter.shape(emitter.value(operator.inputs[0]))
    emitter.result(operator.outputs[0], emitter.const(np.asarray(shape, np.int64)))


def _rank(emitter: Emitter, operator: Operator) -> None:
    import numpy as np

    rank = len(emitter.shape(emitter.value(operator.inputs[0])))
    emitter.result(operator.outputs[0], emitter.const(np.asarray(rank, np.int32)))


def _range(emitter: Emitter, operator: Operator) -> None:
    """Multiples of a step from a number on, below another one."""
    import numpy as np

    first, limit, step = (constant(emitter, operator, place).reshape(())[()] for place in (0, 1, 2))
    if not step or (limit - first) / step > 1 << 24:
        raise UnsupportedFormError(f"steps of {step} from {first} to {limit}")
    count = max(int(np.ceil(abs((float(limit) - float(first)) / float(step)))), 0)
    kind = np.dtype(emitter.tensors[operator.outputs[0]].dtype)
    made = np.full(count, first, kind)
    if count > 1:  # one after the other, as the kernel adds them up
        made[1:] = step
        made = np.add.accumulate(made, dtype=kind)
    emitter.result(operator.outputs[0], emitter.const(made))


def _densify(emitter: Emitter, operator: Operator) -> None:
    """Of a constant, which is dense since it was read."""
    moved(emitter, operator, emitter.value(operator.inputs[0]))


CONVERTERS: dict[str, Converter] = {
    "BROADCAST_TO": _broadcast_to,
    "DENSIFY": _densify,
    "FILL": _fill,
    "PACK": _pack,
    "RANGE": _range,
    "RANK": _rank,
    "SHAPE": _shape,
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "TILE": _tile,
    "UNPACK": _unpack,
    "ZEROS_LIKE": _zeros_like,
}
