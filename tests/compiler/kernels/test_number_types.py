"""Arithmetic on integers and on float64, whose vectors are other ones than those of float32."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from workbench.compiled import SWEPT, Library
from workbench.models.builder import Graph

SHAPE = (3, 41)
INTEGERS = ("int32", "int64", "int16", "uint8")
CHOOSING = ("int64", "int32", "float32")
CHOICES = 12
FUNCTIONS = ("Exp", "Tanh", "Sigmoid", "Sqrt", "Sin", "Floor", "Erf")
NUMPY = {"Exp": np.exp, "Tanh": np.tanh, "Sqrt": np.sqrt, "Sin": np.sin, "Floor": np.floor}


def _quotients(dtype: str) -> onnx.ModelProto:
    """By a tensor and by a constant, truncated and rounded down."""
    g = Graph("quotients")
    a, b = (g.input(name, SHAPE, dtype) for name in "ab")
    for name, divisor in (("tensor", b), ("constant", g.const(np.array(7, dtype)))):
        g.output(g.op("Div", a, divisor, name=f"div_{name}"), dtype)
        g.output(g.op("Mod", a, divisor, name=f"mod_{name}"), dtype)
        g.output(g.op("Mod", a, divisor, name=f"fmod_{name}", fmod=1), dtype)
    return g.model()


def _functions() -> onnx.ModelProto:
    g = Graph("functions")
    x = g.input("x", SHAPE, "float64")
    for function in FUNCTIONS:
        g.output(g.op(function, x, name=function), "float64")
    g.output(g.op("Max", x, g.const(np.float64(0.5)), name="Max"), "float64")
    g.output(g.op("ReduceSum", x, g.const([1]), name="Sum"), "float64")
    g.output(g.op("Softmax", x, axis=1, name="Softmax"), "float64")
    g.output(g.op("ReduceMax", x, axes=[0], name="ReduceMax"), "float64")
    g.output(g.op("Cast", x, to=1, name="Cast"))
    g.output(g.op("IsNaN", x, name="IsNaN"), "bool")
    return g.model()


def _remainder() -> onnx.ModelProto:
    g = Graph("remainder")
    g.op("Mod", g.input("a", SHAPE), g.input("b", SHAPE), name="y", fmod=1)
    g.output("y")
    return g.model()


def _choices(dtype: str) -> onnx.ModelProto:
    """Each decided by the one before, behind a remainder: all of them are in each other's conditions."""
    g = Graph("choices")
    y = g.op("Mod", g.input("a", SHAPE, dtype), g.input("b", SHAPE, dtype), fmod=1)
    for i in range(CHOICES):
        less = g.op("Less", y, g.const(np.array(3 * i + 1, dtype)))
        more, times = g.const(np.array(5, dtype)), g.const(np.array(2, dtype))
        y = g.op("Where", less, g.op("Add", y, more), g.op("Mul", y, times))
    g.op("Neg", y, name="y")
    g.output("y", dtype)
    return g.model()


