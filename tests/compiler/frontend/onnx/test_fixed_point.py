"""Operators of fixed-point numbers compute what their definitions say, to the last bit: compiled, and in the
evaluator that records what their outputs should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgepack.compiler.frontend.onnx.fixed_point import (
    DOMAIN,
    HIGH_MUL,
    MULTIPLY,
    MULTIPLY_ONCE,
    MULTIPLY_UP,
    ROUNDING_DIVIDE,
    ROUNDING_SHIFT,
)
from edgepack.compiler.frontend.onnx.standard_evaluator import evaluate
from edgepack.plan.target import CpuTarget
from workbench.compiled import SWEPT, Compiled, target_with

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng()

#: Rows and columns of x: place for all numbers beside powers of two, and for all exponents twice.
SHAPE = (6, 64)


def numbers(largest: int) -> Array:
    """int32 of all magnitudes up to ``largest``, powers of two and what lies beside them first."""
    near = [sign * (1 << bit) + step for bit in range(32) for sign in (1, -1) for step in (-1, 0, 1)]
    kept = [one for one in (largest, -largest, *near) if -largest <= one <= min(largest, 2**31 - 1)]
    size = SHAPE[0] * SHAPE[1]
    made = RANDOM.integers(-largest, largest, size) >> RANDOM.integers(0, 31, size)
    made[: len(kept)] = kept
    return RANDOM.permutation(made).astype(np.int32).reshape(SHAPE)


def away(numerator: Array, denominator: Array | int) -> Array:
    """Rounded quotients of Python's integers, halves away from zero."""
    return np.asarray(np.sign(numerator) * ((2 * abs(numerator) + denominator) // (2 * denominator)))


def up(numerator: Array, denominator: Array | int) -> Array:
    """The same, halves towards infinity."""
    return (2 * numerator + denominator) // (2 * denominator)


def power(exponent: Array) -> Array:
    return np.asarray(2 ** np.asarray(exponent, object))


def twice(x: Array, multiplier: Array, shift: Array) -> Array:
    """Rounded after the product, and again after the shift."""
    return away(up(x * power(np.maximum(shift, 0)) * multiplier, 2**31), power(np.maximum(-shift, 0)))


@dataclass(frozen=True)
class Case:
    """An operator, its first operand, its others, those of them that the model has as constants, and what it
    computes of integers without bounds."""

    kind: str
    x: Array
    others: tuple[Array, ...]
    definition: Callable[..., Array]
    constant: bool = True
    attributes: dict[str, int] = field(default_factory=dict)

    @property
    def model(self) -> onnx.ModelProto:
        names = ["x", *(f"y{index}" for index in range(len(self.others)))]
        node = helper.make_node(self.kind, names, ["z"], domain=DOMAIN, **self.attributes)
        pairs = list(zip(names, (self.x, *self.others), strict=True))
        given = pairs[:1] if self.constant else pairs
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in given
        ]
        constants = [numpy_helper.from_array(value, name) for name, value in pairs[len(given) :]]
        outputs = [helper.make_tensor_value_info("z", TensorProto.INT32, self.x.shape)]
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
        graph = helper.make_graph([node], "g", inputs, outputs, constants)
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)

    @property
    def inputs(self) -> dict[str, Array]:
        others = () if self.constant else self.others
        return {"x": self.x, **{f"y{index}": value for index, value in enumerate(others)}}

    @property
    def expected(self) -> Array:
        operands = (value.astype(object) for value in (self.x, *self.others))
        return np.asarray(self.definition(*operands), np.int64)


def int32(*values: int) -> Array:
    return np.asarray(values if len(values) > 1 else values[0], np.int32)


#: Columns of which half of the products lie in the middle of two results: x / 2.
HALVES = np.arange(SHAPE[1]) < 8
#: Multipliers of columns.
CHANNELS = np.where(HALVES, 1 << 30, RANDOM.integers(2**30, 2**31, SHAPE[1])).astype(np.int32)
#: Exponents of columns.
EXPONENTS = np.tile(np.arange(32, dtype=np.int32), 2)


def tail(bits: int) -> Array:
    """Lower bits of longer multipliers: none of the first columns."""
    return np.where(HALVES, 0, RANDOM.integers(0, 1 << bits, SHAPE[1]))


