"""Operators of an element, or of elements at the same place."""

from __future__ import annotations

import numpy as np

from workbench.models.drawn_operators.node import NodeDraw, Operator, Recipes

__all__ = ["ELEMENTWISE"]

ELEMENTWISE = Recipes()

_UNARY = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Celu", "Cos", "Cosh"),
    *("Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN"),
    *("LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid"),
    *("Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu"),
)
_BINARY = (
    *("Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal", "Greater", "GreaterOrEqual", "Less"),
    *("LessOrEqual", "Mul", "Or", "PRelu", "Sub", "Xor"),
)


@ELEMENTWISE.of(*_UNARY)
def _unary(draw: NodeDraw) -> Operator:
    x = draw.input(draw.numbers(draw.type_of(), draw.shape()), constant=0)
    attributes = draw.attributes(
        alpha=draw.draw(0.1, 1.5, 0.0, -0.3),
        beta=draw.draw(0.25, 0.6),
        gamma=draw.draw(1.05, 2.0),
        lambd=draw.draw(0.5, 1.2),
        bias=draw.draw(0.0, 0.7),
        approximate=draw.draw("none", "tanh"),
        detect_negative=draw.whole(0, 1),
        detect_positive=draw.whole(0, 1),
    )
    if draw.operator == "Celu" and attributes.get("alpha") == 0.0:
        del attributes["alpha"]  # it divides by it
    return draw.done([x], **attributes)


@ELEMENTWISE.of(*_BINARY)
def _binary(draw: NodeDraw) -> Operator:
    dtype, shape = draw.type_of(), draw.shape()
    other = draw.broadcast(shape)
    pair = [draw.numbers(dtype, shape), draw.numbers(dtype, other)]
    if draw.chance(0.3) and draw.operator != "PRelu":  # whose slope alone is broadcast
        pair.reverse()
    return draw.done([draw.input(array) for array in pair])


@ELEMENTWISE.of("Div", "Mod")
def _quotient(draw: NodeDraw) -> Operator:
    dtype, shape = draw.type_of(), draw.shape()
    fmod = draw.operator == "Mod" and (dtype.kind == "f" or draw.chance())
    divisors = draw.numbers(dtype, draw.broadcast(shape))
    if dtype.kind != "f":  # a quotient by zero, and of the least number by -1, is in docs/models.md
        divisors = np.where(np.isin(divisors, [0, dtype.type(-1) if dtype.kind == "i" else 0]), 3, divisors)
    pair = [draw.input(draw.numbers(dtype, shape)), draw.input(divisors.astype(dtype))]
    return draw.done(pair, **({"fmod": 1} if fmod else {}))


@ELEMENTWISE.of("Pow")
def _power(draw: NodeDraw) -> Operator:
    dtype, shape = draw.type_of(), draw.shape()
    exponent = np.dtype(draw.draw(dtype.name, dtype.name, "float32", "int64") if draw.opset >= 12 else dtype)
    other = draw.broadcast(shape)
    if exponent.kind == "f" and dtype.kind == "f":
        powers = draw.numbers(exponent, other)
    else:
        powers = draw.rng.integers(0, 4, other).astype(exponent)
    return draw.done([draw.input(draw.numbers(dtype, shape, special=dtype.kind == "f")), draw.input(powers)])


@ELEMENTWISE.of("BitShift")
def _shift(draw: NodeDraw) -> Operator:
    dtype, shape = draw.type_of(), draw.shape()
    places = draw.rng.integers(0, 8 * dtype.itemsize, draw.broadcast(shape)).astype(dtype)
    pair = [draw.input(draw.numbers(dtype, shape)), draw.input(places)]
    return draw.done(pair, direction=draw.draw("LEFT", "RIGHT"))


@ELEMENTWISE.of("Max", "Min", "Mean", "Sum")
def _variadic(draw: NodeDraw) -> Operator:
    dtype, shape = draw.type_of(), draw.shape()
    arrays = [
        draw.numbers(dtype, draw.broadcast(shape) if number else shape) for number in range(draw.whole(1, 4))
    ]
    return draw.done([draw.input(array) for array in arrays])


@ELEMENTWISE.of("Where")
def _where(draw: NodeDraw) -> Operator:
    dtype, shape = draw.type_of(1), draw.shape()
    shapes = [shape, draw.broadcast(shape), draw.broadcast(shape)]
    draw.rng.shuffle(shapes)
    arrays = [draw.numbers("bool", shapes[0]), *(draw.numbers(dtype, one) for one in shapes[1:])]
    return draw.done([draw.input(array) for array in arrays])


@ELEMENTWISE.of("Clip")
def _clip(draw: NodeDraw) -> Operator:
    dtype = draw.type_of()
    x = draw.input(draw.numbers(dtype, draw.shape()), constant=0)
    low, high = sorted(draw.numbers(dtype, [2], special=False).tolist())
    if draw.has("min"):
        return draw.done([x], **draw.attributes(min=float(low), max=float(high)))
    ends = [draw.input(np.asarray(end, dtype)) if draw.chance(0.8) else "" for end in (low, high)]
    return draw.done([x, *ends])


@ELEMENTWISE.of("Cast")
def _cast(draw: NodeDraw) -> Operator:
    dtype = draw.type_of()
    names = ("float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "bool")
    to = np.dtype(draw.draw(*names, "uint32", "uint64"))
    values = draw.numbers(dtype, draw.shape())
    if dtype.kind == "f" and to.kind in "iu":  # what does not fit has no value that is defined
        ends = np.iinfo(to)
        low, high = max(ends.min, -(2**20)), min(ends.max, 2**20)
        values = np.clip(np.nan_to_num(values.astype(np.float64)), low, high).astype(dtype)
    from onnx import helper

    return draw.done([draw.input(values, constant=0)], to=helper.np_dtype_to_tensor_dtype(to))


@ELEMENTWISE.of("QuantizeLinear", "DequantizeLinear")
def _quantisation(draw: NodeDraw) -> Operator:
    shape, axis = draw.shape(1), 0
    by_axis = draw.chance() and draw.opset >= 13
    if by_axis:
        axis = draw.axis(len(shape))
    count = [shape[axis]] if by_axis else []
    kind = np.dtype(draw.draw("int8", "uint8"))
    scale = draw.rng.uniform(0.02, 0.2, count).astype(np.float32)
    zero = draw.rng.integers(0, 9, count).astype(kind)
    if draw.operator == "QuantizeLinear":
        values = draw.numbers("float32", shape)
        x = np.nan_to_num(values, nan=0.0, posinf=1e4, neginf=-1e4).clip(-1e6, 1e6)
    else:
        x = draw.numbers(kind, shape)
    given = [draw.input(x, constant=0), draw.constant(scale, "float32"), draw.constant(zero, kind.name)]
    return draw.done(given, **({"axis": axis} if by_axis else {}))
