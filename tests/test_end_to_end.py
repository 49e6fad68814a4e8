"""The whole main job with nothing replaced: an ONNX file in, the device's own program run and verified."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import edgepack
from edgepack.cli.main import main
from edgepack.errors import ConfigError, ModelError, ToolchainError
from edgepack.system.files import list_files
from workbench.models import DIMS, build, save
from workbench.models.counted import detector
from workbench.models.evaluate import random_inputs, run_onnxruntime
from workbench.models.odd import ODD, together

ROOT = Path(__file__).parents[1]

#: A network of each family; tests/compiler/planner/test_networks.py has the kernels of all of them.
FAMILIES = ("bert", *(pytest.param(name, marks=pytest.mark.slow) for name in ("small_vgg", "unet_transpose")))

#: What emulated devices run, ARM of 64 and of 32 bits; tests/test_sweep.py has every network on every device.
EMULATED = (
    ("raspberrypi4", "bert"),
    pytest.param("raspberrypi2", "vit", marks=pytest.mark.slow),
)

#: Odd models that are odd only if they are the whole of a bundle: signatures, names, plans without a step.
ALONE = ("odd_names", "only_constants", "unused_input")
#: Others of these.
ALONE_TOO = ("local_function", "old_initializer_inputs", "output_is_input", "reshaped_input")

Pack = Callable[[str], edgepack.Bundle]


def cli(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """``edgepack`` as a user runs it, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "edgepack", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        timeout=900,
        check=False,
    )


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """Packs a network for this machine, once; not to be changed."""
    folder = tmp_path_factory.mktemp("here")

    @cache
    def pack(name: str) -> edgepack.Bundle:
        model = save(build(name), folder, f"{name}.onnx")
        return edgepack.pack(model, "host", folder / name, dims=DIMS.get(name))

    return pack


@pytest.mark.parametrize("name", FAMILIES)
def test_network_runs_here_and_agrees_with_onnxruntime(name: str, packed: Pack) -> None:
    bundle = packed(name)
    result = bundle.verify()
    assert result.ok, result
    assert bundle.verify(threads=1).ok
    memory = bundle.manifest.memory
    assert memory.arena <= 1.05 * memory.lower_bound
    assert bundle.manifest.runtime.text_bytes is not None
    assert bundle.manifest.runtime.text_bytes <= 32 * 1024


@pytest.mark.parametrize(("device", "name"), EMULATED)
def test_network_runs_on_an_emulated_device(device: str, name: str, tmp_path: Path) -> None:
    model = save(build(name), tmp_path, f"{name}.onnx")
    bundle = edgepack.pack(model, device, tmp_path / "out", dims=DIMS.get(name))
    result = bundle.verify()
    assert result.ok, result


@pytest.mark.parametrize("device", [pytest.param("host", marks=pytest.mark.slow), "raspberrypi2"])
def test_odd_models_are_right_in_every_output(device: str, tmp_path: Path) -> None:
    """All in one bundle: their dtypes and shapes through the C ABI, on a CPU of 32 bits too."""
    bundle = edgepack.pack(save(together(), tmp_path), device, tmp_path / "out")
    result = bundle.verify()
    assert result.ok, result
    assert len(result.outputs) > len(ODD)


@pytest.mark.parametrize("name", [*ALONE, *(pytest.param(n, marks=pytest.mark.slow) for n in ALONE_TOO)])
def test_odd_model_is_a_bundle_of_its_own(name: str, tmp_path: Path) -> None:
    bundle = edgepack.pack(save(ODD[name](), tmp_path), "host", tmp_path / "out")
    result = bundle.verify()
    assert result.ok, result


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ODD))
@pytest.mark.parametrize("device", ["host", "raspberrypi2"])
def test_odd_model_is_right_in_every_output(name: str, device: str, tmp_path: Path) -> None:
    model = save(ODD[name](), tmp_path)
    bundle = edgepack.pack(model, device, tmp_path / "out", cache=False)
    result = bundle.verify()
    assert result.ok, result


@pytest.mark.parametrize(
    ("name", "device"),
    [
        pytest.param("small_inception", "linux-x86_64", marks=pytest.mark.slow),
        ("mobilenetv3", "linux-x86_64-v3"),
    ],
)
def test_older_cpus_of_this_kind(name: str, device: str, tmp_path: Path) -> None:
    model = save(build(name), tmp_path)
    assert edgepack.pack(model, device, tmp_path / "out").verify().ok


