"""benchmarks/gpu.py: what it says without a GPU, the card's limits, and a bundle timed on the shim."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import gpu

from edgepack.config.device import load_device
from edgepack.runners import cuda_shim
from edgepack.runners.shim import build_library, shim_environment
from workbench.models import save
from workbench.models.evaluate import run_onnxruntime

SCRIPT = Path(gpu.__file__)


def run(command: str, folder: Path, *more: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), command, str(folder), *more],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(gpu.has_gpu(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_timed(tmp_path: Path) -> None:
    done = run("time", tmp_path)
    assert (done.returncode, done.stdout) == (gpu.NO_GPU, "not timed: no GPU\n")
    assert not list(tmp_path.iterdir())


def test_limits_are_those_of_the_card(tmp_path: Path) -> None:
    """Two launches of one kernel on a GPU of a terabyte a second, with 100 multiprocessors at 1 GHz."""
    kernel = {"symbol": "k", "bytes_moved": 5_000_000, "flops": 512_000_000}
    steps = [{"kernel": ""}, {"kernel": "k"}, {"kernel": "k"}]
    variants = [{"gpu": True, "kernels": [kernel], "steps": steps}, {"gpu": False}]
    (tmp_path / "manifest.json").write_text(json.dumps({"variants": variants}), encoding="utf-8")
    card = {"memory_khz": 1_000_000, "bus_bits": 4000, "capability": 90, "clock_khz": 1_000_000}
    card |= {"multiprocessors": 100, "gap_us": 1.5}
    full = {"bytes": 10.0, "operations": 40.0, "launches": 3.0}
    assert gpu.limits(tmp_path, card, "fp32") == pytest.approx(full)
    assert gpu.limits(tmp_path, card, "fp16")["operations"] == pytest.approx(2.5)
    unknown = {**card, "capability": 53, "memory_khz": 0, "gap_us": 0}
    assert gpu.limits(tmp_path, unknown, "fp32") == {}


def test_a_row_has_ratios_and_reasons() -> None:
    own = {"device_us": 20.0, "host_us": 50.0, "verified": False}
    row = {"network": "n", "precision": "fp16", "edgepack": own, "limits_us": {"bytes": 5.0}}
    row |= {"eager": {"device_us": 40.0, "host_us": 80.0}, "tensorrt": {"error": "it is not there"}}
    text = gpu.shown(row, ["eager", "tensorrt"])
    assert "edgepack takes 0.50 of it" in text
    assert "not timed: it is not there" in text
    assert "25.0% of the card's limit by bytes" in text
    assert "the outputs are wrong" in text


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", ["resnet18", "mobilenetv2", "bert"])
def test_no_kernel_of_a_network_spills(name: str, precision: str) -> None:
    script = SCRIPT.with_name("gpu_kernels.py")
    for capability in ("75", "90"):
        command = [sys.executable, str(script), name, "--precision", precision, "--capability", capability]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "contraction" in done.stdout or "tensor_core" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", [*gpu.NETWORKS, "ds_cnn"])
def test_jax_computes_what_the_network_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the CPU, with the model's weights: against ONNX Runtime in float32, and roughly in float16."""
    jax = pytest.importorskip("jax")
    import gpu_jax
    from gpu_graph import graph_of
    from networks import BENCHMARKS, folded

    model = save(BENCHMARKS[name](), tmp_path, f"{name}.onnx")
    described = json.loads(json.dumps(graph_of(model)))
    weights = {t.name: numpy_helper.to_array(t) for t in folded(model).graph.initializer}
    floats = {key: array for key, array in weights.items() if array.dtype == np.float32}
    inputs = gpu_jax.inputs_of(described, np.float32)
    named = {
        one["name"]: array.astype(one["dtype"])
        for one, array in zip(described["inputs"], inputs, strict=True)
    }
    expected = run_onnxruntime(onnx.load(str(model)), named)
    for dtype, tolerance in ((np.float32, 1e-5), (np.float16, 2e-2)):
        network = gpu_jax.network_of(described, dtype)
        narrow = [x if x.dtype == np.int32 else x.astype(dtype) for x in inputs]
        given = {key: array.astype(dtype) for key, array in floats.items()}
        if dtype == np.float32:
            text = network.lower(given, *narrow).as_text()
            products = text.count("stablehlo.convolution(") + text.count("stablehlo.dot_general ")
            assert text.count("HIGHEST") == 2 * products > 0
        results = network(given, *narrow)
        for got, wanted in zip(results, expected, strict=True):
            assert got.dtype == dtype
            np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())
    drawn = gpu_jax.weights_of(described, np.float16)
    assert {key: array.shape for key, array in drawn.items()} == {key: x.shape for key, x in floats.items()}
    counts = Namespace(warmup=1, runs=1)
    (tmp_path / f"{name}.json").write_text(json.dumps(described), encoding="utf-8")
    assert gpu.time_engine("jax", tmp_path, name, "fp16", counts) == {
        "error": "NotImplementedError: this JAX has no CUDA"
    }
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert min(gpu.time_engine("jax", tmp_path, name, "fp16", counts).values()) > 0


@pytest.mark.slow
def test_a_bundle_is_timed_on_the_shim(tmp_path: Path) -> None:
    """From GPU memory to GPU memory and from the process, in one process's memory; no time says anything."""
    ok, _, hint = cuda_shim.available(load_device("cuda-desktop"))
    if not ok:
        pytest.skip(hint)
    chosen = ("--networks", "ds_cnn", "--precisions", "fp16")
    assert run("pack", tmp_path, *chosen).returncode == 0
    text = (tmp_path / "ds_cnn-fp16" / "src" / "kernels.cu").read_text(encoding="utf-8")
    (tmp_path / "shim").mkdir()
    library = build_library(cuda_shim.CUDA, [text], tmp_path / "shim", "x86_64")
    counts = ("--warmup", "1", "--runs", "1", "--engines", "eager")
    done = run("time", tmp_path, *chosen, *counts, **shim_environment(library, "forward"))
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    assert row["edgepack"]["verified"]
    assert row["edgepack"]["device_us"] > 0
    assert "eager" in row


def test_a_program_that_fails_is_a_reason(tmp_path: Path) -> None:
    assert "error" in gpu.run_program([tmp_path / "none"], tmp_path, 5)
    assert gpu.run_program(["false"], tmp_path, 5) == {"error": "exit code 1"}
    assert gpu.time_engine("onnxruntime", tmp_path, "n", "fp16", Namespace())["error"].startswith("NotImpl")