MODELS = {
    **{f"choices {dtype}": _choices(dtype) for dtype in CHOOSING},
    **{dtype: _quotients(dtype) for dtype in INTEGERS},
    "float64": _functions(),
    "remainder": _remainder(),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    pairs = [(registers, name) for registers in SWEPT for name in MODELS]
    return Library(MODELS, pairs, tmp_path_factory.mktemp("types"))


@pytest.mark.parametrize("registers", SWEPT)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_quotients_and_remainders_of_integers_are_exact(library: Library, registers: str, dtype: str) -> None:
    limits, rng = np.iinfo(dtype), np.random.default_rng(1)
    a = rng.integers(limits.min, limits.max, SHAPE, dtype, endpoint=True)
    b = a // rng.integers(1, 9, SHAPE, dtype, endpoint=True)  # multiples, and what is next to one
    b[:, ::3] = rng.integers(limits.min, limits.max, b[:, ::3].shape, dtype, endpoint=True)
    b[b == 0] = 3
    if limits.min:
        b[b == -1] = -2  # the quotient of the least integer by it is none
        b[0, :20] = -(np.arange(20) + 2)
    compiled = library(registers)
    assert all(kernel.rule == "elementwise" for kernel in compiled.plan(dtype).kernels)
    results = compiled.run(dtype, {"a": a, "b": b})
    for name, divisor in (("tensor", b), ("constant", np.array(7, dtype))):
        floor, rest = np.divmod(a, divisor)
        np.testing.assert_array_equal(
            results[f"div_{name}"], floor + ((rest != 0) & ((a < 0) != (divisor < 0)))
        )
        np.testing.assert_array_equal(results[f"mod_{name}"], rest)
        np.testing.assert_array_equal(results[f"fmod_{name}"], np.fmod(a, divisor))


@pytest.mark.parametrize("registers", SWEPT)
def test_float64_is_computed_in_float64(library: Library, registers: str) -> None:
    compiled = library(registers)
    assert {kernel.rule for kernel in compiled.plan("float64").kernels} <= {"elementwise", "rowwise"}
    x = np.random.default_rng(2).uniform(0, 3, SHAPE)
    x[0, :8] = 1e-9, 0.6249, 0.6251, 30, 1e5, 1 / 3, np.pi, 700
    results = compiled.run("float64", {"x": x})
    for name, function in NUMPY.items():
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(results[name], function(x), rtol=1e-15, err_msg=name)
    np.testing.assert_allclose(results["Sigmoid"], 1 / (1 + np.exp(-x)), rtol=1e-15)
    np.testing.assert_array_equal(results["Max"], np.maximum(x, 0.5))
    np.testing.assert_array_equal(results["ReduceMax"][0], x.max(0))
    np.testing.assert_allclose(results["Sum"][:, 0], x.sum(1), rtol=1e-14)
    np.testing.assert_allclose(results["Softmax"].sum(1), 1, rtol=1e-14)
    np.testing.assert_array_equal(results["Cast"], x.astype(np.float32))
    x[1, 1] = np.nan
    results = compiled.run("float64", {"x": -x})
    np.testing.assert_array_equal(results["IsNaN"], np.isnan(x))
    np.testing.assert_array_equal(results["ReduceMax"][0], (-x).max(0))  # NaN in column 1
    np.testing.assert_allclose(results["Tanh"], np.tanh(-x), rtol=1e-15)
    np.testing.assert_allclose(results["Exp"], np.exp(-x), rtol=1e-15)
    assert np.signbit(compiled.run("float64", {"x": np.full(SHAPE, -0.0)})["Tanh"]).all()


@pytest.mark.parametrize("registers", SWEPT)
def test_remainders_of_numbers_are_exact(library: Library, registers: str) -> None:
    """Also of multiples, of what is next to one, and where the quotient is large, infinite or none."""
    compiled, rng = library(registers), np.random.default_rng(3)
    assert [kernel.rule for kernel in compiled.plan("remainder").kernels] == ["elementwise"]
    b = rng.uniform(-3, 3, SHAPE).astype(np.float32)
    a = (b * rng.integers(-(1 << 28), 1 << 28, SHAPE)).astype(np.float32)
    a[0] = rng.uniform(-10, 10, SHAPE[1])
    for given in ((a, b), (np.nextafter(a, np.float32(np.inf)), b)):
        np.testing.assert_array_equal(
            compiled.run("remainder", dict(zip("ab", given, strict=True)))["y"], np.fmod(*given)
        )
    a[1, :7] = 1e30, np.inf, np.nan, 1, 1, -4, 1e-40
    b[1, :7] = 1, 1, 1, np.inf, 0, 2, 3e-41
    with np.errstate(invalid="ignore"):
        expected = np.fmod(a, b)
    got = compiled.run("remainder", {"a": a, "b": b})["y"]
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got[:, 7:]), np.signbit(expected[:, 7:]))


@pytest.mark.parametrize("registers", SWEPT)
@pytest.mark.parametrize("dtype", CHOOSING)
def test_choices_that_depend_on_choices_are_compiled(library: Library, registers: str, dtype: str) -> None:
    """Four of them took a minute, and each one more 27 times as long as all before."""
    rng = np.random.default_rng(4)
    a, b = (rng.integers(1, 90, SHAPE).astype(dtype) for _ in "ab")
    y = np.fmod(a, b)
    for i in range(CHOICES):
        y = np.where(y < 3 * i + 1, y + y.dtype.type(5), y * y.dtype.type(2))
    compiled = library(registers)
    assert [kernel.rule for kernel in compiled.plan(f"choices {dtype}").kernels] == ["elementwise"]
    np.testing.assert_array_equal(compiled.run(f"choices {dtype}", {"a": a, "b": b})["y"], -y)
