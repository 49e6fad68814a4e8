"""Elementwise operators, casts and comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.models.builder import Graph
from workbench.models.operators.case import above_one, case, positive, simple, unit

_UNARY = """
    Abs Atan Asinh Ceil Cos Cosh Elu Erf Exp Floor HardSigmoid HardSwish Identity LeakyRelu Neg
    Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Tan Tanh ThresholdedRelu
"""
for _op in _UNARY.split():
    simple(_op.lower(), _op, [2, 3, 5])
for _op in ("Acos", "Asin", "Atanh"):
    simple(_op.lower(), _op, [2, 3, 5], prefix=unit)
for _op in ("Log", "Sqrt"):
    simple(_op.lower(), _op, [2, 3, 5], prefix=positive)
simple("acosh", "Acosh", [2, 3, 5], prefix=above_one)
simple("celu", "Celu", [2, 3, 5], alpha=0.7)
simple("elu_alpha", "Elu", [2, 3, 5], alpha=0.3)
simple("gelu_erf", "Gelu", [2, 3, 5], opset=20)
simple("gelu_tanh", "Gelu", [2, 3, 5], opset=20, approximate="tanh")
simple("hardsigmoid_attributes", "HardSigmoid", [2, 3, 5], alpha=0.3, beta=0.4)
simple("leakyrelu_slope", "LeakyRelu", [2, 3, 5], alpha=0.2)
simple("mish", "Mish", [2, 3, 5], opset=18)
simple("shrink", "Shrink", [2, 3, 5], bias=0.3, lambd=0.5)
simple("swish", "Swish", [2, 3, 5], opset=24, alpha=1.5)
simple("prelu_channels", "PRelu", [2, 3, 4, 4], np.float32([[[0.1]], [[0.2]], [[0.3]]]))
simple("prelu_scalar", "PRelu", [2, 3, 4], np.float32([0.25]))
simple("prelu_full", "PRelu", [1, 3, 2, 2], np.linspace(-1, 1, 12, dtype="float32").reshape(3, 2, 2))
simple("clip_both", "Clip", [2, 3, 5], -0.5, 0.7)
simple("clip_low", "Clip", [2, 3, 5], -0.5)
simple("clip_high", "Clip", [2, 3, 5], "", 0.5)
simple("clip_opset6", "Clip", [2, 3, 5], opset=6, min=-0.5, max=0.5)
simple("clip_opset10", "Clip", [2, 3, 5], opset=10, min=-0.5, max=0.5)
simple("clip_int", "Clip", [2, 3, 5], np.int32(-3), np.int32(4), dtype="int32")
simple("pow_two", "Pow", [2, 3, 5], 2.0)
simple("pow_half", "Pow", [2, 3, 5], 0.5, prefix=positive)
simple("isnan", "IsNaN", [2, 3, 5], to="bool")
simple("isinf", "IsInf", [2, 3, 5], to="bool")
simple("not", "Not", [2, 3], dtype="bool")
simple("bitwise_not", "BitwiseNot", [2, 3], dtype="int32", opset=18)
simple("dropout", "Dropout", [2, 3, 5])


def _cast_case(target: str, code: int) -> None:
    @case(f"cast_{target}")
    def build(g: Graph) -> None:
        x = g.op("Mul", g.op("Abs", g.input("x", [2, 3, 5])), g.const(3.0))
        g.op("Cast", x, to=code, name="y")
        g.output("y", target)


for _target, _code in (
    ("int32", 6),
    ("int64", 7),
    ("uint8", 2),
    ("int8", 3),
    ("float16", 10),
    ("bool", 9),
    ("float64", 11),
):
    _cast_case(_target, _code)


def _binary(op: str, dtype: str, to: str, opset: int = 18, **attributes: Any) -> None:
    @case(f"{op.lower()}_{dtype}" + ("_fmod" if attributes else ""), opset=opset)
    def build(g: Graph) -> None:
        a, b = g.input("a", [2, 3, 4], dtype), g.input("b", [3, 1], dtype)
        if op == "Pow":
            a = positive(g, a)
        g.op(op, a, b, name="y", **attributes)
        g.output("y", to)


for _op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Sum", "Mean"):
    _binary(_op, "float32", "float32")
for _op in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"):
    _binary(_op, "int32", "int32")
    _binary(_op, "int64", "int64")
_binary("Mod", "float32", "float32", fmod=1)
_binary("Mod", "int32", "int32", fmod=1)
for _op in ("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"):
    _binary(_op, "float32", "bool")
    _binary(_op, "int32", "bool")
for _op in ("And", "Or", "Xor", "Equal"):
    _binary(_op, "bool", "bool")
for _op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
    _binary(_op, "int32", "int32")


@case("bitshift")
def _bitshift(g: Graph) -> None:
    g.op("BitShift", g.input("x", [2, 3], "uint8"), g.const(np.uint8(2)), direction="LEFT", name="y")
    g.output("y", "uint8")


@case("where")
def _where(g: Graph) -> None:
    x = g.input("x", [2, 3, 4])
    g.op("Where", g.op("Greater", x, g.const(0.0)), x, g.const(-1.0), name="y")
    g.output("y")


@case("where_broadcast")
def _where_broadcast(g: Graph) -> None:
    g.op("Where", g.input("c", [3, 1], "bool"), g.input("a", [2, 1, 4]), g.input("b", [4]), name="y")
    g.output("y")


@case("max_of_three")
def _max_of_three(g: Graph) -> None:
    g.op("Max", g.input("a", [2, 3]), g.input("b", [3]), g.const(0.1), name="y")
    g.output("y")