def test_a_session_gives_what_onnxruntime_gives(packed: Pack) -> None:
    """On data that the pack never saw."""
    network = build("ds_cnn")
    inputs = random_inputs(network, 99)
    expected = run_onnxruntime(network, inputs)
    with edgepack.load(packed("ds_cnn"), threads=2) as session:
        results = session.run(inputs)
    for (name, result), reference in zip(results.items(), expected, strict=True):
        np.testing.assert_allclose(result, reference, rtol=1e-3, atol=1e-3, err_msg=name)


@pytest.mark.parametrize("params", ["file", "embed", "caller"])
def test_params_can_be_shipped_in_three_ways(params: str, tmp_path: Path) -> None:
    model = save(build("mlp"), tmp_path)
    bundle = edgepack.pack(model, "host", tmp_path / "out", params=params)  # type: ignore[arg-type]
    assert bundle.verify().ok
    with bundle.load() as session:
        session.check_params()
    assert (bundle.manifest.params.file is None) == (params == "embed")


def test_weights_in_float16_take_half_of_the_params(packed: Pack, tmp_path: Path) -> None:
    """And what is verified is as close to its reference as with weights in float32."""
    model = save(build("mlp"), tmp_path)
    bundle = edgepack.pack(model, "host", tmp_path / "out", weights="float16", optimize="size")
    whole = packed("mlp").manifest
    assert bundle.manifest.options.weights == "float16"
    assert bundle.manifest.params.nbytes < 0.55 * (whole.params.nbytes - whole.params.growth)
    result = bundle.verify()
    assert result.ok, result
    assert result.outputs[0].atol < 1e-3 * result.outputs[0].max_abs_ref


def test_a_detector_gives_its_boxes_and_how_many_there_are(tmp_path: Path) -> None:
    model = save(detector(), tmp_path)
    assert 'maxima={"found": 24}' in edgepack.check(model).hint
    bundle = edgepack.pack(model, output=tmp_path / "out", maxima={"found": 20})
    assert bundle.verify().ok
    inputs = random_inputs(detector(), 3)
    with edgepack.load(bundle) as session:
        found = session.run(inputs)
    boxes, scores, classes, count = (found[name] for name in ("boxes", "scores", "classes", "found_count"))
    wanted = run_onnxruntime(detector(), inputs)
    assert count == len(wanted[0])
    kept = min(count, 20)
    np.testing.assert_allclose(boxes[:kept], wanted[0][:kept], atol=1e-4)
    np.testing.assert_allclose(scores[:kept], wanted[1][:kept], atol=1e-4)
    np.testing.assert_array_equal(classes[:kept], wanted[2][:kept])
    assert not boxes[kept:].any()


