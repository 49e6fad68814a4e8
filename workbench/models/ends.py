"""Models of what is undefined in C for some numbers, and what edgepack says that it is: divisions, shifts,
conversions, sums, with operands at the ends of their types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from workbench.models.builder import Graph

__all__ = [
    "FLOATS",
    "INTEGERS",
    "NUMBERS",
    "arithmetic",
    "constants",
    "conversions",
    "converted",
    "expected",
    "expected_of_constants",
    "inputs_of",
]

Array = np.ndarray[Any, Any]

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64", "float16")

#: Divisors that a model may hold.
SOME_ZERO = [0, 3, 7, 0, 1]

#: Numbers that conversions meet.
NUMBERS = (
    *(0.0, -0.0, 0.5, -0.5, 0.99, -0.99, 1.5, -1.5, 127.5, 128.0, -128.9, -129.0, 255.9, 256.0, 3e4, 32768.0),
    *(-32769.0, 65535.5, 65536.0, 2147483520.0, 2.0**31, -(2.0**31), -(2.0**31) - 512, 2.0**32, 2.0**63),
    *(-(2.0**63), 2.0**64, 1e30, -1e30, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 5e-324),
)


def ends_of(dtype: str) -> list[int]:
    """Integers at the ends of a type, and small ones."""
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    small = [0, 1, 2, 3, 7, 100] + ([-1, -2, -3, -7, -100] if least else [])
    return [*small, least, least + 1, most, most - 1, most // 2, most // 3]


def inputs_of(dtype: str) -> dict[str, Array]:
    """Each pair of ends, and what is one number for all of them."""
    ends = ends_of(dtype)
    a, b = (np.array(list(side), dtype) for side in zip(*((x, y) for x in ends for y in ends), strict=True))
    return {"a": a, "b": b, "one": a[:1].copy(), "scalar": a[0].copy()}


def _shift(number: int, by: int, dtype: str, direction: str) -> int:
    if not 0 <= by < np.iinfo(dtype).bits:
        return 0
    return number << by if direction == "LEFT" else number >> by


def _quotient(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


#: By operator and attribute: what Python's integers give, before they wrap.
MEANINGS: dict[tuple[str, Any], Callable[[int, int, str], int]] = {
    ("Div", None): lambda a, b, _: _quotient(a, b),
    ("Mod", 0): lambda a, b, _: a % b if b else 0,
    ("Mod", 1): lambda a, b, _: a - _quotient(a, b) * b if b else 0,
    ("Add", None): lambda a, b, _: a + b,
    ("Sub", None): lambda a, b, _: a - b,
    ("Mul", None): lambda a, b, _: a * b,
    ("BitShift", "LEFT"): lambda a, b, dtype: _shift(a, b, dtype, "LEFT"),
    ("BitShift", "RIGHT"): lambda a, b, dtype: _shift(a, b, dtype, "RIGHT"),
}

#: The name of an operator's attribute.
ATTRIBUTES = {"Mod": "fmod", "BitShift": "direction"}


def _operations(dtype: str) -> list[tuple[str, str, Any, str]]:
    """Name, operator, attribute and divisor of each result."""
    return [
        (f"{operator}_{attribute}_{by}", operator, attribute, by)
        for operator, attribute in MEANINGS
        for by in ("b", "one", "scalar")
        if operator != "BitShift" or dtype.startswith("uint")
    ]


def arithmetic(dtype: str) -> onnx.ModelProto:
    """Each operation of two integers, by a tensor, by a number for all and by one of rank 0; and a division
    within another one, as TFLite's FLOOR_DIV is."""
    g, count = Graph("arithmetic", opset=17), len(ends_of(dtype)) ** 2
    names = {"a": g.input("a", (count,), dtype), "b": g.input("b", (count,), dtype)}
    names |= {"one": g.input("one", (1,), dtype), "scalar": g.input("scalar", (), dtype)}
    for name, operator, attribute, by in _operations(dtype):
        more = {} if attribute is None else {ATTRIBUTES[operator]: attribute}
        g.output(g.op(operator, names["a"], names[by], name=name, **more), dtype)
    rest = g.op("Sub", names["a"], g.op("Mod", names["a"], names["b"]))
    g.output(g.op("Div", rest, names["b"], name="within"), dtype)
    if not dtype.startswith("uint"):
        for operator in ("Neg", "Abs"):
            g.output(g.op(operator, names["a"], name=operator), dtype)
    return g.model()


