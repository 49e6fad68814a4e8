"""Networks as ONNX Runtime's own quantiser leaves them are taken, and compute what ONNX Runtime does within
what is recorded as their tolerance."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.frontend.onnx.binding import bind
from edgepack.compiler.frontend.onnx.normalise import normalise
from edgepack.compiler.frontend.onnx.reference import record
from workbench.compiled import Compiled
from workbench.models import DIMS, NETWORKS, save, transformers
from workbench.models.evaluate import run_onnxruntime
from workbench.models.quantise import SCHEMES, convolutional, quantise

SMALL: dict[str, Callable[[], onnx.ModelProto]] = {
    "convolutional": convolutional,
    "transformer": partial(transformers.bert, batch=1, length=8, layers=2, width=32),
}

#: The same without what takes long to compile: only its products are quantised.
PRODUCTS = {"op_types_to_quantize": ["MatMul"]}
DISTILLED = partial(SMALL["transformer"], distilled=True, decomposed_norm=False)

#: What is compiled: as it is quantised by default, by both formats, and dynamically.
COMPILED: dict[str, Callable[[], onnx.ModelProto]] = {
    "convolutional_u8s8": lambda: quantise(convolutional(), "u8s8"),
    "convolutional_qoperator": lambda: quantise(convolutional(), "qoperator"),
    "transformer_u8s8": lambda: quantise(DISTILLED(), "u8s8", **PRODUCTS),
    "transformer_dynamic": lambda: quantise(DISTILLED(), "dynamic"),
}

#: Those of the slow sweep.
NETWORKS_SWEPT = (
    *("resnet18", "mobilenetv2", "mobilenetv3", "efficientnet", "regnet", "ds_cnn", "unet_resize", "yolo"),
    *("mlp", "bert", "vit", "tcn"),
)


class Recorded:
    """Inputs, outputs and tolerances of a model, as a pack records them."""

    def __init__(self, model: onnx.ModelProto, folder: Path) -> None:
        path = save(model, folder)
        specs = import_model(model).signature.inputs
        self.warnings = record(path, specs, ImportOptions(), seed=1, inputs={}, directory=folder / "recorded")
        data = json.loads((folder / "recorded" / "recorded.json").read_text(encoding="utf-8"))
        self.inputs, self.outputs = (
            {
                item["name"]: np.fromfile(folder / "recorded" / item["file"], item["dtype"]).reshape(
                    item["shape"]
                )
                for item in data[kind]
            }
            for kind in ("inputs", "outputs")
        )
        self.limits = {item["name"]: (item["atol"], item["rtol"]) for item in data["outputs"]}

    def check(self, found: dict[str, np.ndarray]) -> None:
        for name, wanted in self.outputs.items():
            absolute, relative = self.limits[name]
            np.testing.assert_allclose(found[name], wanted, rtol=relative, atol=absolute, err_msg=name)
            assert absolute < 0.5 * np.abs(wanted).max(), "zeros would pass"


#: Schemes in which the transformer is quantised here; the slow sweep has all.
SOME = ("u8s8", "dynamic")


@pytest.mark.parametrize(
    ("network", "scheme"),
    [*(("convolutional", scheme) for scheme in SCHEMES), *(("transformer", scheme) for scheme in SOME)],
)
def test_every_scheme_becomes_standard_operators(network: str, scheme: str, tmp_path: Path) -> None:
    model = quantise(SMALL[network](), scheme)
    recorded = Recorded(model, tmp_path)
    normal = normalise(onnx.ModelProto.FromString(model.SerializeToString()))
    assert not any(node.domain for node in normal.graph.node)
    names = [output.name for output in normal.graph.output]
    if not scheme.startswith("dynamic"):  # ONNX Runtime has no Conv of integers
        recorded.check(dict(zip(names, run_onnxruntime(normal, recorded.inputs), strict=True)))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled({name: make() for name, make in COMPILED.items()}, tmp_path_factory.mktemp("networks"))


@pytest.mark.parametrize("name", COMPILED)
def test_kernels_are_within_the_recorded_tolerance(name: str, compiled: Compiled, tmp_path: Path) -> None:
    recorded = Recorded(compiled.models[name], tmp_path)
    recorded.check(compiled.run(name, recorded.inputs))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("network", NETWORKS_SWEPT)
def test_every_network_in_every_scheme(network: str, scheme: str, tmp_path: Path) -> None:
    model = NETWORKS[network](seed=0)
    bind(model, shapes={}, dims=DIMS.get(network, {}))
    model = quantise(model, scheme)
    built = Compiled({"network": model}, tmp_path)
    recorded = Recorded(model, tmp_path)
    recorded.check(built.run("network", recorded.inputs))
