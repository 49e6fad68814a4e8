"""Whole networks through the generated CUDA C and Metal, by the bundle's own host code: minutes each.

``pytest -m slow tests/runners/test_shim_networks.py``, or some of it: ``-k "vit and metal"``.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info
from onnx.numpy_helper import from_array

import edgepack
from edgepack.compiler.backends.nvrtc import find_nvrtc
from edgepack.config.device import load_device
from edgepack.plan.gpu_target import Precision
from edgepack.registry import RUNNERS
from edgepack.runners import cuda_shim
from edgepack.runners.base import arch_of
from edgepack.runners.cuda_shim import CUDA
from edgepack.runners.shim import build_library, shim_environment
from workbench.models import DIMS, build, save
from workbench.models.gpu import attention

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


DEVICES = [("cuda-desktop", "cuda-shim"), ("macos-arm64-metal", "metal-shim")]


@pytest.mark.slow
@pytest.mark.parametrize(("device", "runner"), DEVICES)
def test_steps_of_the_cpu(device: str, runner: str, tmp_path: Path) -> None:
    """A cumulative sum between products, which the CPU does by its own machine code; the CPU's variant."""
    ok, _, hint = RUNNERS.find(runner).available(load_device(device))
    if not ok:
        pytest.skip(hint)
    random = np.random.default_rng(0)
    weights = [
        from_array((random.standard_normal(shape) / 8).astype(np.float32), name)
        for name, shape in (("v", (48, 64)), ("w", (64, 32)))
    ]
    nodes = [
        make_node("MatMul", ["x", "v"], ["a"]),
        make_node("CumSum", ["a", "axis"], ["b"]),
        make_node("MatMul", ["b", "w"], ["y"]),
    ]
    x, y = (make_tensor_value_info(n, 1, [40, size]) for n, size in (("x", 48), ("y", 32)))
    graph = make_graph(nodes, "mixed", [x], [y], [*weights, from_array(np.array(1), "axis")])
    model = save(
        make_model(graph, opset_imports=[make_opsetid("", 17)], ir_version=8), tmp_path, "mixed.onnx"
    )
    checked = edgepack.pack(model, device, tmp_path / "out").verify(runner=runner).variants
    assert [(variant.status, variant.missing) for variant in checked] == [("ok", "")] * 2


