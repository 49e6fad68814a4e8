"""Elementwise operators: functions, arithmetic of all types, comparisons, casts."""

from __future__ import annotations

import numpy as np

from workbench.models.builder import Graph
from workbench.models.realistic.row import IMAGE, TOKENS, between, integers, one, row

for _op in (
    *("Abs", "Atan", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish", "LeakyRelu"),
    *("Neg", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Tanh"),
    *("ThresholdedRelu", "Celu", "Asinh", "Cosh", "Sinh", "Shrink"),
):
    one(_op.lower(), _op, IMAGE)
for _op in ("Acos", "Asin", "Atanh"):
    one(_op.lower(), _op, IMAGE, draw=between(-0.95, 0.95))
one("acosh", "Acosh", IMAGE, draw=between(1, 9))
one("tan", "Tan", IMAGE)
one("sin large angles", "Sin", IMAGE, draw=between(-1000, 1000))
one("log", "Log", IMAGE, draw=between(0.1, 9))
one("sqrt", "Sqrt", IMAGE, draw=between(0.1, 9))
one("reciprocal", "Reciprocal", IMAGE, draw=between(0.1, 9))
one("mish", "Mish", IMAGE, opset=18)
one("gelu", "Gelu", IMAGE, opset=20)
one("gelu tanh", "Gelu", IMAGE, opset=20, approximate="tanh")
one("swish", "Swish", IMAGE, opset=24)
one("clip", "Clip", IMAGE, np.float32(0), np.float32(6))
one("prelu", "PRelu", IMAGE, np.full((64, 1, 1), 0.2, "f"))
one("pow 2", "Pow", IMAGE, np.float32(2))
one("pow 0.37", "Pow", IMAGE, np.float32(0.37), draw=between(0.1, 9))
one("pow of tensors", "Pow", IMAGE, (IMAGE,), draw=between(0.1, 9))
one("isnan", "IsNaN", IMAGE, to="bool")
one("isinf", "IsInf", IMAGE, to="bool")
for _op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Sum"):
    one(_op.lower(), _op, IMAGE, (IMAGE,))
one("add broadcast", "Add", TOKENS, ([1, 1, 768],))
one("mul broadcast columns", "Mul", TOKENS, ([1, 128, 1],))
one("mod fmod", "Mod", IMAGE, (IMAGE,), fmod=1)

for _type in ("int32", "int64"):
    for _op in ("Add", "Mul"):
        one(f"{_op.lower()} {_type}", _op, IMAGE, (IMAGE, _type), dtype=_type)
    one(f"div {_type}", "Div", IMAGE, (IMAGE, _type), dtype=_type)
    one(f"div {_type} by 7", "Div", IMAGE, np.array(7, _type), dtype=_type)
    one(f"mod {_type}", "Mod", IMAGE, (IMAGE, _type), dtype=_type)
    one(f"mod {_type} by 7", "Mod", IMAGE, np.array(7, _type), dtype=_type)
one("div uint8", "Div", IMAGE, (IMAGE, "uint8"), dtype="uint8")
one("max int64", "Max", IMAGE, (IMAGE, "int64"), dtype="int64")


def _shift(g: Graph) -> None:
    x, by = g.input("x", IMAGE, "uint32"), g.input("by", IMAGE, "uint32")
    g.output(g.op("BitShift", x, by, direction="LEFT"), "uint32")


row("bitshift", by=integers(0, 9))(_shift)
for _op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
    one(_op.lower(), _op, IMAGE, (IMAGE, "int32"), opset=18, dtype="int32")
one("bitwisenot", "BitwiseNot", IMAGE, opset=18, dtype="int32")

for _op in ("Add", "Mul", "Div"):
    one(f"{_op.lower()} float64", _op, IMAGE, (IMAGE, "float64"), dtype="float64")
for _op in ("Exp", "Sqrt", "Tanh", "Sigmoid", "Relu"):
    one(f"{_op.lower()} float64", _op, IMAGE, dtype="float64", draw=between(0.1, 5))
one("sin float64", "Sin", IMAGE, dtype="float64")

for _op in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
    one(_op.lower(), _op, IMAGE, (IMAGE,), to="bool")
one("equal int64", "Equal", IMAGE, (IMAGE, "int64"), dtype="int64", to="bool")
for _op in ("And", "Or", "Xor"):
    one(_op.lower(), _op, IMAGE, (IMAGE, "bool"), dtype="bool")
one("not", "Not", IMAGE, dtype="bool")

#: Without an instruction for it.
SLOW_HALVES = {"linux-x86_64": "SSE2 converts four float16 by two dozen operations on integers"}

for _from, _to in (
    ("float32", "float16"),
    ("float16", "float32"),
    ("float32", "int32"),
    ("int32", "float32"),
    ("float32", "int64"),
    ("int64", "float32"),
    ("int64", "int32"),
    ("uint8", "float32"),
    ("float32", "uint8"),
    ("bool", "float32"),
    ("float32", "float64"),
):
    _code = {"float32": 1, "uint8": 2, "int32": 6, "int64": 7, "float16": 10, "float64": 11}[_to]
    _draw = between(0, 200) if _to == "uint8" else None
    one(
        f"cast {_from} to {_to}",
        "Cast",
        IMAGE,
        dtype=_from,
        to=_to,
        draw=_draw,
        cast_to=_code,
        why_slow=SLOW_HALVES if "float16" in (_from, _to) else None,
    )


@row("where")
def _where(g: Graph) -> None:
    g.output(g.op("Where", g.input("c", IMAGE, "bool"), g.input("a", IMAGE), g.input("b", IMAGE)))


@row("where of a mask")
def _where_mask(g: Graph) -> None:
    mask = g.input("m", [1, 1, 128, 128], "bool")
    g.output(g.op("Where", mask, g.input("x", [1, 12, 128, 128]), g.const(np.float32(-1e9))))


@row("quantizelinear")
def _quantize(g: Graph) -> None:
    x = g.input("x", IMAGE)
    g.output(g.op("QuantizeLinear", x, g.const(np.float32(0.02)), g.const(np.uint8(128))), "uint8")


@row("dequantizelinear")
def _dequantize(g: Graph) -> None:
    x = g.input("x", IMAGE, "uint8")
    g.output(g.op("DequantizeLinear", x, g.const(np.float32(0.02)), g.const(np.uint8(128))))


@row("dynamicquantizelinear")
def _dynamic(g: Graph) -> None:
    names = g.ops("DynamicQuantizeLinear", g.input("x", IMAGE), outputs=3)
    for name, dtype in zip(names, ("uint8", "float32", "uint8"), strict=True):
        g.output(name, dtype)


@row("float16 chain")
def _half(g: Graph) -> None:
    x = g.input("x", IMAGE, "float16")
    g.output(g.op("Mul", g.op("Sigmoid", x), x), "float16")