def test_the_program_packs_verifies_and_measures_for_a_board(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the README says it, in folders with difficult names."""
    folder = tmp_path / "mödels and more"
    folder.mkdir()
    save(build("ds_cnn"), folder, "kéyword spotting.onnx")
    packed = cli("pack", "kéyword spotting.onnx", "--device", "raspberrypi4", cwd=folder)
    assert packed.returncode == 0, packed.stderr
    bundle = folder / "keyword_spotting-raspberrypi4"
    verified = cli("verify", bundle, "--json", "-q")
    assert verified.returncode == 0, verified.stderr
    assert json.loads(verified.stdout)["runner"] in {"qemu", "native"}
    assert main(["bench", str(bundle), "--runs", "2"]) == 0
    assert main(["inspect", str(bundle), "--kernels"]) == 0
    assert "conv" in capsys.readouterr().out


def test_the_readme_of_a_model_with_odd_names_has_commands_that_work(tmp_path: Path) -> None:
    bundle = edgepack.pack(save(ODD["odd_names"](), tmp_path), "host", tmp_path / "out")
    readme = (bundle.path / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^    (bin/\S+ run .*)$", readme, re.MULTILINE)
    done = subprocess.run(shlex.split(command), cwd=bundle.path, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["status"] == "ok", done.stdout


@pytest.mark.parametrize("name", ["ds_cnn", pytest.param("unet_transpose", marks=pytest.mark.slow)])
def test_two_packs_without_cache_give_the_same_bytes(name: str, packed: Pack, tmp_path: Path) -> None:
    """TVM compiles twice, in a process that compiled other networks before and in one of its own, with other
    hashes of strings, and in two folders."""
    one, folder = packed(name).path, tmp_path / "two where it is longer"
    folder.mkdir()
    save(build(name), folder, f"{name}.onnx")
    done = cli("pack", f"{name}.onnx", "-o", "out", "--no-cache", cwd=folder)
    assert done.returncode == 0, done.stderr
    two = folder / "out"
    assert list_files(one) == list_files(two)
    assert [name for name in list_files(one) if (one / name).read_bytes() != (two / name).read_bytes()] == []


def test_a_dimension_that_is_not_bound_is_named_with_its_option(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        edgepack.pack(save(build("bert"), tmp_path), "host", tmp_path / "out", cache=False)
    assert "sequence" in str(caught.value)
    assert "dims={" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("not a model")
    with pytest.raises(ModelError):
        edgepack.pack(tmp_path / "m.onnx", "host", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx"]


def test_an_unknown_device_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_text("not a model")
    with pytest.raises(ConfigError, match="raspbery"):
        edgepack.pack(model, "raspbery", tmp_path / "out")


def test_the_example_of_a_custom_operator_is_packed_and_its_c_is_checked(tmp_path: Path) -> None:
    example = tmp_path / "custom operator"
    shutil.copytree(ROOT / "examples" / "custom_operator", example)
    model = tmp_path / "shrink.onnx"
    subprocess.run([sys.executable, str(example / "model.py"), str(model)], check=True)
    bundle = edgepack.pack(model, output=tmp_path / "out", custom=example / "ops.yaml")
    assert bundle.verify().ok
    assert bundle.manifest.recorded.reference.endswith(", reference.py")
    assert (bundle.path / "src" / "custom" / "hard_shrink.c").is_file()
    source = example / "hard_shrink.c"
    text = source.read_text(encoding="utf-8")
    for wrong, message in (
        (text.replace("kept[row] += keep", "kept[row] += 0.5f"), "implicit conversion"),
        (text.replace("int32_t *kept", "int64_t *kept"), "conflicting types"),
    ):
        source.write_text(wrong, encoding="utf-8")
        with pytest.raises(ToolchainError, match=message):
            edgepack.pack(model, output=tmp_path / "wrong", custom=example / "ops.yaml")


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cortex-m4", "raspberrypi4", "linux-riscv64", "wasm32-wasi"])
def test_the_example_of_a_custom_operator_runs_on_other_devices(device: str, tmp_path: Path) -> None:
    example = ROOT / "examples" / "custom_operator"
    model = tmp_path / "shrink.onnx"
    subprocess.run([sys.executable, str(example / "model.py"), str(model)], check=True)
    assert edgepack.pack(model, device, tmp_path / "out", custom=example / "ops.yaml").verify().ok


def _check_session_bytes(bundle: Path, folder: Path) -> None:
    """What the header says that a session needs suffices for the GPU's variant."""
    source, program = folder / "bytes.c", folder / "bytes"
    source.write_text(
        """#include <ds_cnn.h>
        static unsigned char memory[DS_CNN_SESSION_BYTES];
        int main(int argc, char **argv) {
            ep_model model;
            ep_session *session;
            ep_options options = EP_OPTIONS_INIT;
            options.memory = memory;
            options.memory_bytes = sizeof memory;
            if (argc != 2) return 98;
            if (ep_model_open(edgepack_model_ds_cnn.variants[0], argv[1], &model) != EP_OK) return 99;
            ep_status status = ep_session_create(&model, &options, &session);
            ep_session_destroy(session);
            ep_model_close(&model);
            return status;
        }"""
    )
    library = [f"-L{bundle}/lib", f"-Wl,-rpath,{bundle}/lib", "-lds_cnn"]
    subprocess.run(["gcc", f"-I{bundle}/include", source, "-o", program, *library], check=True)
    subprocess.run([program, next((bundle / "params").iterdir())], check=True)


def test_a_bundle_with_kernels_for_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the system's OpenCL driver, and on the CPU where there is none."""
    model, folder = save(build("ds_cnn"), tmp_path), tmp_path / "b"
    bundle = edgepack.pack(model, device="opencl-generic", output=folder, name="ds_cnn")
    record = bundle.manifest.code("opencl")
    assert {kernel.backend for kernel in record.kernels} == {"opencl"}
    assert [step.copied > 0 for step in record.steps if not step.kernel] == [True, True]
    result = bundle.verify()
    gpu, cpu = result.variants
    assert result.ok
    with bundle.load() as session:
        assert session.backend.startswith(("opencl: ", "cpu (opencl: EP_E_GPU_"))  # PoCL's CPU is no GPU
    assert (gpu.name, cpu.name) == ("opencl", "opencl-generic")
    if gpu.missing:
        pytest.skip(f"this machine lacks {gpu.missing}")
    assert gpu.outputs[0].ok
    _check_session_bytes(bundle.path, tmp_path)
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))  # of the ICD loader: where it finds drivers
    without = bundle.verify()
    assert without.ok
    assert [variant.missing for variant in without.variants] == ["a driver for a GPU", ""]
