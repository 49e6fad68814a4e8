"""Reductions and norms of odd shapes, for every shape of register file."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from workbench.compiled import SWEPT, Library, on_register_files, plan_of
from workbench.models import DIMS, build
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs
from workbench.models.single import single


def softmax(shape: tuple[int, ...], axis: int = -1) -> onnx.ModelProto:
    return single(shape, lambda g, x: g.op("Softmax", x, axis=axis))


def norm(shape: tuple[int, ...], *, decomposed: bool = False) -> onnx.ModelProto:
    return single(shape, lambda g, x: g.layer_norm(x, shape[-1], decomposed=decomposed))


def reduce(kind: str, shape: tuple[int, ...], axes: list[int], keepdims: int = 1) -> onnx.ModelProto:
    return single(shape, lambda g, x: g.op(kind, x, axes=axes, keepdims=keepdims))


def _reduce_sum(g: Graph, x: str) -> str:
    return g.op("ReduceSum", x, g.const(np.array([1])), keepdims=0)


def _shares(g: Graph, x: str) -> str:
    return g.op("Div", x, g.op("ReduceSum", x, g.const(np.array([1]))))


def _rms_norm(g: Graph, x: str) -> str:
    square = g.op("ReduceMean", g.op("Mul", x, x), axes=[-1])
    root = g.op("Sqrt", g.op("Add", square, g.const(1e-6)))
    return g.op("Mul", g.op("Div", x, root), g.weight(45, std=1.0))


def _masked_softmax(g: Graph, x: str) -> str:
    return g.op(
        "Softmax",
        g.op("Add", x, g.const(np.where(np.arange(19) < 12, 0, -np.inf).astype(np.float32))),
        axis=-1,
    )


def _instance_norm(g: Graph, x: str) -> str:
    return g.op("InstanceNormalization", x, g.weight(13, std=1.0), g.weight(13, std=1.0))


def _twice_the_maximum(g: Graph, x: str) -> str:
    return g.op("Mul", g.op("ReduceMax", x, axes=[1, 2]), g.const(2.0))


def _sums_of_whole_numbers(g: Graph, x: str) -> str:
    whole = g.op("Cast", g.op("Round", x), to=onnx.TensorProto.INT32)
    return g.op("ReduceSum", whole, g.const(np.array([0])))


def position(kind: str, shape: tuple[int, ...], axis: int, keepdims: int = 0) -> onnx.ModelProto:
    """Of the largest or smallest of whole numbers: there are many of each."""
    return single(
        shape, lambda g, x: g.op(kind, g.op("Round", x), axis=axis, keepdims=keepdims), result="int64"
    )


MODELS: dict[str, onnx.ModelProto] = {
    "softmax of one": softmax((3, 1)),
    "softmax of three": softmax((5, 3)),
    "shares of a sum": single((7, 45), _shares),
    "softmax of 17": softmax((2, 3, 17, 17)),
    "softmax of 64": softmax((7, 64)),
    "softmax of 1000": softmax((1, 1000)),
    "softmax over channels": softmax((2, 21, 5, 7), axis=1),
    "softmax over the rows": softmax((9, 33), axis=0),
    "softmax with a mask": single((4, 6, 19), _masked_softmax),
    "log softmax": single((6, 37), lambda g, x: g.op("LogSoftmax", x, axis=-1)),
    "layer norm": norm((1, 17, 64)),
    "layer norm of 45": norm((2, 5, 45)),
    "layer norm of 5": norm((11, 5)),
    "layer norm in pieces": norm((2, 9, 51), decomposed=True),
    "rms norm": single((3, 7, 45), _rms_norm),
    "sum": single((6, 23, 9), _reduce_sum),
    "mean of the last axis": reduce("ReduceMean", (5, 6, 43), [-1]),
    "mean of two axes": reduce("ReduceMean", (3, 8, 7, 9), [2, 3], 0),
    "mean of the middle": reduce("ReduceMean", (2, 7, 5, 39), [1, 2]),
    "mean of the middle, few channels": reduce("ReduceMean", (2, 7, 5, 3), [1, 2]),
    "maximum": reduce("ReduceMax", (9, 50), [1]),
    "minimum": reduce("ReduceMin", (4, 31, 18), [1]),
    "product": reduce("ReduceProd", (9, 11), [1]),
    "position of the maximum": position("ArgMax", (9, 50), 1),
    "position of the minimum": position("ArgMin", (2, 21, 5, 7), 1, keepdims=1),
    "everything": reduce("ReduceMean", (3, 5, 7), [0, 1, 2]),
    "l2": reduce("ReduceL2", (8, 29), [1]),
    "log of a sum of exponentials": reduce("ReduceLogSumExp", (8, 29), [1]),
    "instance norm": single((2, 13, 9, 6), _instance_norm),
    "global average": single((2, 70, 7, 7), lambda g, x: g.op("GlobalAveragePool", x)),
    "global average of an image": reduce("ReduceMean", (1, 14, 15, 90), [1, 2]),
    "maximum of an image": single((1, 25, 20, 37), _twice_the_maximum),
    "norms of long columns": reduce("ReduceL2", (1, 401, 45), [1]),
    "sums of long columns of whole numbers": single((630, 33), _sums_of_whole_numbers, result="int32"),
}
#: Those whose elements threads share, rather than the results.
IN_PARTS = (
    *("global average of an image", "maximum of an image"),
    *("norms of long columns", "sums of long columns of whole numbers"),
)


#: Rows of one vector and of several, with and without a rest; sums over other axes.
SENTINELS = (
    "softmax of 17",
    "softmax over channels",
    "softmax with a mask",
    "layer norm of 45",
    "rms norm",
    "sum",
    "mean of the middle",
    "maximum",
    "everything",
    "instance norm",
    "global average of an image",
    "maximum of an image",
)
#: Those that tests below look at.
BOTH = (
    *("softmax of 17", "softmax of 1000", "layer norm of 45", "sum", "maximum", "minimum"),
    *("shares of a sum", "position of the maximum"),
)
ON_REGISTER_FILES = on_register_files(MODELS, SENTINELS, others=("scalar", "128x32", "256x16"), both=BOTH)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(MODELS, ON_REGISTER_FILES, tmp_path_factory.mktemp("rowwise"))


@pytest.mark.parametrize(("registers", "name"), ON_REGISTER_FILES)
def test_reduction_is_served_by_the_rule_and_right(library: Library, registers: str, name: str) -> None:
    compiled = library(registers)
    plan = compiled.plan(name)
    assert not plan.warnings
    assert {kernel.rule for kernel in plan.kernels} <= {"rowwise", "elementwise"}
    assert name == "softmax of one" or "rowwise" in {kernel.rule for kernel in plan.kernels}
    compiled.check(name)


@pytest.mark.parametrize("name", IN_PARTS)
def test_threads_share_the_elements_of_few_results(library: Library, name: str) -> None:
    registers = next(registers for registers, one in ON_REGISTER_FILES if one == name)
    parts = {k.parameters.get("parts") for k in library(registers).plan(name).kernels}
    assert 6 in parts  # two for each of three threads


@pytest.mark.parametrize("registers", SWEPT)
def test_quotients_by_a_sum_of_any_size(library: Library, registers: str) -> None:
    numbers = np.arange(1, 46)
    sizes = np.array([2.0**-140, 2.0**-100, 1, 2.0**100, 2.0**117, 0, np.inf], np.float32)
    got = library(registers).run("shares of a sum", {"x": sizes[:, None] * numbers.astype(np.float32)})["y"]
    np.testing.assert_allclose(got[:5], np.tile(numbers / numbers.sum(), (5, 1)), rtol=2.4e-7)
    assert np.isnan(got[5:]).all()


@pytest.mark.parametrize("registers", SWEPT)
def test_position_in_a_row_of_infinities_is_the_first(library: Library, registers: str) -> None:
    x = np.full((9, 50), -np.inf, np.float32)
    x[1, 7], x[2, 49], x[3, 5:] = -1, np.inf, 2
    got = library(registers).run("position of the maximum", {"x": x})["y"]
    assert got.tolist() == [0, 7, 49, 5, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("registers", SWEPT)
@pytest.mark.parametrize("name", ["softmax of 17", "layer norm of 45", "sum", "maximum", "minimum"])
def test_nan_stays_in_its_own_row(library: Library, registers: str, name: str) -> None:
    compiled = library(registers)
    inputs = random_inputs(MODELS[name], 6)
    x = inputs["x"]
    row = (0,) * (x.ndim - 1)
    x[(*row, 1)] = np.nan
    (got,) = compiled.run(name, inputs).values()
    clean = compiled.run(name, {"x": np.nan_to_num(x)})["y"]
    reached = np.isnan(got)
    assert reached.any() and not reached.all()
    np.testing.assert_array_equal(got[~reached], clean[~reached])
    if name == "softmax of 17":
        assert reached.sum() == 17


@pytest.mark.parametrize("registers", SWEPT)
@pytest.mark.parametrize("name", ["softmax of 17", "softmax of 1000"])
def test_softmax_of_large_and_infinite_logits(library: Library, registers: str, name: str) -> None:
    compiled = library(registers)
    x = random_inputs(MODELS[name], 8)["x"] * 200
    x[..., 3] = -np.inf
    got = compiled.run(name, {"x": x})["y"]
    expected = compiled.expected(name, {"x": x})["y"]
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-7)
    assert (got[..., 3] == 0).all()


@pytest.mark.parametrize("network", ["bert", "vit", "segformer", "convnext"])
def test_norms_and_softmaxes_of_networks_are_served(network: str) -> None:
    from edgepack.compiler.frontend.onnx.binding import bind

    onnx_model = build(network)
    bind(onnx_model, shapes={}, dims=DIMS.get(network, {}))
    plan = plan_of(onnx_model, network).plan
    assert not {k.rule for k in plan.kernels} & {"generic", "rows", "plain"}
    wanted = [k for k in plan.kernels if {"softmax", "layer_norm", "mean"} & set(k.ops)]
    assert wanted and {k.rule for k in wanted} == {"rowwise"}
