"""WebAssembly: packed, verified and measured in node and in wasmtime; the module that JavaScript loads."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import edgepack
from edgepack.config.device import load_device
from edgepack.errors import ToolchainError
from edgepack.render.sources import LOADER_SOURCES, MODEL_SOURCE, MODULE_EXPORTS, MODULE_SOURCE
from edgepack.runners import node, wasmtime
from edgepack.toolchains import resolve
from workbench.mini import WARNINGS, make_sources, run
from workbench.models import build, save

DEVICE = "wasm32-wasi"
RUNNERS = {"node": node, "wasmtime": wasmtime}
NODE = shutil.which("node") or "node"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, edgepack.Bundle]:
    """A network of convolutions with its params in a file, and one with them inside; not to be changed."""
    folder = tmp_path_factory.mktemp("wasm bündles")
    file = edgepack.pack(save(build("ds_cnn"), folder, "ds_cnn.onnx"), DEVICE, folder / "ds_cnn")
    inside = edgepack.pack(save(build("mlp"), folder, "mlp.onnx"), DEVICE, folder / "mlp", params="embed")
    return {"ds_cnn": file, "mlp": inside}


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("name", ["ds_cnn", "mlp"])
def test_network_agrees_with_onnxruntime(name: str, runner: str, bundles: dict[str, edgepack.Bundle]) -> None:
    result = bundles[name].verify(runner=runner)
    assert result.ok, result
    assert (result.runner, result.threads) == (runner, 1)


def test_weights_of_float16_are_as_fast_and_compress(
    bundles: dict[str, edgepack.Bundle], tmp_path: Path
) -> None:
    """There is no instruction that converts them: they are rounded and stored as float32."""
    half = edgepack.pack(
        save(build("ds_cnn"), tmp_path, "ds_cnn.onnx"), DEVICE, tmp_path / "h", weights="float16"
    )
    assert half.verify().ok and not half.manifest.warnings
    assert half.manifest.kernels == bundles["ds_cnn"].manifest.kernels
    files = [(one.path / "params" / "ds_cnn.params").read_bytes() for one in (bundles["ds_cnn"], half)]
    assert len(files[0]) == len(files[1])
    sizes = [len(gzip.compress(file)) for file in files]
    assert sizes[1] < 0.8 * sizes[0]


@pytest.mark.parametrize("runner", RUNNERS)
def test_is_measured_with_its_steps(runner: str, bundles: dict[str, edgepack.Bundle]) -> None:
    bundle = bundles["ds_cnn"]
    measured = bundle.bench(runner=runner, runs=3, warmup=1, profile=True)
    assert measured.real_speed
    assert len(measured.runs_ms) == 3 and min(measured.runs_ms) > 0
    assert len(measured.steps_us) == len(bundle.manifest.steps)
    assert measured.peak_rss_bytes > measured.arena_bytes


@pytest.mark.parametrize(
    ("device", "features"),
    [
        ("wasm32-wasi-relaxed", {"simd128", "relaxed-simd"}),
        pytest.param("wasm32-wasi-scalar", set(), marks=pytest.mark.slow),
    ],
)
def test_other_instruction_sets_are_right_too(device: str, features: set[str], tmp_path: Path) -> None:
    bundle = edgepack.pack(save(build("ds_cnn"), tmp_path), device, tmp_path / "out")
    module = bundle.manifest.artifact("shared")
    assert module is not None
    assert {name for name in module.audit["features"] if "simd" in name} == features
    ready = [name for name, runner in RUNNERS.items() if runner.available(load_device(device)).ok]
    assert "wasmtime" in ready
    for runner in ready:
        result = bundle.verify(runner=runner)
        assert result.ok, result


def test_an_old_node_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "node"
    old.write_text("#!/bin/sh\necho v18.20.4\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert node.available(load_device(DEVICE)).ok
    ok, where, hint = node.available(load_device("wasm32-wasi-relaxed"))
    assert not ok and where.endswith("v18.20.4") and "needs node 20 or newer" in hint
    with pytest.raises(ToolchainError, match="node cannot run programs of wasm32-wasi-relaxed"):
        node.run(load_device("wasm32-wasi-relaxed"), ["x.wasm"], timeout=1, cwd=tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert "install node" in node.available(load_device(DEVICE)).hint


def test_runs_in_node_unless_told_otherwise(bundles: dict[str, edgepack.Bundle]) -> None:
    assert bundles["ds_cnn"].verify().runner == "node"


@pytest.mark.parametrize("name", ["ds_cnn", "mlp"])
def test_javascript_loads_the_module(name: str, bundles: dict[str, edgepack.Bundle], tmp_path: Path) -> None:
    bundle = bundles[name]
    manifest = bundle.manifest
    module = manifest.artifact("shared")
    assert module is not None
    for tensor in manifest.recorded.inputs:
        shutil.copy(bundle.path / tensor.file, tmp_path)
    params = bundle.path / manifest.params.file if manifest.params.file else "-"
    script = Path(__file__).with_name("module.mjs")
    done = run([NODE, script, bundle.path / module.path, params, tmp_path])
    seen = json.loads(done)
    assert (seen["inputs"], seen["outputs"], seen["statuses"]) == (1, 1, [0, 0, 0])
    assert (seen["beyond"], seen["grown"]) == ([0, 0], 0)
    assert seen["arena"] == manifest.memory.arena
    assert len(seen["times"]) == len(manifest.steps) and sum(seen["times"]) > 0
    if name == "ds_cnn":
        made, code, text = seen["damaged"]
        assert (made, code) == (0, "EP_E_PARAMS_HASH") and "copy the file again" in text
    for i, output in enumerate(manifest.recorded.outputs):
        got = np.fromfile(tmp_path / f"got_{i}.bin", output.dtype)
        want = np.fromfile(bundle.path / output.file, output.dtype)
        np.testing.assert_allclose(got, want, rtol=output.rtol, atol=output.atol)


def test_the_module_asks_for_nothing_but_a_clock_and_is_small(bundles: dict[str, edgepack.Bundle]) -> None:
    bundle = bundles["ds_cnn"]
    module = bundle.manifest.artifact("shared")
    assert module is not None
    assert module.audit["undefined"] == ["edgepack.now"]
    assert module.audit["exported"] == sorted([*MODULE_EXPORTS, "memory", "_initialize"])
    assert (
        {"simd128"}
        <= set(module.audit["features"])
        <= {*("bulk-memory", "nontrapping-fptoint", "sign-ext", "simd128")}
    )
    assert len(gzip.compress((bundle.path / module.path).read_bytes())) < 20_000


def test_bundles_are_reproducible(bundles: dict[str, edgepack.Bundle], tmp_path: Path) -> None:
    again = edgepack.pack(save(build("ds_cnn"), tmp_path, "ds_cnn.onnx"), DEVICE, tmp_path / "elsewhere")
    assert (again.path / "SHA256SUMS").read_bytes() == (bundles["ds_cnn"].path / "SHA256SUMS").read_bytes()


def test_c_has_no_warnings(tmp_path: Path) -> None:
    bundle = make_sources(tmp_path / "bundle", arch="wasm32")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-wasi", "-fno-sanitize=all", "-O0"]
    more = ["-Wshadow", "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wvla", "-Wundef"]
    threads = ["-mcpu=generic+atomics+bulk_memory"]
    for source, cpu in (
        *((source, []) for source in (MODEL_SOURCE, MODULE_SOURCE, *LOADER_SOURCES)),
        (MODULE_SOURCE, threads),
    ):
        run(
            [
                *(*command, *cpu, *WARNINGS, *more, *bundle.includes),
                *("-c", bundle.root / source, "-o", tmp_path / "out.o"),
            ]
        )


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program that exits, crashes or hangs, as its argument says."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "ends.c").write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n"
        "int main(int argc, char **argv) {\n"
        '    printf("%d %s\\n", argc, argv[0]);\n    fflush(stdout);\n'
        "    if (argv[1][0] == 'c') { __builtin_trap(); }\n"
        "    for (volatile int i = 0; argv[1][0] == 'h'; i++) { }\n"
        "    return atoi(argv[1]);\n}\n"
    )
    toolchain = resolve(load_device(DEVICE))
    toolchain.compile_c(folder / "ends.c", folder / "ends.o")
    toolchain.link_program([folder / "ends.o"], folder / "ends.wasm")
    return folder


@pytest.mark.parametrize("runner", RUNNERS.values(), ids=RUNNERS)
def test_an_exit_code_comes_back(runner: ModuleType, programs: Path) -> None:
    done = runner.run(load_device(DEVICE), [programs / "ends.wasm", "3"], timeout=60, cwd=programs)
    assert (done.returncode, done.stdout) == (3, "2 ends.wasm\n")


@pytest.mark.parametrize("runner", RUNNERS.values(), ids=RUNNERS)
def test_a_trap_is_told(runner: ModuleType, programs: Path) -> None:
    done = runner.run(load_device(DEVICE), [programs / "ends.wasm", "crash"], timeout=60, cwd=programs)
    assert done.returncode not in {0, 2}
    assert done.stdout == "2 ends.wasm\n" and "unreachable" in done.stderr


@pytest.mark.parametrize("runner", RUNNERS.values(), ids=RUNNERS)
def test_a_program_that_hangs_is_ended(runner: ModuleType, programs: Path) -> None:
    with pytest.raises(ToolchainError, match=r"ends\.wasm in (node|wasmtime) did not end within 0\.4 s"):
        runner.run(load_device(DEVICE), [programs / "ends.wasm", "hang"], timeout=0.4, cwd=programs)
