"""A position that depends on data is proved in range, or brought there, whatever legalisation computes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tvm import te, tirx
from tvm.ir import IRModule, PrimType

from edgepack.compiler.graph.index_bounds import Bounds
from edgepack.compiler.graph.positions import position
from edgepack.compiler.graph.safe_addresses import check_addresses, safe_addresses
from workbench.compiled import Compiled
from workbench.models.builder import Graph

Element = Callable[[Any, Any, Any], Any]


def _function(element: Element, ids: str = "int64", extent: int = 9) -> tirx.PrimFunc:
    """``y[i] = element(x, ids, i)`` of four elements, x of ``extent``."""
    x = te.placeholder((extent,), "float32", "x")
    indices = te.placeholder((4,), ids, "ids")
    y = te.compute((4,), lambda i: element(x, indices, i), name="y")
    return te.create_prim_func([x, indices, y])


def _whole(x: Any) -> Any:
    return tirx.Cast("int32", x)


#: What is not proved as it stands: the type of the indices, and the element.
WILD: dict[str, tuple[str, Element]] = {
    "any": ("int64", lambda x, ids, i: x[ids[i]]),
    "below": ("int64", lambda x, ids, i: x[tirx.min(ids[i], tirx.const(8, "int64"))]),
    "above": ("int64", lambda x, ids, i: x[tirx.max(ids[i], tirx.const(0, "int64"))]),
    "behind": ("int64", lambda x, ids, i: x[position(ids(i), 9) + 1]),
    "a longer axis": ("int64", lambda x, ids, i: x[position(ids(i), 10)]),
    "a remainder that may be negative": ("int32", lambda x, ids, i: x[tirx.truncmod(ids(i), 9)]),
    "a byte": ("uint8", lambda x, ids, i: x[_whole(ids(i))]),
    "a sum that overflows": ("int32", lambda x, ids, i: x[tirx.max(ids(i), 0) + tirx.max(ids(i), 0)]),
    "a float": ("float32", lambda x, ids, i: x[_whole(ids(i))]),
    "a float that is bounded, or NaN": (
        "float32",
        lambda x, ids, i: x[_whole(tirx.max(tirx.min(ids(i), tirx.const(8.0)), tirx.const(0.0)))],
    ),
    "of positions that are looked up": ("int64", lambda x, ids, i: x[ids[position(ids(i), 4)]]),
}

PROVED: dict[str, tuple[str, Element]] = {
    "a position": ("int64", lambda x, ids, i: x[position(ids(i), 9)]),
    "a position that is no int64": ("uint8", lambda x, ids, i: x[position(ids(i), 9)]),
    "a remainder": ("int32", lambda x, ids, i: x[tirx.floormod(ids(i), 9)]),
    "some bits": ("int32", lambda x, ids, i: x[tirx.bitwise_and(ids(i), tirx.const(7, "int32"))]),
    "parts of one": ("int64", lambda x, ids, i: x[tirx.floordiv(position(ids(i), 36), 4)]),
}


@pytest.mark.parametrize("name", WILD)
def test_what_is_not_proved_is_brought_into_range(name: str) -> None:
    dtype, element = WILD[name]
    function = _function(element, dtype)
    with pytest.raises(RuntimeError, match="axis 0 of x may be out of range"):
        check_addresses("y", function)
    (guarded,) = safe_addresses(IRModule({"y": function})).functions.values()
    check_addresses("y", guarded)


@pytest.mark.parametrize("name", PROVED)
def test_what_is_proved_stays_as_it_is(name: str) -> None:
    dtype, element = PROVED[name]
    function = _function(element, dtype)
    check_addresses("y", function)
    (same,) = safe_addresses(IRModule({"y": function})).functions.values()
    assert same.same_as(function)


def test_what_a_function_has_computed_itself_is_known() -> None:
    x, ids = te.placeholder((9,), "float32", "x"), te.placeholder((4,), "int64", "ids")
    near = te.compute((4,), lambda i: position(ids(i), 9), name="near")
    y = te.compute((4,), lambda i: x[near[i]], name="y")
    check_addresses("y", te.create_prim_func([x, ids, y]))


def test_a_loop_as_long_as_data_say_is_no_proof() -> None:
    x, n = te.placeholder((9,), "float32", "x"), te.placeholder((1,), "int32", "n")
    k = te.reduce_axis((0, n[0]), "k")
    y = te.compute((1,), lambda i: te.sum(x[k], axis=k), name="y")
    function = te.create_prim_func([x, n, y])
    with pytest.raises(RuntimeError, match="may be out of range"):
        check_addresses("y", function)
    (guarded,) = safe_addresses(IRModule({"y": function})).functions.values()
    check_addresses("y", guarded)


def test_bounds_are_those_of_arithmetic() -> None:
    bounds = Bounds(_function(PROVED["a position"][1]))
    a, b = tirx.Var("a", PrimType("int32")), tirx.const(3, "int32")
    a = tirx.Max(tirx.Min(a, tirx.const(5, "int32")), tirx.const(-7, "int32"))
    found = [bounds.of(x) for x in (a + b, a - b, a * b, tirx.floordiv(a, b), tirx.floormod(a, b))]
    assert found == [(-4, 8), (-10, 2), (-21, 15), (-3, 1), (0, 2)]


def _sampled(channels: int, mode: str, padding: str) -> onnx.ModelProto:
    g = Graph("sampled", opset=20)
    x, grid = g.input("x", (2, channels, 5, 7)), g.input("grid", (2, 3, 4, 2))
    g.op("GridSample", x, grid, mode=mode, padding_mode=padding, name="y")
    g.output("y")
    return g.model()


def _deformed() -> onnx.ModelProto:
    g = Graph("deformed", opset=19)
    w = g.const(np.ones((2, 2, 3, 3), np.float32))
    g.op("DeformConv", g.input("x", (1, 2, 6, 6)), w, g.input("offset", (1, 18, 4, 4)), name="y")
    g.output("y")
    return g.model()


def _regions(ratio: int) -> onnx.ModelProto:
    g = Graph("regions", opset=16)
    operands = [g.input("x", (2, 3, 6, 6)), g.input("rois", (2, 4)), g.const(np.asarray([0, 1]))]
    g.op("RoiAlign", *operands, output_height=2, output_width=2, sampling_ratio=ratio, name="y")
    g.output("y")
    return g.model()


def _pooled() -> onnx.ModelProto:
    g = Graph("pooled", opset=16)
    g.op("MaxRoiPool", g.input("x", (2, 3, 6, 6)), g.input("rois", (2, 5)), pooled_shape=[2, 2], name="y")
    g.output("y")
    return g.model()


#: Models that compute positions of floats, and the input that has these.
SAMPLERS: dict[str, tuple[onnx.ModelProto, str]] = {
    **{
        f"sampled_{channels}_{mode}_{padding}": (_sampled(channels, mode, padding), "grid")
        for channels in (1, 4)
        for mode, padding in (("linear", "zeros"), ("nearest", "border"))
    },
    "sampled_4_cubic_reflection": (_sampled(4, "cubic", "reflection"), "grid"),
    "deformed": (_deformed(), "offset"),
    "regions": (_regions(2), "rois"),
    "pooled": (_pooled(), "rois"),
}


@pytest.fixture(scope="module")
def samplers(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    folder: Path = tmp_path_factory.mktemp("samplers")
    return Compiled({name: model for name, (model, _) in SAMPLERS.items()}, folder)


@pytest.mark.parametrize("name", SAMPLERS)
def test_positions_of_floats_that_are_none_read_nothing_elsewhere(samplers: Compiled, name: str) -> None:
    """NaN, infinities and numbers beyond any integer. What is around the image is a number that no weighted
    sum of ones is; memory that is not there ends the process."""
    model, positions = SAMPLERS[name]
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input}
    for number, value in enumerate((np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9, -3e9)):
        inputs = {key: np.ones(shape, np.float32) for key, shape in shapes.items()}
        inputs[positions][...] = np.float32(value)
        y = samplers.run(name, inputs, seed=number)["y"]
        assert not (np.isfinite(y) & (np.abs(y) > 100)).any(), value
