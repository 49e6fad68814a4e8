"""RoiAlign of regions that are empty, inverted, outside of the image, or no numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from workbench.compiled import Compiled
from workbench.models.builder import Graph

NAN, INF = np.nan, np.inf

REGIONS = np.array(
    [
        *(
            [0, 0, 4, 4],
            [0, 0, 0, 0],
            [3, 3, 3, 3],
            [3, 3, 3, 5],
            [5, 5, 2, 2],
            [5, 2, 2, 5],
            [-5, -5, -2, -2],
        ),
        *(
            [20, 20, 30, 30],
            [-100, -100, 100, 100],
            [0, 0, 0.5, 0.5],
            [7, 7, 8.5, 8.9],
            [2.5, 1.5, 6.25, 7.75],
        ),
        *([NAN, 0, 4, 4], [0, NAN, 4, 4], [0, 0, NAN, 4], [NAN] * 4),
    ],
    np.float32,
)

#: Regions of more pixels than a run could count.
ENDLESS = np.array([[-1e9, -1e9, 1e9, 1e9], [0, 0, INF, INF], [-3e38, -3e38, 3e38, 3e38]], np.float32)

FORMS = {
    "adaptive": (16, {}),
    "old": (10, {"spatial_scale": 0.5}),
    "many samples": (16, {"sampling_ratio": 7}),
}


def _model(opset: int, count: int, **attributes: object) -> onnx.ModelProto:
    g = Graph("regions", opset=opset)
    names = g.input("x", (2, 3, 8, 9)), g.input("r", (count, 4)), g.input("b", (count,), "int64")
    g.output(g.op("RoiAlign", *names, name="y", output_height=2, output_width=3, **attributes))
    return g.model()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    models = {name: _model(opset, len(REGIONS), **form) for name, (opset, form) in FORMS.items()}
    folder: Path = tmp_path_factory.mktemp("regions")
    return Compiled(models, folder)


@pytest.mark.parametrize("form", FORMS)
def test_regions_without_samples_are_0(compiled: Compiled, form: str) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 8, 9)).astype(np.float32)
    # ONNX Runtime refuses NaN, and counts the samples of an inverted region in a type without signs.
    inverted = (REGIONS[:, 2:] < REGIONS[:, :2]).any(axis=1) & (form == "adaptive")
    empty = np.isnan(REGIONS).any(axis=1) | inverted
    inputs = {"x": x, "r": REGIONS, "b": np.arange(len(REGIONS)) % 2}
    known = np.where(empty[:, None], 1, REGIONS).astype(np.float32)
    wanted = compiled.expected(form, {**inputs, "r": known})["y"]
    wanted[empty] = 0
    np.testing.assert_allclose(compiled.run(form, inputs)["y"], wanted, rtol=1e-4, atol=1e-5)


def test_samples_outside_of_the_image_are_not_counted_one_by_one(compiled: Compiled) -> None:
    regions = np.resize(ENDLESS, REGIONS.shape)
    inputs = {"x": np.ones((2, 3, 8, 9), np.float32), "r": regions, "b": np.zeros(len(regions), np.int64)}
    found = compiled.run("adaptive", inputs)["y"]
    assert (np.abs(found) < 1e-6).all()
    # What a run is estimated to take stands in the manifest, whose numbers have 63 bits.
    assert sum(kernel.flops for kernel in compiled.plan("adaptive").kernels) < 1 << 40
