"""The models of the tests are what they claim to be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from workbench.models import build, families
from workbench.models.light import LIGHT, light_path


def parameters(model: onnx.ModelProto) -> int:
    """Trainable ones: initializers of rank 1 or more, less the running statistics of normalisations."""
    statistics = {name for n in model.graph.node if n.op_type == "BatchNormalization" for name in n.input[3:]}
    kept = [t for t in model.graph.initializer if t.name not in statistics and t.dims]
    return sum(int(np.prod(t.dims)) for t in kept)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("resnet18", 11_689_512),
        pytest.param("resnet50", 25_557_032, marks=pytest.mark.slow),
        ("mobilenetv2", 3_504_872),
    ],
)
def test_parameters_are_those_of_the_real_architecture(name: str, count: int) -> None:
    assert parameters(build(name)) == count


@pytest.mark.parametrize(
    ("build_family", "count"),
    [
        (families.mobilenetv1, 4_231_976),
        (families.mobilenetv3_large, 5_483_032),
        (families.efficientnet_b0, 5_288_548),
        (families.regnety_400mf, 4_344_144),
        pytest.param(families.resnext50, 25_028_904, marks=pytest.mark.slow),
        (families.shufflenetv2, 2_278_604),
        pytest.param(families.convnext_tiny, 28_589_128, marks=pytest.mark.slow),
    ],
)
def test_families_are_the_real_architectures(
    build_family: Callable[..., onnx.ModelProto], count: int
) -> None:
    model = build_family(size=64)
    onnx.checker.check_model(model)
    constants = {
        name for node in model.graph.node if node.op_type in ("Reshape", "Split") for name in node.input
    }
    assert parameters(model) == count + sum(
        int(np.prod(t.dims)) for t in model.graph.initializer if t.name in constants
    )


def test_the_same_seed_gives_the_same_bytes() -> None:
    assert build("ds_cnn").SerializeToString() == build("ds_cnn").SerializeToString()
    assert build("ds_cnn").SerializeToString() != build("ds_cnn", seed=1).SerializeToString()


def test_all_light_models_of_onnx_are_known() -> None:
    files = light_path(LIGHT[0]).parent.glob("light_*.onnx")
    assert {file.stem.removeprefix("light_") for file in files} == set(LIGHT)


def test_light_model_keeps_its_signature_and_its_layers() -> None:
    original, real = onnx.load(str(light_path("squeezenet"))), build("light_squeezenet")
    layers = [node.name for node in original.graph.node if node.op_type != "ConstantOfShape"]
    assert [node.name for node in real.graph.node] == layers
    assert [o.name for o in real.graph.output] == [o.name for o in original.graph.output]


def test_example_writes_the_file_that_it_is_asked_for(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples" / "resnet18.py"
    path = tmp_path / "mit leerzeichen" / "résnet.onnx"
    path.parent.mkdir()
    subprocess.run([sys.executable, str(script), str(path)], check=True)
    assert path.read_bytes() == build("resnet18").SerializeToString()