def cases() -> dict[str, Case]:
    def shifts(x: Array, exponent: Array) -> Array:
        return away(x, power(exponent))

    def once(rounded: Callable[..., Array]) -> Callable[..., Array]:
        return lambda x, multiplier, shift: rounded(x * multiplier, power(shift))

    whole, small = numbers(2**31), numbers(2**23 - 1)
    found = {
        "high": Case(HIGH_MUL, whole, (numbers(2**31 - 1),), lambda a, b: up(a * b, 2**31), constant=False),
        "shift of each": Case(ROUNDING_SHIFT, whole, (np.resize(EXPONENTS, SHAPE),), shifts, constant=False),
        "shift of rows": Case(
            ROUNDING_SHIFT, whole, (int32(0, 1, 7, 29, 30, 31)[:, None],), shifts, constant=False
        ),
        "divide": Case(ROUNDING_DIVIDE, small, (abs(numbers(2**20)) + 1,), away, constant=False),
    }
    for number in (0, 1, 8, 30, 31):
        found[f"shift {number}"] = Case(ROUNDING_SHIFT, whole, (int32(number),), shifts)
        found[f"shift {number} of small ones"] = Case(
            ROUNDING_SHIFT, small, (int32(number),), shifts, attributes={"largest": 2**23 - 1}
        )
    for number in (1, 2, 49, 1000):
        found[f"divide by {number}"] = Case(ROUNDING_DIVIDE, small, (int32(number),), away)
    for name, x, largest in (("", whole, 0), (" of small ones", small, 2**23 - 1)):
        attributes = {"largest": largest} if largest else {}
        for number in (-31, -30, -7, 0):
            others = int32(1_518_500_249), int32(number)
            found[f"multiply {number}{name}"] = Case(MULTIPLY, x, others, twice, attributes=attributes)
        each = {"": -EXPONENTS, " to the left": np.where(EXPONENTS % 5, -EXPONENTS, 3).astype(np.int32)}
        for side, shift in each.items():
            if side and not largest:
                continue  # no sums of 32 bits are shifted to the left
            found[f"multiply each{side}{name}"] = Case(
                MULTIPLY, x, (CHANNELS, shift), twice, attributes=attributes
            )
    found["multiply 5"] = Case(
        MULTIPLY, small, (int32(1_518_500_249), int32(5)), twice, attributes={"largest": 2**23 - 1}
    )
    wide = CHANNELS.astype(np.int64)
    by = np.where(HALVES, 31, RANDOM.integers(31, 50, SHAPE[1]))
    for kind, rounded in ((MULTIPLY_ONCE, away), (MULTIPLY_UP, up)):
        for column, number in ((0, 31), (0, 33), (-1, 38), (0, 38), (-1, 60)):
            found[f"{kind} by {column}, {number}"] = Case(
                kind, whole, (wide[column].reshape(()), np.asarray(number)), once(rounded)
            )
        found[f"{kind} each"] = Case(kind, whole, (wide, by), once(rounded))
        found[f"{kind} of 38 bits"] = Case(kind, small, (wide << 7 | tail(7), by + 7), once(rounded))
    split = wide << 29 | tail(29), by + 29
    found["split"] = Case(MULTIPLY_ONCE, small, split, once(away), attributes={"split": 1})
    return found


CASES = cases()


#: As ARMv6-M computes them, without products of 64 bits.
SHORT = "scalar, short products"


@pytest.fixture(scope="module", params=("scalar", SHORT, *SWEPT))
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    folder, form = tmp_path_factory.mktemp("fixed_point"), request.param
    with pytest.MonkeyPatch.context() as patch:
        if form == SHORT:
            patch.setattr(CpuTarget, "multiplies_long", False)
        target = target_with(form.partition(",")[0])
        return Compiled({name: case.model for name, case in CASES.items()}, folder, target)


@pytest.mark.parametrize("name", CASES)
def test_compiled_operators_compute_their_definitions(compiled: Compiled, name: str) -> None:
    case = CASES[name]
    np.testing.assert_array_equal(compiled.run(name, case.inputs)["z"], case.expected)


@pytest.mark.parametrize("name", CASES)
def test_the_evaluator_computes_their_definitions(name: str) -> None:
    case = CASES[name]
    np.testing.assert_array_equal(evaluate(case.model, case.inputs)[0], case.expected)
