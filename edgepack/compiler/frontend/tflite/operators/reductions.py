"""Means, sums, products, largest and least elements along dimensions, and running sums."""

from __future__ import annotations

import math

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.fixed_point import (
    bounded,
    centred,
    integer_range,
    multiplied,
    quantize_multiplier,
)
from edgepack.compiler.frontend.tflite.model import Operator
from edgepack.compiler.frontend.tflite.operators.contract import (
    Converter,
    UnsupportedFormError,
    axis_of,
    constant,
    is_quantised,
    moved,
    option,
)

__all__ = ["CONVERTERS"]


def _axes(emitter: Emitter, operator: Operator) -> list[int]:
    """The dimensions that are reduced."""
    rank = len(emitter.shape(emitter.value(operator.inputs[0])))
    return sorted({axis_of(int(axis), rank) for axis in constant(emitter, operator, 1).reshape(-1)})


def _reduced(emitter: Emitter, operator: Operator, kind: str, x: str) -> str:
    """One of ONNX's reductions of a value, of the operand's shape."""
    import numpy as np

    axes, keep = _axes(emitter, operator), bool(option(operator, "keepDims"))
    if not axes:
        return x
    shape = [1 if axis in axes else n for axis, n in enumerate(emitter.shape(x))]
    if not keep:
        shape = [n for axis, n in enumerate(shape) if axis not in axes]
    return emitter.op(kind, x, emitter.const(np.asarray(axes, np.int64)), shape=shape, keepdims=int(keep))


def _count(emitter: Emitter, operator: Operator) -> int:
    """How many elements become one."""
    shape = emitter.shape(emitter.value(operator.inputs[0]))
    return math.prod(shape[axis] for axis in _axes(emitter, operator))


def _mean(emitter: Emitter, operator: Operator) -> None:
    import numpy as np

    x = emitter.value(operator.inputs[0])
    if is_quantised(emitter.tensors[operator.inputs[0]]):
        emitter.result(operator.outputs[0], _quantised_sum(emitter, operator, mean=True))
    elif emitter.dtype(x).kind == "f":
        emitter.result(operator.outputs[0], _reduced(emitter, operator, "ReduceMean", x))
    else:  # sums of int64, divided towards 0
        total = _reduced(emitter, operator, "ReduceSum", emitter.cast(x, np.int64))
        made = emitter.op("Div", total, emitter.scalar(_count(emitter, operator), total))
        emitter.result(operator.outputs[0], made)


def _sum(emitter: Emitter, operator: Operator) -> None:
    tensor = emitter.tensors[operator.inputs[0]]
    if is_quantised(tensor):
        if tensor.dtype != "uint8":
            raise UnsupportedFormError(f"sums of {tensor.dtype}, which LiteRT's kernel takes for uint8")
        emitter.result(operator.outputs[0], _quantised_sum(emitter, operator, mean=False))
        return
    x = emitter.value(operator.inputs[0])
    emitter.result(operator.outputs[0], _reduced(emitter, operator, "ReduceSum", x))


def _quantised_sum(emitter: Emitter, operator: Operator, *, mean: bool) -> str:
    """``QuantizedMeanOrSum``: a mean's factor is divided by the count in integers, towards 0."""
    tensor, result = emitter.tensors[operator.inputs[0]], emitter.tensors[operator.outputs[0]]
    if tensor.quantisation is None or result.quantisation is None or result.dtype != tensor.dtype:
        raise UnsupportedFormError(f"an operand of {tensor.dtype} with a result of {result.dtype}")
    count = _count(emitter, operator)
    factor = float(tensor.quantisation.scale[0]) / float(result.quantisation.scale[0])
    multiplier, shift = quantize_multiplier(factor)
    if mean:
        by = min(count.bit_length() - 1, 32, 31 + shift)
        multiplier, shift = (multiplier << by) // count, shift - by
    low, high = integer_range(tensor.dtype)
    largest = count * (high - low)
    if largest >= 1 << 31:
        raise UnsupportedFormError(f"sums of {count} elements of {tensor.dtype}")
    total = _reduced(emitter, operator, "ReduceSum", centred(emitter, operator.inputs[0]))
    scaled = multiplied(emitter, total, multiplier, shift, largest)
    zero = int(result.quantisation.zero[0])
    moved_by = emitter.op("Add", scaled, emitter.scalar(zero, scaled)) if zero else scaled
    return bounded(emitter, moved_by, low, high, result.dtype)


def _plain(kind: str) -> Converter:
    """Of integers as they are: their scale is the result's."""

    def convert(emitter: Emitter, operator: Operator) -> None:
        moved(emitter, operator, _reduced(emitter, operator, kind, emitter.value(operator.inputs[0])))

    return convert


def _product(emitter: Emitter, operator: Operator) -> None:
    tensor = emitter.tensors[operator.inputs[0]]
    if is_quantised(tensor):
        raise UnsupportedFormError(f"products of {tensor.dtype}")
    x = emitter.value(operator.inputs[0])
    emitter.result(operator.outputs[0], _reduced(emitter, operator, "ReduceProd", x))


def _truth(kind: str) -> Converter:
    """Whether any or all are true, as the largest or least number."""

    def convert(emitter: Emitter, operator: Operator) -> None:
        import numpy as np

        x = emitter.cast(emitter.value(operator.inputs[0]), np.int32)
        made = _reduced(emitter, operator, kind, x)
        emitter.result(operator.outputs[0], emitter.cast(made, bool))

    return convert


def _running_sum(emitter: Emitter, operator: Operator) -> None:
    import numpy as np

    x = emitter.value(operator.inputs[0])
    axis = axis_of(int(constant(emitter, operator, 1).reshape(())), len(emitter.shape(x)))
    exclusive, reverse = (option(operator, name) for name in ("exclusive", "reverse"))
    where = emitter.const(np.asarray(axis, np.int64))
    made = emitter.op("CumSum", x, where, shape=emitter.shape(x), exclusive=exclusive, reverse=reverse)
    emitter.result(operator.outputs[0], made)


def _place(kind: str) -> Converter:
    """Where the first of the largest or least elements is."""

    def convert(emitter: Emitter, operator: Operator) -> None:
        import numpy as np

        x = emitter.value(operator.inputs[0])
        if emitter.dtype(x).kind == "b":
            x = emitter.cast(x, np.int32)
        shape = list(emitter.shape(x))
        axis = axis_of(int(constant(emitter, operator, 1).reshape(())), len(shape))
        del shape[axis]
        made = emitter.op(kind, x, shape=shape, dtype=np.int64, axis=axis, keepdims=0)
        emitter.result(operator.outputs[0], made)

    return convert


CONVERTERS: dict[str, Converter] = {
    "ARG_MAX": _place("ArgMax"),
    "ARG_MIN": _place("ArgMin"),
    "CUMSUM": _running_sum,
    "MEAN": _mean,
    "REDUCE_ALL": _truth("ReduceMin"),
    "REDUCE_ANY": _truth("ReduceMax"),
    "REDUCE_MAX": _plain("ReduceMax"),
    "REDUCE_MIN": _plain("ReduceMin"),
    "REDUCE_PROD": _product,
    "SUM": _sum,
}
