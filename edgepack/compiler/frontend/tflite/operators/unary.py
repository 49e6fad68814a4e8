"""Functions of one number: of floats by operators, of bytes by tables of what the interpreter computes."""

from __future__ import annotations

from collections.abc import Callable

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.interpreter import results_of_bytes
from edgepack.compiler.frontend.tflite.model import Operator
from edgepack.compiler.frontend.tflite.operators.contract import (
    Converter,
    UnsupportedFormError,
    is_quantised,
    option,
)
from edgepack.compiler.frontend.tflite.operators.convolution import activated

__all__ = ["CONVERTERS"]

_Floats = Callable[[Emitter, Operator, str], str]


def _named(kind: str) -> _Floats:
    return lambda emitter, operator, x: emitter.op(kind, x)


def _leaky_relu(emitter: Emitter, operator: Operator, x: str) -> str:
    return emitter.op("LeakyRelu", x, alpha=float(operator.options.get("alpha") or 0.0))


def _hard_swish(emitter: Emitter, operator: Operator, x: str) -> str:
    """x * min(max(x + 3, 0), 6) / 6."""
    moved = emitter.op("Add", x, emitter.scalar(3.0, x))
    gate = emitter.op("Clip", moved, emitter.scalar(0.0, x), emitter.scalar(6.0, x), shape=emitter.shape(x))
    return emitter.op("Mul", emitter.op("Mul", x, gate), emitter.scalar(1 / 6, x))


def _bounds(activation: int) -> _Floats:
    return lambda emitter, operator, x: activated(emitter, x, activation)


def _unit_bounds(emitter: Emitter, operator: Operator, x: str) -> str:
    return emitter.op("Clip", x, emitter.scalar(0.0, x), emitter.scalar(1.0, x), shape=emitter.shape(x))


def _rsqrt(emitter: Emitter, operator: Operator, x: str) -> str:
    return emitter.op("Div", emitter.scalar(1.0, x), emitter.op("Sqrt", x), shape=emitter.shape(x))


def _square(emitter: Emitter, operator: Operator, x: str) -> str:
    return emitter.op("Mul", x, x)


def _gelu(emitter: Emitter, operator: Operator, x: str) -> str:
    half = emitter.op("Mul", x, emitter.scalar(0.5, x))
    if option(operator, "approximate"):
        cube = emitter.op("Mul", emitter.op("Mul", x, x), x)
        inner = emitter.op("Add", x, emitter.op("Mul", cube, emitter.scalar(0.044715, x)))
        gate = emitter.op("Tanh", emitter.op("Mul", inner, emitter.scalar(0.7978845608028654, x)))
    else:
        gate = emitter.op("Erf", emitter.op("Mul", x, emitter.scalar(0.7071067811865476, x)))
    return emitter.op("Mul", half, emitter.op("Add", gate, emitter.scalar(1.0, x)))


def _unary(floats: _Floats | None) -> Converter:
    def convert(emitter: Emitter, operator: Operator) -> None:
        tensor = emitter.tensors[operator.inputs[0]]
        if is_quantised(tensor):
            emitter.result(operator.outputs[0], _looked_up(emitter, operator))
            return
        if floats is None:
            raise UnsupportedFormError(f"an operand of {tensor.dtype}")
        emitter.result(operator.outputs[0], floats(emitter, operator, emitter.value(operator.inputs[0])))

    return convert


def _looked_up(emitter: Emitter, operator: Operator) -> str:
    """Bytes by a table of 256, words by one of 65536; positions below 0 are counted from its end."""
    import numpy as np

    tensor, result = emitter.tensors[operator.inputs[0]], emitter.tensors[operator.outputs[0]]
    words = tensor.dtype == result.dtype == "int16"
    if not words and (tensor.dtype not in {"int8", "uint8"} or result.dtype not in {"int8", "uint8"}):
        raise UnsupportedFormError(f"an operand of {tensor.dtype} with a result of {result.dtype}")
    table = results_of_bytes(operator, tensor, result)
    x = emitter.value(operator.inputs[0])
    if tensor.dtype != "uint8":
        table = np.concatenate([table[len(table) // 2 :], table[: len(table) // 2]])
    place = emitter.cast(x, np.int32 if words else np.int64)
    return emitter.op(
        "Gather", emitter.const(table), place, shape=emitter.shape(x), dtype=table.dtype, axis=0
    )


CONVERTERS: dict[str, Converter] = {
    "ABS": _unary(_named("Abs")),
    "CEIL": _unary(_named("Ceil")),
    "COS": _unary(_named("Cos")),
    "ELU": _unary(_named("Elu")),
    "EXP": _unary(_named("Exp")),
    "FLOOR": _unary(_named("Floor")),
    "GELU": _unary(_gelu),
    "HARD_SWISH": _unary(_hard_swish),
    "LEAKY_RELU": _unary(_leaky_relu),
    "LOG": _unary(_named("Log")),
    "LOGISTIC": _unary(_named("Sigmoid")),
    "NEG": _unary(_named("Neg")),
    "RELU": _unary(_bounds(1)),
    "RELU_0_TO_1": _unary(_unit_bounds),
    "RELU6": _unary(_bounds(3)),
    "RELU_N1_TO_1": _unary(_bounds(2)),
    "ROUND": _unary(_named("Round")),
    "RSQRT": _unary(_rsqrt),
    "SIGN": _unary(_named("Sign")),
    "SIN": _unary(_named("Sin")),
    "SQRT": _unary(_named("Sqrt")),
    "SQUARE": _unary(_square),
    "TANH": _unary(_named("Tanh")),
}
