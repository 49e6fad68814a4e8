"""Normalisations whose factor and summand are broadcast, and reductions of integers and over no axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.onnx import import_model
from workbench.compiled import Compiled
from workbench.models.builder import Graph

Shape = tuple[int, ...]

#: Of each normalisation: the shape, the factor's, the summand's (None for none), and the first axis.
NORMS: Mapping[str, tuple[Shape, Shape, Shape | None, int]] = {
    "a row of several": ((2, 3, 4), (1, 4), (4,), 1),
    "a row, of as many rows as it is long": ((2, 4, 4), (4,), None, 1),
    "a number": ((2, 3, 4), (1,), (), -1),
    "a column": ((2, 3, 4), (3, 1), (3, 4), -2),
    "another one for each row": ((2, 3, 4), (2, 1, 4), (3, 1), 2),
    "one that is large": ((2, 65, 64), (64,), (64,), 1),
}


def _norms() -> onnx.ModelProto:
    """LayerNormalization of constants; of one of them also of inputs, with its other results, of 64 bits."""
    g = Graph("norms")
    for number, (shape, factor, summand, axis) in enumerate(NORMS.values()):
        x = g.input(f"x{number}", shape)
        constants = [
            g.const(g.rng.normal(1, 0.5, size).astype(np.float32)) for size in (factor, summand or ())
        ]
        used = constants[: 1 if summand is None else 2]
        g.output(g.op("LayerNormalization", x, *used, axis=axis, name=f"y{number}"))
        if number:
            continue
        given = [g.input("factor", factor), g.input("summand", summand or ())]
        g.output(g.op("LayerNormalization", x, *given, axis=axis, name="of inputs"))
        for name in g.ops("LayerNormalization", x, *used, axis=axis, name="with others", outputs=3):
            g.output(name)
        double = [g.op("Cast", one, to=onnx.TensorProto.DOUBLE) for one in (x, *used)]
        g.output(g.op("LayerNormalization", *double, axis=axis, name="of 64 bits"), "float64")
    return g.model()


def _root_mean_squares() -> onnx.ModelProto:
    g = Graph("rms", opset=23)
    for number, (shape, factor, _, axis) in enumerate(NORMS.values()):
        x, scale = g.input(f"x{number}", shape), g.weight(*factor)
        g.output(g.op("RMSNormalization", x, scale, axis=axis, name=f"y{number}"))
    return g.model()


REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "SumSquare")


def _reductions(dtype: str) -> onnx.ModelProto:
    """Those that do something to each element, over one axis, and none."""
    g = Graph("reductions", opset=18)
    x = g.input("x", [3, 5], dtype)
    for op in REDUCTIONS:
        g.output(g.op(f"Reduce{op}", x, g.const([-1]), name=f"{op}_rows"), dtype)
        g.output(g.op(f"Reduce{op}", x, noop_with_empty_axes=1, name=f"{op}_each"), dtype)
    return g.model()


def _old_reductions() -> onnx.ModelProto:
    """Of opset 11, whose axes are attributes."""
    g = Graph("old", opset=11)
    x = g.input("x", [3, 5], "int32")
    for op in ("L1", "L2"):
        g.output(g.op(f"Reduce{op}", x, axes=[0], keepdims=0, name=op), "int32")
    return g.model()


MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "norms": _norms,
    "root mean squares": _root_mean_squares,
    "int64": lambda: _reductions("int64"),
    "uint32": lambda: _reductions("uint32"),
    "float32": lambda: _reductions("float32"),
    "opset 11": _old_reductions,
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled({name: make() for name, make in MODELS.items()}, tmp_path_factory.mktemp("norms"))


@pytest.mark.parametrize("name", ["norms", "root mean squares"])
def test_norms_against_onnxruntime(compiled: Compiled, name: str) -> None:
    """A factor of fewer dimensions than are normalised says nothing of how many these are."""
    compiled.check(name)


@pytest.mark.parametrize("dtype", ["int64", "uint32", "float32"])
def test_reductions_are_numpys(compiled: Compiled, dtype: str) -> None:
    x = np.asarray([[3, 4, 1, 1, 2], [6, 8, 1, 2, 5], [1, 1, 2, 9, 7]]).astype(dtype)
    got, wide = compiled.run(dtype, {"x": x}), x.astype(np.float64)
    for name, axis in (("rows", (1,)), ("each", ())):
        along = {"axis": axis, "keepdims": True}
        expected = (
            np.abs(wide).sum(**along),
            np.sqrt(np.square(wide).sum(**along)),
            np.log(wide.sum(**along)),
            np.log(np.exp(wide).sum(**along)),
            np.square(wide).sum(**along),
        )
        for op, value in zip(REDUCTIONS, expected, strict=True):
            found = got[f"{op}_{name}"]
            np.testing.assert_allclose(
                found, value.astype(dtype), rtol=1e-5, atol=1e-6, err_msg=f"{op} {name}"
            )


def test_lengths_of_negative_integers(compiled: Compiled) -> None:
    x = np.asarray([[3, -4, 0, 0, 0], [6, -8, 0, 0, 0], [-1, -1, -1, -1, -1]])
    got = compiled.run("int64", {"x": x})
    assert got["L2_rows"].reshape(-1).tolist() == [5, 10, 2]
    assert got["L1_rows"].reshape(-1).tolist() == [7, 14, 5]
    np.testing.assert_array_equal(got["L1_each"], np.abs(x))


def test_reductions_of_old_opsets(compiled: Compiled) -> None:
    inputs = {"x": np.arange(15, dtype=np.int32).reshape(3, 5) - 7}
    got = compiled.run("opset 11", inputs)
    np.testing.assert_array_equal(got["L1"], np.abs(inputs["x"]).sum(0))
    np.testing.assert_array_equal(got["L2"], np.trunc(np.sqrt(np.square(inputs["x"]).sum(0))))


def test_a_factor_is_not_stored_for_each_element_of_an_image() -> None:
    """64 numbers, not 64 for each of 65 rows."""
    g = Graph("image")
    g.output(g.op("LayerNormalization", g.input("x", [2, 65, 64]), g.weight(64), axis=1, name="y"))
    assert "LayerNormalization" not in import_model(g.model()).operators