@pytest.mark.slow
@pytest.mark.parametrize("device", ["jetson-nano-gpu", "jetson-xavier-gpu"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_devices_with_old_drivers(device: str, precision: str, tmp_path: Path) -> None:
    """They get PTX of CUDA 10.2's version and no cubin; the bundle's own program gives it to the driver."""
    ok, _, hint = RUNNERS.find("cuda-shim").available(load_device(device))
    if not ok:
        pytest.skip(hint)
    if find_nvrtc() is None:
        pytest.skip("NVRTC is not installed: edgepack[cuda]")
    model = save(attention(), tmp_path, "attention.onnx")
    bundle = edgepack.pack(model, device, tmp_path / "out", precision=precision)
    (library,) = (tmp_path / "out").rglob("*.so")
    found = re.findall(rb"\n(\.version .+)\n\.target (\w+)\n", library.read_bytes())
    assert found == [(b".version 6.5", f"sm_{load_device(device).gpu.capabilities[0]}".encode())]
    checked = bundle.verify(runner="cuda-shim").variants
    assert [(variant.status, variant.missing) for variant in checked] == [("ok", "")] * 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attention", "mobilenetv3", "vit", "unet_resize"])
def test_networks_in_tf32(name: str, tmp_path: Path) -> None:
    """Which is for compute capability 8.0 and later."""
    ok, _, hint = RUNNERS.find("cuda-shim").available(load_device("cuda-desktop"))
    if not ok:
        pytest.skip(hint)
    device = tmp_path / "ampere.yaml"
    device.write_text("extends: cuda-desktop\ngpu: {capabilities: [80, 120]}\n", encoding="utf-8")
    model = save(attention() if name == "attention" else build(name), tmp_path, f"{name}.onnx")
    bundle = edgepack.pack(model, device, tmp_path / "out", dims=DIMS.get(name), precision="tf32")
    gpu = bundle.verify(runner="cuda-shim").variants[0]
    assert (gpu.status, gpu.missing) == ("ok", "")
    assert "ep_mma_tf32(sum" in (tmp_path / "out" / "src" / "kernels.cu").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "other", "message"),
    [
        ("", "", ""),
        ("#define COPIES_ASYNC 1", "", ""),  # as on compute capability 7.5
        ("COPIES_ARRIVED(2);", "", "before a copy to it was waited for"),
        ("COPIES_ARRIVED(2);", "COPIES_ARRIVED(3);", "before a copy to it was waited for"),
        ("COPIES_ARRIVED(2);\n    BARRIER;", "COPIES_ARRIVED(2);", "without a barrier|before a copy to it"),
    ],
)
def test_products_whose_factors_are_copied(
    line: str, other: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By tensor cores in float16: right with stages and without, and each error in them is found."""
    ok, _, hint = RUNNERS.find("cuda-shim").available(load_device("cuda-desktop"))
    if not ok:
        pytest.skip(hint)
    shim = replace(CUDA, flags=("-DCOPIES_ASYNC=0",)) if line.startswith("#define") else CUDA

    def library(texts: tuple[str, ...], arch: str) -> Path:
        assert all(line in text for text in texts)
        changed = [text.replace(line, other) if message else text for text in texts]
        return build_library(shim, changed, tmp_path, arch)

    monkeypatch.setattr(cuda_shim, "_library", library)
    model = save(attention(), tmp_path, "attention.onnx")
    bundle = edgepack.pack(model, "cuda-desktop", tmp_path / "out", precision="fp16")
    if message:
        found = ""
        try:
            found = str(bundle.verify(runner="cuda-shim").variants[0])
        except edgepack.EdgepackError as error:
            found = f"{error} {error.detail}"
        assert re.search(message, found)
        return
    assert bundle.verify(runner="cuda-shim").variants[0].status == "ok"


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp16", "tf32"])
def test_the_gpu_of_this_machine(precision: str, tmp_path: Path) -> None:
    """`host-gpu` with the shim as the driver that it finds: packed for that GPU, verified, timed by step."""
    ok, _, hint = RUNNERS.find("cuda-shim").available(load_device("cuda-desktop"))
    if not ok:
        pytest.skip(hint)
    bundle, arch = tmp_path / "out", arch_of(platform.machine())

    def run(texts: list[str], *words: str | Path) -> str:
        folder = tmp_path / words[0]
        folder.mkdir()
        driver = shim_environment(build_library(CUDA, texts, folder, arch), "forward")
        command = [sys.executable, "-m", "edgepack", *words]
        environment = {**os.environ, **driver, "CUDA_VISIBLE_DEVICES": "9"}  # compute capability 8.0
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    model = save(build("ds_cnn"), tmp_path, "ds_cnn.onnx")
    run([], "pack", model, "--device", "host-gpu", "--precision", precision, "--output", bundle)
    text = (bundle / "src" / "kernels.cu").read_text(encoding="utf-8")
    assert ("ep_mma(sum" in text) == (precision == "fp16")
    assert ("ep_mma_tf32(sum" in text) == (precision == "tf32")
    assert "words (cuda)" in run([text], "verify", bundle)
    assert "Gemm_29" in run([text], "bench", bundle, "--variant", "cuda", "--profile", "--runs", "1")


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(("device", "runner"), DEVICES)
def test_networks(name: str, device: str, runner: str, precision: Precision, tmp_path: Path) -> None:
    ok, _, hint = RUNNERS.find(runner).available(load_device(device))
    if not ok:
        pytest.skip(hint)
    model = save(attention() if name == "attention" else build(name), tmp_path, f"{name}.onnx")
    bundle = edgepack.pack(model, device, tmp_path / "out", dims=DIMS.get(name), precision=precision)
    gpu = bundle.verify(runner=runner).variants[0]
    assert (gpu.status, gpu.missing) == ("ok", "")
    assert all(output.ok for output in gpu.outputs)
