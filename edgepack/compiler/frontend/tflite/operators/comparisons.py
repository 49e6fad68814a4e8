"""Comparisons, logic, and choices between elements."""

from __future__ import annotations

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.fixed_point import (
    centred,
    integer_range,
    multiplied,
    quantize_multiplier,
)
from edgepack.compiler.frontend.tflite.model import Operator
from edgepack.compiler.frontend.tflite.operators.contract import (
    Converter,
    UnsupportedFormError,
    is_quantised,
    same_quantisation,
)

__all__ = ["CONVERTERS"]

#: By how much integers are shifted left before they are scaled.
_SHIFT = 8


def _comparison(kind: str, *, negated: bool = False) -> Converter:
    def convert(emitter: Emitter, operator: Operator) -> None:
        import numpy as np

        x, y = (_comparable(emitter, index) for index in operator.inputs)
        made = emitter.op(kind, x, y, dtype=bool)
        emitter.result(operator.outputs[0], emitter.op("Not", made, dtype=np.bool_) if negated else made)

    return convert


def _comparable(emitter: Emitter, index: int) -> str:
    """Numbers as they are compared: integers are scaled, and rounded (``ComparisonWithScaling``)."""
    tensor = emitter.tensors[index]
    if not is_quantised(tensor):
        if tensor.dtype in {"int8", "uint8"}:
            raise UnsupportedFormError(f"operands of {tensor.dtype} without a scale")
        return emitter.value(index)
    if tensor.dtype == "int16" or tensor.quantisation is None:
        raise UnsupportedFormError(f"operands of {tensor.dtype}")
    x = centred(emitter, index)
    largest = max(map(abs, integer_range(tensor.dtype))) * 2 << _SHIFT
    shifted = emitter.op("Mul", x, emitter.scalar(1 << _SHIFT, x))
    return multiplied(emitter, shifted, *quantize_multiplier(float(tensor.quantisation.scale[0])), largest)


def _logical(kind: str) -> Converter:
    def convert(emitter: Emitter, operator: Operator) -> None:
        emitter.result(operator.outputs[0], emitter.op(kind, *(emitter.value(i) for i in operator.inputs)))

    return convert


def _extreme(kind: str) -> Converter:
    """Of integers as they are, whose scales have to be the result's."""

    def convert(emitter: Emitter, operator: Operator) -> None:
        _check_scales(emitter, operator, operator.inputs)
        emitter.result(operator.outputs[0], emitter.op(kind, *(emitter.value(i) for i in operator.inputs)))

    return convert


def _check_scales(emitter: Emitter, operator: Operator, inputs: tuple[int, ...]) -> None:
    result = emitter.tensors[operator.outputs[0]]
    if any(not same_quantisation(emitter.tensors[index], result) for index in inputs):
        raise UnsupportedFormError("operands of other scales than the result's")


def _select(emitter: Emitter, operator: Operator) -> None:
    """``SELECT`` has a condition for each element, or one for each place of the first dimension."""
    _check_scales(emitter, operator, operator.inputs[1:])
    condition, x, y = (emitter.value(index) for index in operator.inputs)
    rank = len(emitter.shape(x))
    if operator.kind == "SELECT" and len(emitter.shape(condition)) == 1 and rank > 1:
        condition = emitter.reshape(condition, [*emitter.shape(condition), *[1] * (rank - 1)])
    emitter.result(operator.outputs[0], emitter.op("Where", condition, x, y, dtype=emitter.dtype(x)))


CONVERTERS: dict[str, Converter] = {
    "EQUAL": _comparison("Equal"),
    "GREATER": _comparison("Greater"),
    "GREATER_EQUAL": _comparison("GreaterOrEqual"),
    "LESS": _comparison("Less"),
    "LESS_EQUAL": _comparison("LessOrEqual"),
    "LOGICAL_AND": _logical("And"),
    "LOGICAL_NOT": _logical("Not"),
    "LOGICAL_OR": _logical("Or"),
    "MAXIMUM": _extreme("Max"),
    "MINIMUM": _extreme("Min"),
    "NOT_EQUAL": _comparison("Equal", negated=True),
    "SELECT": _select,
    "SELECT_V2": _select,
}
