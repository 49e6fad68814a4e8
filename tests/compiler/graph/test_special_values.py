"""Operators give what ONNX's specification says for NaN, infinities, zeros and large numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.onnx.standard_evaluator import evaluate
from tests.compiler.kernels.test_gpu import target as gpu_target
from tests.support.opencl import OpenClExecutor, driver
from workbench.compiled import SWEPT, Compiled, plan_of, target_with
from workbench.models.builder import Graph

Array = np.ndarray[Any, Any]
NAN, INF = np.nan, np.inf

#: Ends, and numbers at which functions are close to 0 or to 1.
NUMBERS = np.array(
    [
        *(0, -0.0, NAN, INF, -INF, 3.4e38, -3.4e38, 1e-37, -1e-37),
        *(
            s * x
            for x in (0.5, 1, 2, 2.5, 3, 6, 7, 9, 11, 13, 15, 17, 20, 25, 30, 50, 80, 1e4)
            for s in (1, -1)
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
    **{
        name: [{}]
        for name in ("Abs", "Ceil", "Erf", "Exp", "Floor", "HardSwish", "Log", "Mish", "Neg", "Relu")
    },
    **{name: [{}] for name in ("Reciprocal", "Round", "Sign", "Softplus", "Softsign", "Sqrt", "Tanh")},
    **{name: [{}] for name in ("IsNaN", "IsInf", "Sigmoid", "Gelu")},
    "Clip": [{"min": -1.0}, {"max": 2.0}, {"min": -INF, "max": INF}],
    "HardSigmoid": [{}, {"alpha": 0.0}],
    "LeakyRelu": [{"alpha": 0.0}, {"alpha": 0.5}, {"alpha": -1.0}],
    "ThresholdedRelu": [{"alpha": 0.0}, {"alpha": -2.0}, {}],
}

#: Numbers that operators of two operands meet, as one of them.
WITH_NUMBER = {"Mul": (0.0, -0.0), "Div": (0.0, -0.0, INF), "Pow": (-1.0, INF, 0.3, -1.5)}

REDUCTIONS = ("ReduceMax", "ReduceMin", "ReduceLogSumExp", "ReduceL1", "ReduceL2", "ReduceSum", "ReduceProd")


def _elementwise() -> onnx.ModelProto:
    g = Graph("elementwise", opset=20)
    x = g.input("x", NUMBERS.shape)
    for name, forms in UNARY.items():
        for i, form in enumerate(forms):
            given, attributes = [x], form
            if name == "Clip":
                given += [g.const(np.float32(form[end])) if end in form else "" for end in ("min", "max")]
                attributes = {}
            made = g.op(name, *given, name=f"{name} {i}", **attributes)
            g.output(made, "bool" if name.startswith("Is") else "float32")
    for name, numbers in WITH_NUMBER.items():
        for i, number in enumerate(numbers):
            constant = g.const(np.float32(number))
            g.output(g.op(name, x, constant, name=f"{name} {i} by"))
            g.output(g.op(name, constant, x, name=f"{name} {i} of"))
    return g.model()


def _reduced(axis: int) -> onnx.ModelProto:
    g = Graph("reduced", opset=18)
    x = g.input("x", ROWS.shape if axis == 1 else ROWS.T.shape)
    for name in REDUCTIONS:
        g.output(g.op(name, x, g.const(np.array([axis])), name=name, keepdims=0))
    for name in ("ArgMax", "ArgMin"):
        for last in (0, 1):
            made = g.op(name, x, name=f"{name} {last}", axis=axis, select_last_index=last, keepdims=last)
            g.output(made, "int64")
    for count, largest in ((1, 0), (1, 1), (3, 0), (3, 1)):
        k, name = g.const(np.array([count])), f"TopK {count} {largest}"
        values, indices = g.ops("TopK", x, k, outputs=2, name=name, axis=axis, largest=largest)
        g.output(values)
        g.output(indices, "int64")
    return g.model()


#: Ends of unsigned integers.
BYTES = np.array([0, 1, 2, 127, 128, 254, 255], np.uint8)


def _integers() -> onnx.ModelProto:
    g = Graph("integers", opset=17)
    x = g.input("x", BYTES.shape, "uint8")
    for name in ("Sign", "Abs"):
        g.output(g.op(name, x, name=name), "uint8")
    return g.model()


#: Windows in forms that kernels, slices and gathers compute.
POOLINGS: list[dict[str, Any]] = [
    {"kernel_shape": [1, 3], "pads": [0, 1, 0, 1]},
    {"kernel_shape": [2, 2], "strides": [2, 5]},
    {"kernel_shape": [5, 4], "pads": [2, 2, 2, 1]},
]


def _pooled() -> onnx.ModelProto:
    g = Graph("pooled", opset=17)
    x = g.input("x", (1, 1, *ROWS.shape))
    for i, form in enumerate(POOLINGS):
        g.output(g.op("MaxPool", x, name=f"values {i}", **form))
    values, _ = g.ops("MaxPool", x, outputs=2, name="with indices", **POOLINGS[0])
    g.output(values)
    return g.model()


MODELS = {
    "integers": _integers(),
    "pooled": _pooled(),
    "elementwise": _elementwise(),
    "rows": _reduced(1),
    "columns": _reduced(0),
}
INPUTS = {
    "integers": BYTES,
    "pooled": ROWS[None, None],
    "elementwise": NUMBERS,
    "rows": ROWS,
    "columns": np.ascontiguousarray(ROWS.T),
}


def _windows(x: Array, name: str) -> Array:
    """The largest number of each window, which NaN is not."""
    form = POOLINGS[int(name[-1]) if name[-1].isdigit() else 0]
    top, left, bottom, right = form.get("pads", [0] * 4)
    numbers = np.where(np.isnan(x), np.float32(-INF), x)
    padded = np.pad(numbers, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=-INF)
    windows = np.lib.stride_tricks.sliding_window_view(padded, form["kernel_shape"], (2, 3))
    down, across = form.get("strides", [1, 1])
    return np.asarray(windows.max((-1, -2))[:, :, ::down, ::across])


@pytest.fixture(scope="module", params=SWEPT)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled(MODELS, tmp_path_factory.mktemp("special"), target_with(request.param))


@pytest.mark.parametrize("name", MODELS)
def test_special_numbers_give_what_the_specification_says(compiled: Compiled, name: str) -> None:
    x = INPUTS[name]
    found = compiled.run(name, {"x": x})
    if name == "pooled":
        wanted = {output: _windows(x, output) for output in found}
    else:
        wanted = dict(zip(found, evaluate(MODELS[name], {"x": x}), strict=True))
    if name in {"rows", "columns"}:  # ONNX's evaluator subtracts infinities from each other
        with np.errstate(all="ignore"):
            wanted["ReduceLogSumExp"] = np.logaddexp.reduce(x, axis=1 if name == "rows" else 0)
    for output, values in wanted.items():
        assert found[output].dtype == values.dtype
        # Results below the smallest normal number are 0.
        np.testing.assert_allclose(found[output], values, rtol=3e-5, atol=3e-37, err_msg=output)


def test_a_gpus_larger_numbers_are_nan_where_one_is(tmp_path: Path) -> None:
    g = Graph("larger", opset=18)
    x, y = g.input("x", ROWS.shape), g.input("y", ROWS.shape)
    for name, operands in {"Max": [x, y], "Min": [x, y], "Relu": [x]}.items():
        g.output(g.op(name, *operands, name=name))
    for name in ("ReduceMax", "ReduceMin"):
        g.output(g.op(name, x, g.const(np.array([1])), name=name, keepdims=0))
    model, inputs = g.model(), {"x": ROWS, "y": np.ascontiguousarray(ROWS[:, ::-1])}
    built = {"m": plan_of(model, "m", gpu_target())}
    executor = OpenClExecutor(built, tmp_path / "kernels", driver(tmp_path / "pocl"))
    found = executor.run("m", [inputs[spec.name] for spec in built["m"].plan.inputs])
    for values, wanted in zip(found, evaluate(model, inputs), strict=True):
        np.testing.assert_array_equal(values, wanted)
