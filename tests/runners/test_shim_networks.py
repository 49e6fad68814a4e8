"""Whole networks through the generated CUDA C and Metal, by the bundle's own host code: minutes each.

``pytest -m slow tests/runners/test_shim_networks.py``, or some of it: ``-k "vit and metal"``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import edgepack
from edgepack.config.device import load_device
from edgepack.plan.gpu_target import Precision
from edgepack.registry import RUNNERS
from tests.models import DIMS, build, save
from tests.models.gpu import attention

NETWORKS = (
    "attention",
    "ds_cnn",
    "mobilenetv3",
    "vit",
    "bert",
    "unet_resize",
    "unet_transpose",
    "segformer",
    "yolo",
    "convnext",
)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    ("device", "runner"), [("cuda-desktop", "cuda-shim"), ("macos-arm64-metal", "metal-shim")]
)
def test_networks(name: str, device: str, runner: str, precision: Precision, tmp_path: Path) -> None:
    ok, _, hint = RUNNERS.find(runner).available(load_device(device))
    if not ok:
        pytest.skip(hint)
    model = save(attention() if name == "attention" else build(name), tmp_path, f"{name}.onnx")
    bundle = edgepack.pack(model, device, tmp_path / "out", dims=DIMS.get(name), precision=precision)
    gpu = bundle.verify(runner=runner).variants[0]
    assert (gpu.status, gpu.missing) == ("ok", "")
    assert all(output.ok for output in gpu.outputs)
