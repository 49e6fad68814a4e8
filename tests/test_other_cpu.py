"""What is packed does not depend on the CPU of the machine that packs it, and recorded integers are exact."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import edgepack
from edgepack.config.device import load_device
from edgepack.pipeline.compile import Compiler
from edgepack.pipeline.compile_job import CompileJob
from edgepack.pipeline.job import UNCONFINED, ImportJob
from edgepack.pipeline.worker_process import Worker, worker_command
from workbench.models import DIMS, NETWORKS, build, save
from workbench.models.evaluate import random_inputs
from workbench.models.odd import ODD
from workbench.models.operators import CASES
from workbench.models.saturating import Expected, integer_model
from workbench.models.wide import wide_models

ROOT = Path(__file__).resolve().parents[1]

#: x86-64 with AVX2 and FMA, and neither AVX-512 nor VNNI.
OLDER = "Haswell"


@pytest.fixture(scope="module")
def emulator() -> str:
    """qemu-x86_64, of a version that knows AVX2."""
    path = shutil.which("qemu-x86_64")
    if path is None or platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("needs qemu-x86_64 on x86-64: apt-get install qemu-user")
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"version (\d+)\.(\d+)", text)
    if found is None or (int(found[1]), int(found[2])) < (7, 2):
        pytest.skip("needs QEMU 7.2 or newer, the first with AVX2")
    return path


def arrays_of(inputs: Mapping[str, np.ndarray[Any, Any]], folder: Path) -> dict[str, Path]:
    """The inputs as .npy files."""
    for name, array in inputs.items():
        np.save(folder / f"{name}.npy", array)
    return {name: folder / f"{name}.npy" for name in inputs}


def compile_on(cpu: str, emulator: str, device: str, job: ImportJob, folder: Path) -> dict[str, bytes]:
    """Everything that the compiler's process writes: on this machine's CPU ("") or on an emulated one.

    ``device``: what the model is compiled for; "" imports and records it only.
    """
    before = (emulator, "-cpu", cpu) if cpu else ()
    with Worker(command=[*before, *worker_command()]) as worker:
        compiler = Compiler(worker, None)
        imported = compiler.import_model(job, folder / "import")
        if device:
            target = load_device(device).cpu_target()
            compile_job = CompileJob(job.model, imported.folder, imported.frontend, "m", target, "m_")
            compiler.compile_model(compile_job, imported, folder / "compile")
    left_out = ("job.json", UNCONFINED)  # paths of this machine; and no emulator has Landlock
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in left_out)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def has_fma() -> bool:
    """Whether this CPU fuses products and sums; without that ONNX Runtime rounds each of them twice."""
    return "fma" in Path("/proc/cpuinfo").read_text(encoding="utf-8").split()


def check_recorded(read: Mapping[str, bytes], expected: Expected, outputs: list[str]) -> None:
    for name, wanted in expected.items():
        got = np.frombuffer(read[f"output_{outputs.index(name)}.bin"], wanted.dtype).reshape(wanted.shape)
        np.testing.assert_array_equal(got, wanted, err_msg=name)


@pytest.mark.slow
def test_recorded_integers_are_exact_on_any_cpu(emulator: str, tmp_path: Path) -> None:
    """Operands at the ends of their ranges: fails if a sum saturates, here or on a CPU without VNNI."""
    model, inputs, expected = integer_model()
    outputs = [value.name for value in model.graph.output]
    job = ImportJob(save(model, tmp_path), "onnx", inputs=arrays_of(inputs, tmp_path))
    here = compile_on("", emulator, "", job, tmp_path / "here")
    there = compile_on(OLDER, emulator, "", job, tmp_path / "there")
    for files in (here, there):
        recorded = {Path(name).name: data for name, data in files.items() if "recorded" in name}
        check_recorded(recorded, expected, outputs)
    if has_fma():
        assert here.keys() == there.keys()
        assert [name for name in here if here[name] != there[name]] == []


@pytest.mark.slow
def test_a_bundle_of_integers_is_exact_and_verifies(tmp_path: Path) -> None:
    model, inputs, expected = integer_model()
    bundle = edgepack.pack(
        save(model, tmp_path), "host", tmp_path / "out", inputs=arrays_of(inputs, tmp_path), cache=False
    )
    files = {path.name: path.read_bytes() for path in (bundle.path / "test").iterdir()}
    check_recorded(files, expected, [value.name for value in model.graph.output])
    result = bundle.verify()
    assert result.ok, result
    with edgepack.load(bundle) as session:
        results = session.run(inputs)
    for name in ("matmul", "product", "conv"):
        np.testing.assert_array_equal(results[name], expected[name], err_msg=name)


@pytest.mark.slow
def test_onnxruntime_gives_the_same_bits_for_every_operator(emulator: str, tmp_path: Path) -> None:
    if not has_fma():
        pytest.skip("this machine's CPU is older than the emulated one")
    small = {name: make() for name, make in (CASES | ODD).items()}
    cases = {name: (model, random_inputs(model, 1)) for name, model in small.items()} | wide_models()
    for name, (model, inputs) in cases.items():
        save(model, tmp_path, f"{name}.onnx")
        np.savez(tmp_path / f"{name}.npz", **inputs)
    command = [sys.executable, "-m", "tests.support.run_models", str(tmp_path)]
    for name, before in (("here", []), ("there", [emulator, "-cpu", OLDER])):
        subprocess.run([*before, *command, name], cwd=ROOT, check=True, timeout=600)
    here, there = (dict(np.load(tmp_path / f"{name}.results.npz")) for name in ("here", "there"))
    assert here.keys() == there.keys() and len(here) >= 2 * len(cases)
    assert [name for name in here if here[name].tobytes() != there[name].tobytes()] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_network_is_compiled_to_the_same_bytes(name: str, emulator: str, tmp_path: Path) -> None:
    if not has_fma():
        pytest.skip("this machine's CPU is older than the emulated one")
    model: onnx.ModelProto = build(name)
    job = ImportJob(save(model, tmp_path), "onnx", dims=DIMS.get(name, {}))
    here = compile_on("", emulator, "linux-x86_64-v3", job, tmp_path / "here")
    there = compile_on(OLDER, emulator, "linux-x86_64-v3", job, tmp_path / "there")
    assert here.keys() == there.keys()
    assert [name for name in here if here[name] != there[name]] == []
