"""What stands behind a product is computed on its accumulators, whatever operations it is made of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edgepack.plan.types import Plan, Step
from workbench.compiled import Library
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs

INT32, UINT32 = onnx.TensorProto.INT32, onnx.TensorProto.UINT32
REGISTERS = ("scalar", "128x16", "256x16")
ROWS, DEPTH, COLUMNS = 7, 24, 37


def _sums(g: Graph) -> str:
    """Sums of products in int32, of both signs."""
    weights = g.rng.integers(-128, 128, (DEPTH, COLUMNS)).astype("int8")
    x = g.input("x", (ROWS, DEPTH), "uint8")
    return g.op("MatMulInteger", x, g.const(weights), g.const(np.uint8(128)), g.const(np.int8(0)))


def _scalar(g: Graph, value: int, dtype: str = "int32") -> str:
    return g.const(np.array(value, dtype))


def _fixed_point(g: Graph) -> str:
    """Requantisation without floating point: times a number, half added, shifted, clamped to bytes."""
    y = g.op("Add", g.op("Mul", _sums(g), _scalar(g, 3)), _scalar(g, 1 << 9))
    y = g.op("Add", y, _scalar(g, 1 << 26))  # not negative, as ONNX shifts unsigned numbers only
    y = g.op("BitShift", g.op("Cast", y, to=UINT32), _scalar(g, 10, "uint32"), direction="RIGHT")
    y = g.op("Sub", g.op("Cast", y, to=INT32), _scalar(g, 1 << 16))
    return g.op("Max", g.op("Min", y, _scalar(g, 127)), _scalar(g, -128))


def _bits(g: Graph) -> str:
    """All operations on bits, by a number and by another tensor."""
    other = g.const(g.rng.integers(-(2**31), 2**31, COLUMNS).astype("int32"))
    y = g.op("BitwiseXor", g.op("BitwiseAnd", _sums(g), _scalar(g, 0xFF0)), other)
    y = g.op("BitwiseNot", g.op("BitwiseOr", y, g.input("z", (ROWS, COLUMNS), "int32")))
    y = g.op("BitShift", g.op("Cast", y, to=UINT32), _scalar(g, 3, "uint32"), direction="LEFT")
    return g.op("Cast", y, to=INT32)


def _quotients(g: Graph) -> str:
    """Truncated and rounded down, by a number and by a tensor, of both signs."""
    divisors = g.const(g.rng.choice(np.array([-7, -2, 3, 11], np.int32), COLUMNS))
    y = g.op("Div", _sums(g), _scalar(g, 5))
    return g.op("Add", g.op("Mod", y, divisors), g.op("Div", y, divisors))


def _choices(g: Graph) -> str:
    """Conditions on the sums and on another tensor."""
    sums, other, zero = _sums(g), g.input("z", (ROWS, COLUMNS), "int32"), _scalar(g, 0)
    odd = g.op("Equal", g.op("BitwiseAnd", other, _scalar(g, 1)), _scalar(g, 1))
    y = g.op("Where", g.op("Xor", g.op("Greater", sums, zero), odd), g.op("Neg", sums), sums)
    return g.op("Where", g.op("Not", g.op("Less", sums, other)), y, g.op("Abs", y))


TAILS: dict[str, Callable[[Graph], str]] = {
    "fixed point": _fixed_point,
    "bits": _bits,
    "quotients": _quotients,
    "choices": _choices,
}


def _integers(name: str) -> onnx.ModelProto:
    g = Graph("tail", opset=18)
    g.output(g.op("Identity", TAILS[name](g), name="y"), "int32")
    return g.model()


def _numbered() -> onnx.ModelProto:
    """A product of float32 whose results are numbered, and the numbers masked."""
    g = Graph("numbered", opset=18)
    y = g.op("MatMul", g.input("x", (ROWS, DEPTH)), g.weight(DEPTH, COLUMNS))
    y = g.op("Cast", g.op("Mul", y, g.const(np.float32(50))), to=INT32)
    y = g.op("BitwiseAnd", g.op("Div", y, _scalar(g, 3)), _scalar(g, ~1))
    g.output(g.op("Cast", y, to=onnx.TensorProto.FLOAT, name="y"))
    return g.model()


def _functions() -> onnx.ModelProto:
    """A product of float64 with functions behind it that have vectors."""
    g = Graph("functions", opset=18)
    y = g.op("MatMul", g.input("x", (ROWS, DEPTH), "float64"), g.weight(DEPTH, COLUMNS, dtype="float64"))
    y = g.op("Mul", g.op("Sigmoid", y), g.op("Sqrt", g.op("Max", y, g.const(np.float64(0.1)))))
    g.output(g.op("Div", y, g.const(np.float64(3)), name="y"), "float64")
    return g.model()


INTEGERS = {**{name: _integers(name) for name in TAILS}, "numbered": _numbered()}
FLOAT64 = "functions of float64"
MODELS = {**INTEGERS, FLOAT64: _functions()}
ALL = [(registers, name) for registers in REGISTERS for name in MODELS]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(MODELS, ALL, tmp_path_factory.mktemp("tails"))


def _last_rule(plan: Plan) -> str:
    """The rule whose kernel computes the result."""
    step = plan.steps[-1]
    assert isinstance(step, Step)
    return next(kernel.rule for kernel in plan.kernels if kernel.symbol == step.kernel)


@pytest.mark.parametrize(("registers", "name"), [pair for pair in ALL if pair[1] in INTEGERS])
def test_integers_are_computed_exactly_on_the_accumulators(
    library: Library, registers: str, name: str
) -> None:
    compiled = library(registers)
    assert _last_rule(compiled.plan(name)) == "matmul.packed"
    inputs = random_inputs(MODELS[name], 3)
    expected = compiled.expected(name, inputs)["y"]
    assert len(np.unique(expected)) > 20
    difference = compiled.run(name, inputs)["y"].astype(np.float64) - expected
    # A sum in another order may be cut off at the next whole number.
    assert np.abs(difference).max() <= (2 if name == "numbered" else 0)


@pytest.mark.parametrize("registers", REGISTERS)
def test_float64_is_computed_in_float64_on_the_accumulators(library: Library, registers: str) -> None:
    compiled, x = library(registers), np.random.default_rng(2).normal(size=(ROWS, DEPTH))
    assert _last_rule(compiled.plan(FLOAT64)) == "matmul.packed"
    weights = next(numpy_helper.to_array(t) for t in MODELS[FLOAT64].graph.initializer if len(t.dims) == 2)
    sums = x @ weights
    expected = 1 / (1 + np.exp(-sums)) * np.sqrt(np.maximum(sums, 0.1)) / 3
    np.testing.assert_allclose(compiled.run(FLOAT64, {"x": x})["y"], expected, rtol=1e-13)
