"""What stands behind a product is computed on its accumulators, whatever operations it is made of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

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


MODELS = {**{name: _integers(name) for name in TAILS}, "numbered": _numbered()}
ALL = [(registers, name) for registers in REGISTERS for name in MODELS]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(MODELS, ALL, tmp_path_factory.mktemp("tails"))


@pytest.mark.parametrize(("registers", "name"), ALL)
def test_integers_are_computed_exactly_on_the_accumulators(
    library: Library, registers: str, name: str
) -> None:
    compiled = library(registers)
    plan = compiled.plan(name)
    last = next(kernel for kernel in plan.kernels if kernel.symbol == plan.steps[-1].kernel)
    assert last.rule == "matmul.packed"
    inputs = random_inputs(MODELS[name], 3)
    expected = compiled.expected(name, inputs)["y"]
    assert len(np.unique(expected)) > 20
    difference = compiled.run(name, inputs)["y"].astype(np.float64) - expected
    # A sum in another order may be cut off at the next whole number.
    assert np.abs(difference).max() <= (2 if name == "numbered" else 0)
