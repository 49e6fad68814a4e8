"""LayerNorm and RMSNorm in the forms of exporters become one kernel and stay right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from workbench.compiled import Compiled
from workbench.models.builder import Graph

WIDTH = 37


def _mean(g: Graph, x: str) -> str:
    return g.op("ReduceMean", x, axes=[-1], keepdims=1)


def _deviation(g: Graph, square: str) -> str:
    return g.op("Sqrt", g.op("Add", g.const(1e-5), _mean(g, square)))


def _torch(g: Graph, x: str) -> str:
    return g.layer_norm(x, WIDTH, decomposed=True)


def _product(g: Graph, x: str) -> str:
    """Squares as products, a reciprocal, the weights first and without a sum."""
    centred = g.op("Sub", x, _mean(g, x))
    factor = g.op("Reciprocal", _deviation(g, g.op("Mul", centred, centred)))
    return g.op("Mul", g.weight(1, 1, WIDTH), g.op("Mul", factor, centred))


def _two_differences(g: Graph, x: str) -> str:
    square = g.op("Pow", g.op("Sub", x, _mean(g, x)), g.const(2.0))
    return g.op(
        "Add", g.op("Div", g.op("Sub", x, _mean(g, x)), _deviation(g, square)), g.weight(WIDTH, std=1.0)
    )


def _rms(g: Graph, x: str) -> str:
    scaled = g.op("Div", x, _deviation(g, g.op("Pow", x, g.const(2.0))))
    return g.op("Mul", scaled, g.weight(WIDTH, std=1.0))


def _other_weights(g: Graph, x: str) -> str:
    """What follows is not a weight along the axis, or comes after the sum."""
    y = g.op("Mul", g.layer_norm(x, WIDTH, decomposed=True), g.weight(WIDTH, std=1.0))
    return g.op("Add", y, g.weight(5, 1, std=1.0))


FORMS: dict[str, tuple[Callable[[Graph, str], str], int]] = {
    "torch": (_torch, 1),
    "product": (_product, 1),
    "two differences": (_two_differences, 1),
    "rms": (_rms, 1),
    "other weights": (_other_weights, 2),
}


def _model(form: Callable[[Graph, str], str]) -> onnx.ModelProto:
    g = Graph("norm", seed=3, opset=14)
    g.op("Identity", form(g, g.input("x", (2, 5, WIDTH))), name="y")
    g.output("y")
    return g.model()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    models = {name: _model(form) for name, (form, _) in FORMS.items()}
    return Compiled(models, tmp_path_factory.mktemp("norms"))


@pytest.mark.parametrize("name", list(FORMS))
def test_norm_is_one_step_and_right(compiled: Compiled, name: str) -> None:
    _, steps = FORMS[name]
    assert len(compiled.plan(name).steps) <= steps
    compiled.check(name)


def test_what_is_read_elsewhere_is_kept(tmp_path: Path) -> None:
    g = Graph("norm", seed=3, opset=14)
    centred = g.op("Sub", g.input("x", (4, WIDTH)), _mean(g, "x"))
    g.op("Div", centred, _deviation(g, g.op("Mul", centred, centred)), name="y")
    g.op("Mul", "y", g.weight(WIDTH, std=1.0), name="z")
    g.output("y")
    g.output("z")
    Compiled({"m": g.model()}, tmp_path).check("m")
