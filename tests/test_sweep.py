"""Every network on every device that something here runs: hours, most of them under emulators.

``pytest -m slow tests/test_sweep.py``, or some of it: ``-k "resnet18 or raspberrypi0"``.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import edgepack
from edgepack.config.device import device_names, load_device
from edgepack.errors import CheckFailedError, ToolchainError
from edgepack.runners import select_runner
from edgepack.toolchains import resolve
from workbench.models import DIMS, NETWORKS, build, save
from workbench.models.half import halved

pytestmark = pytest.mark.slow

#: Networks in half precision, by name: convolutions of all kinds, recurrent layers, attention.
HALF = {
    "mobilenetv3 float16": ("mobilenetv3", "float16"),
    "segformer float16": ("segformer", "float16"),
    "gru float16": ("gru", "float16"),
    "vit bfloat16": ("vit", "bfloat16"),
}


def _model(name: str) -> onnx.ModelProto:
    network, dtype = HALF.get(name, (name, ""))
    return halved(build(network), dtype) if dtype else build(network)


@pytest.mark.parametrize("name", [*sorted(NETWORKS), *HALF])
@pytest.mark.parametrize("device", device_names())
def test_every_network_is_right_on_every_device(name: str, device: str, tmp_path: Path) -> None:
    profile = load_device(device)
    if "program" not in profile.artifacts:
        pytest.skip(f"{device} has no program that could be run")
    try:
        select_runner(profile)
        resolve(profile).version()
    except ToolchainError as error:
        pytest.skip(str(error))
    model = save(_model(name), tmp_path, f"{name.replace(' ', '_')}.onnx")
    try:
        bundle = edgepack.pack(model, device, tmp_path / "out", dims=DIMS.get(name))
    except CheckFailedError as error:
        if "budget" not in str(error):
            raise
        pytest.skip(str(error))
    result = bundle.verify()
    assert result.ok, result