def expected(dtype: str, inputs: dict[str, Array]) -> dict[str, Array]:
    """What :func:`arithmetic` is said to give."""
    a = inputs["a"].tolist()
    found = {}
    for name, operator, attribute, by in _operations(dtype):
        others = np.broadcast_to(inputs[by], inputs["a"].shape).tolist()
        meaning = MEANINGS[operator, attribute]
        found[name] = [meaning(x, y, dtype) for x, y in zip(a, others, strict=True)]
    if not dtype.startswith("uint"):
        found |= {"Neg": [-x for x in a], "Abs": [abs(x) for x in a]}
    b = inputs["b"].tolist()
    rests = _wrapped([x - MEANINGS["Mod", 0](x, y, dtype) for x, y in zip(a, b, strict=True)], dtype).tolist()
    found["within"] = [_quotient(x, y) for x, y in zip(rests, b, strict=True)]
    return {name: _wrapped(numbers, dtype) for name, numbers in found.items()}


def _wrapped(numbers: list[int], dtype: str) -> Array:
    """Integers as those of a type: their lower bits."""
    mask = (1 << np.iinfo(dtype).bits) - 1
    return np.array([x & mask for x in numbers], f"u{dtype.removeprefix('u')}").view(dtype)


def conversions(source: str) -> onnx.ModelProto:
    """Numbers as each type of integers."""
    g = Graph("conversions", opset=17)
    x = g.input("x", (len(NUMBERS),), source)
    for dtype in (*INTEGERS, "bool"):
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        g.output(g.op("Cast", x, to=kind, name=dtype), dtype)
    return g.model()


def converted(x: Array) -> dict[str, Array]:
    """What :func:`conversions` is said to give: through int32 or, of numbers that are wider, int64, of which
    what does not fit is the least; uint64 is the nearest, of what is not finite 0."""
    found = {"bool": x != 0}
    exact = [float(value) for value in x]
    for dtype in INTEGERS:
        if dtype == "uint64":
            whole = [min(max(int(v), 0), 2**64 - 1) if np.isfinite(v) else 0 for v in exact]
            found[dtype] = np.array(whole, dtype)
            continue
        most = 2.0**63 if dtype in {"int64", "uint32"} else 2.0**31
        numbers = [int(v) if abs(v) < most else int(-most) for v in exact]
        found[dtype] = _wrapped(numbers, dtype)
    return found


def constants(dtype: str) -> onnx.ModelProto:
    """Divisions by constants that are 0, in one place or in all."""
    g, count = Graph("constants", opset=17), len(ends_of(dtype)) ** 2
    a = g.input("a", (count,), dtype)
    for name, divisor in (("some", SOME_ZERO), ("all", 0)):
        by = g.const(
            np.resize(np.array(divisor, dtype), count) if name == "some" else np.array(divisor, dtype)
        )
        for operator, attribute in (("Div", None), ("Mod", 0), ("Mod", 1)):
            more = {} if attribute is None else {"fmod": attribute}
            g.output(g.op(operator, a, by, name=f"{operator}_{attribute}_{name}", **more), dtype)
    return g.model()


def expected_of_constants(dtype: str, a: Array) -> dict[str, Array]:
    """What :func:`constants` is said to give."""
    found = {}
    for name, divisor in (("some", SOME_ZERO), ("all", [0])):
        by = np.resize(divisor, len(a)).tolist()
        for operator, attribute in (("Div", None), ("Mod", 0), ("Mod", 1)):
            meaning = MEANINGS[operator, attribute]
            numbers = [meaning(int(x), y, dtype) for x, y in zip(a, by, strict=True)]
            found[f"{operator}_{attribute}_{name}"] = np.array(numbers, dtype)
    return found
