"""Operators give what ONNX's specification says for NaN, infinities, zeros and large numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.onnx.standard_evaluator import evaluate
from workbench.compiled import SWEPT, Compiled, target_with
from workbench.models.builder import Graph

Array = np.ndarray[Any, Any]
NAN, INF = np.nan, np.inf

#: Ends, and numbers at which functions are close to 0 or to 1.
NUMBERS = np.array(
    [
        *(0, -0.0, NAN, INF, -INF, 3.4e38, -3.4e38, 1e-37, -1e-37),
        *(
            sign * x
            for x in (0.5, 1, 2, 2.5, 3, 6, 7, 9, 11, 13, 15, 17, 20, 25, 30, 50, 80, 1e4)
            for sign in (1, -1)
        ),
    ],
    np.float32,
)

#: Rows with NaN and infinities at each place.
ROWS = np.stack(
    [
        np.resize(np.array(row, np.float32), 37)
        for row in (
            *([0, 1, 2], [INF, 1, 2], [-INF, 1, 2], [NAN, 1, 2], [1, 2, NAN], [-INF], [INF], [NAN]),
            *([INF, -INF], [-INF, NAN], [3, 3, 2, 3], [NAN, 3, NAN, 9], [1] * 36 + [NAN], [NAN] + [1] * 36),
            *([1] * 20 + [NAN] + [2] * 16, [100, -100], [0], [-0.0, 0.0], [-200, -201]),
        )
    ]
)

#: Attributes of elementwise operators of one operand, each of which is tried.
UNARY: dict[str, list[dict[str, Any]]] = {
    **{name: [{}] for name in ("Abs", "Ceil", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish", "Log")},
    **{name: [{}] for name in ("Mish", "Neg", "Reciprocal", "Relu", "Round", "Sign", "Softplus", "Softsign")},
    **{name: [{}] for name in ("Sqrt", "Tanh", "IsNaN", "IsInf", "Sigmoid")},
    "Clip": [{"min": -1.0}, {"max": 2.0}, {"min": -INF, "max": INF}],
    "Gelu": [{}],
    "HardSigmoid": [{"alpha": 0.0}],
    "LeakyRelu": [{"alpha": 0.0}, {"alpha": 0.5}, {"alpha": -1.0}],
    "ThresholdedRelu": [{"alpha": 0.0}, {"alpha": -2.0}, {}],
}


def _unary(name: str, attributes: dict[str, Any]) -> onnx.ModelProto:
    g = Graph("unary", opset=20)
    x = g.input("x", NUMBERS.shape)
    if name == "Clip":
        bounds = [g.const(np.float32(attributes[end])) if end in attributes else "" for end in ("min", "max")]
        g.output(g.op(name, x, *bounds, name="y"))
    else:
        g.output(g.op(name, x, name="y", **attributes), "bool" if name.startswith("Is") else "float32")
    return g.model()


def _with_number(name: str, number: float, *, first: bool) -> onnx.ModelProto:
    g = Graph("with_number", opset=17)
    x, constant = g.input("x", NUMBERS.shape), g.const(np.float32(number))
    g.output(g.op(name, *((constant, x) if first else (x, constant)), name="y"))
    return g.model()


def _reduced(name: str, axis: int, **attributes: Any) -> onnx.ModelProto:
    g = Graph("reduced", opset=18)
    x = g.input("x", ROWS.shape if axis == 1 else ROWS.T.shape)
    if name.startswith("Arg"):
        g.output(g.op(name, x, name="y", axis=axis, **attributes), "int64")
    else:
        g.output(g.op(name, x, g.const(np.array([axis])), name="y", keepdims=0))
    return g.model()


def _top(count: int, largest: int) -> onnx.ModelProto:
    g = Graph("top", opset=17)
    names = g.ops("TopK", g.input("x", ROWS.shape), g.const(np.array([count])), outputs=2, largest=largest)
    g.output(names[0])
    g.output(names[1], "int64")
    return g.model()


REDUCTIONS = ("ReduceMax", "ReduceMin", "ReduceLogSumExp", "ReduceL1", "ReduceL2", "ReduceSum", "ReduceProd")
MODELS = {
    **{f"{name} {i}": _unary(name, one) for name, forms in UNARY.items() for i, one in enumerate(forms)},
    **{
        f"{name} {number} {first}": _with_number(name, number, first=first)
        for name, numbers in {
            "Mul": (0.0, -0.0),
            "Div": (0.0, -0.0, INF),
            "Pow": (-1.0, INF, 0.3, -1.5),
        }.items()
        for number in numbers
        for first in (False, True)
    },
    **{f"{name} {axis}": _reduced(name, axis) for name in REDUCTIONS for axis in (0, 1)},
    **{
        f"{name} {axis} {last}": _reduced(name, axis, select_last_index=last, keepdims=last)
        for name in ("ArgMax", "ArgMin")
        for axis in (0, 1)
        for last in (0, 1)
    },
    **{f"TopK {count} {largest}": _top(count, largest) for count in (1, 3) for largest in (0, 1)},
}


def _log_sum_exp(x: Array, name: str) -> list[Array]:
    """Of infinities too, which ONNX's evaluator subtracts from each other."""
    with np.errstate(all="ignore"):
        return [np.logaddexp.reduce(x, axis=int(name[-1]))]


@pytest.fixture(scope="module", params=SWEPT)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled(MODELS, tmp_path_factory.mktemp("special"), target_with(request.param))


@pytest.mark.parametrize("name", MODELS)
def test_special_numbers_give_what_the_specification_says(compiled: Compiled, name: str) -> None:
    shape = [d.dim_value for d in MODELS[name].graph.input[0].type.tensor_type.shape.dim]
    x = next(one for one in (NUMBERS, ROWS, np.ascontiguousarray(ROWS.T)) if list(one.shape) == shape)
    wanted = _log_sum_exp(x, name) if name.startswith("ReduceLogSumExp") else evaluate(MODELS[name], {"x": x})
    for found, expected in zip(compiled.run(name, {"x": x}).values(), wanted, strict=True):
        assert found.dtype == expected.dtype
        # Results below the smallest normal number are 0.
        np.testing.assert_allclose(found, expected, rtol=3e-5, atol=3e-37)
