"""Float models, and how they are quantised in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.quantise.command import quantise
from edgepack.plan.quantisation import QuantisationFigures, QuantiseSettings, UserFiles
from workbench.models import save
from workbench.models.builder import Graph


def quiet(stage: str, detail: str) -> None:
    """Takes the place of a progress line."""
    del stage, detail


def made(
    model: onnx.ModelProto,
    folder: Path,
    calibration: Path | None = None,
    options: ImportOptions | None = None,
    accuracy: Path | None = None,
    **settings: Any,
) -> tuple[onnx.ModelProto, QuantisationFigures]:
    """The quantised model, and what is said of it."""
    path = save(model, folder, "float.onnx")
    chosen = QuantiseSettings(**{"samples": 4, **settings})
    data = UserFiles(calibration, accuracy, folder)
    figures = quantise(path, options or ImportOptions(), folder, chosen, data, quiet)
    return onnx.load(str(folder / "quantised.onnx")), figures


def kept(model: onnx.ModelProto, old: Path, folder: Path) -> tuple[onnx.ModelProto, QuantisationFigures]:
    """A float model quantised with the scales of ``old``, and what is said of it."""
    path = save(model, folder, "retrained.onnx")
    files = UserFiles(None, None, folder, old)
    figures = quantise(path, ImportOptions(), folder, QuantiseSettings(samples=4), files, quiet)
    return onnx.load(str(folder / "quantised.onnx")), figures


def convolutions(seed: int = 0) -> onnx.ModelProto:
    """Two convolutions with Relu, a residual sum, a mean and a classifier of 5."""
    g = Graph("convolutions", seed=seed)
    x = g.input("image", (1, 3, 8, 8))
    first = g.op("Relu", g.op("Conv", x, g.weight(8, 3, 3, 3), g.weight(8), pads=[1] * 4, name="first"))
    second = g.op("Conv", first, g.weight(8, 8, 3, 3), pads=[1] * 4, name="second")
    y = g.op("Relu", g.op("Add", first, second, name="sum"))
    y = g.op("Flatten", g.op("GlobalAveragePool", y, name="mean"))
    g.op("Gemm", y, g.weight(8, 5), g.weight(5), name="scores")
    g.output("scores")
    return g.model()


def transformer(seed: int = 0) -> onnx.ModelProto:
    """A feed-forward block as exporters write it: MatMul and Add, GELU by Erf, a sum, a norm."""
    g = Graph("transformer", seed=seed)
    x = g.input("tokens", (1, 6, 16))
    wide = g.op("Add", g.weight(32), g.op("MatMul", x, g.weight(16, 32, std=0.25), name="up"), name="up_bias")
    erf = g.op("Erf", g.op("Div", wide, g.const(1.4142135)))
    gelu = g.op("Mul", g.op("Mul", wide, g.op("Add", erf, g.const(1.0))), g.const(0.5), name="gelu")
    down = g.op("Add", g.op("MatMul", gelu, g.weight(32, 16), name="down"), g.weight(16), name="down_bias")
    total = g.op("Add", down, x, name="residual")
    y = g.op("LayerNormalization", total, g.weight(16, mean=1.0), g.weight(16), name="norm")
    g.op("MatMul", y, g.weight(16, 3), name="scores")
    g.output("scores")
    return g.model()
