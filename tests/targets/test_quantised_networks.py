"""Quantised networks on other CPUs, run under emulators: within the tolerance that a pack records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import edgepack
from edgepack.compiler.frontend.onnx.binding import bind
from edgepack.config.device import load_device
from edgepack.options import RunOptions
from edgepack.runners.verify import verify
from workbench.models import DIMS, NETWORKS, save
from workbench.models.quantise import quantise

#: By device: the CPUs that are emulated; "" for a device that is run otherwise.
CPUS: dict[str, Sequence[str]] = {
    "raspberrypi4": ("cortex-a72",),
    "raspberrypi2": ("cortex-a7",),
    "linux-aarch64-v8.2": ("cortex-a76",),
    "linux-aarch64-v8.6": ("max",),
    "linux-riscv64-v": ("rv64,v=true,vlen=128",),
    "wasm32-wasi": ("",),
}
#: Networks, and how each is quantised.
NETWORKS_OF = {
    **dict.fromkeys(("resnet18", "mobilenetv2", "mobilenetv3", "efficientnet", "regnet"), "u8s8"),
    **dict.fromkeys(("ds_cnn", "unet_resize", "yolo", "mlp", "vit", "tcn"), "u8s8"),
    "bert": "dynamic",
}


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS_OF)
@pytest.mark.parametrize(("device", "cpu"), [(d, cpu) for d, cpus in CPUS.items() for cpu in cpus])
def test_a_quantised_network_agrees_with_onnxruntime(
    device: str, cpu: str, network: str, tmp_path: Path
) -> None:
    model = NETWORKS[network](seed=0)
    bind(model, shapes={}, dims=DIMS.get(network, {}))
    path = save(quantise(model, NETWORKS_OF[network]), tmp_path, f"{network}.onnx")
    bundle = edgepack.pack(path, load_device(device), tmp_path / "bundle")
    manifest = bundle.manifest
    if cpu:
        runner = manifest.device.runner.model_copy(update={"cpu": cpu})
        manifest = manifest.model_copy(
            update={"device": manifest.device.model_copy(update={"runner": runner})}
        )
    result = verify(bundle.path, manifest, RunOptions(runner="qemu" if cpu else None))
    assert result.ok, result
