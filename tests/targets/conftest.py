"""Bundles that several files use."""

from __future__ import annotations

import pytest

import edgepack
from workbench.models import save, vision
from workbench.models.builder import Graph


def odd_names() -> Graph:
    """A network with names and dtypes that JavaScript has its own mind about."""
    g = Graph("odd", seed=2)
    x, count = g.input("my input:0", (2, 3)), g.input("count", (2,), "int64")
    g.op("MatMul", x, g.weight(3, 4), name='"quoted" \\ y')
    g.output('"quoted" \\ y')
    g.op("Add", count, count, name="class")
    g.output("class", "int64")
    g.op("Less", x, g.op("Neg", x), name="__proto__")
    g.output("__proto__", "bool")
    return g


def small_classifier() -> Graph:
    """Scores of an image, of a few layers."""
    g = Graph("classifier", seed=4)
    x = g.op("Relu", g.conv(g.input("input", (1, 3, 32, 32)), 3, 8, 3, bias=True))
    g.op("MatMul", g.op("Flatten", g.op("GlobalAveragePool", x)), g.weight(8, 100), name="logits")
    g.output("logits")
    return g


@pytest.fixture(scope="session")
def npm_bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, edgepack.Bundle]:
    """npm packages by the mode of their params: `file` and `caller` take an image, 32 x 32, and give 100
    scores; `embed` has several inputs and outputs. Not to be changed."""
    folder = tmp_path_factory.mktemp("npm bündles")
    image = save(vision.mobilenetv3(size=32), folder, "image.onnx")
    caller = save(small_classifier().model(), folder, "caller.onnx")
    odd = save(odd_names().model(), folder, "Odd.onnx")
    device = "wasm32-wasi"
    return {
        "file": edgepack.pack(image, device, folder / "image"),
        "caller": edgepack.pack(caller, device, folder / "caller", params="caller"),
        "embed": edgepack.pack(odd, device, folder / "odd", params="embed"),
    }
