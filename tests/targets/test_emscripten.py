"""Emscripten: packed, verified in node, and the ES module loaded there; with and without threads."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import edgepack
from edgepack.config.device import load_device
from edgepack.errors import CheckFailedError
from edgepack.objectfiles.audit import audit
from edgepack.objectfiles.wasm import sections
from edgepack.toolchains import resolve
from tests.models import build, save
from tests.support.mini import WARNINGS, make_sources, run

pytestmark = pytest.mark.skipif(
    shutil.which("emcc") is None, reason="Emscripten is not installed: apt install emscripten (850 MB)"
)
DEVICES = {"wasm32-emscripten": 1, "wasm32-emscripten-threads": 4}


@pytest.fixture(scope="module", params=DEVICES)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> edgepack.Bundle:
    folder = tmp_path_factory.mktemp("emscripten")
    return edgepack.pack(save(build("ds_cnn"), folder), request.param, folder / "out")


def test_network_agrees_with_onnxruntime(bundle: edgepack.Bundle) -> None:
    result = bundle.verify()
    assert result.ok, result
    assert (result.runner, result.threads) == ("node", DEVICES[bundle.manifest.device.name])
    assert bundle.bench(runs=2).real_speed


def test_the_es_module_gives_the_same(bundle: edgepack.Bundle, tmp_path: Path) -> None:
    manifest = bundle.manifest
    module = manifest.artifact("shared")
    assert module is not None and manifest.params.file is not None
    shutil.copy(bundle.path / manifest.recorded.inputs[0].file, tmp_path)
    script = Path(__file__).with_name("module_emscripten.mjs")
    es_module = (bundle.path / module.path).with_suffix(".mjs")
    run([shutil.which("node") or "node", script, es_module, bundle.path / manifest.params.file, tmp_path])
    output = manifest.recorded.outputs[0]
    got, want = (np.fromfile(path, "float32") for path in (tmp_path / "got_0.bin", bundle.path / output.file))
    np.testing.assert_allclose(got, want, rtol=output.rtol, atol=output.atol)


def test_threads_are_in_the_code_where_the_device_has_them(bundle: edgepack.Bundle) -> None:
    threads = DEVICES[bundle.manifest.device.name] > 1
    program = bundle.manifest.artifact("program")
    assert program is not None
    assert ("atomics" in program.audit["features"]) == threads
    assert (bundle.path / program.path).with_suffix(".worker.js").is_file() == threads


def test_a_module_with_threads_is_refused_for_a_device_without(tmp_path: Path) -> None:
    (tmp_path / "net.c").write_text(
        '__attribute__((visibility("default"))) int net(int *x);\n'
        "int net(int *x) { return __atomic_fetch_add(x, 1, __ATOMIC_SEQ_CST); }\n"
    )
    toolchain = resolve(load_device("wasm32-emscripten-threads"))
    toolchain.compile_c(tmp_path / "net.c", tmp_path / "net.o")
    toolchain.link_shared([tmp_path / "net.o"], tmp_path / "net.wasm", exported=["net"], soname="net.wasm")
    audit(tmp_path / "net.wasm", toolchain.device, kind="shared", exported=["net"])
    with pytest.raises(CheckFailedError, match=r"features: found atomics") as caught:
        audit(tmp_path / "net.wasm", load_device("wasm32-emscripten"), kind="shared", exported=["net"])
    assert "memory: found 0 memories; allowed: one of its own" in caught.value.detail


@pytest.mark.parametrize("threads", [[], ["-pthread"]], ids=["one thread", "threads"])
def test_c_has_no_warnings(threads: list[str], tmp_path: Path) -> None:
    bundle = make_sources(tmp_path / "bundle", arch="wasm32")
    toolchain = resolve(load_device("wasm32-emscripten"))
    for source in ("src/model.c", "src/runtime/module_wasm.c", "src/loader/system.c"):
        toolchain.compile_c(
            bundle.root / source,
            tmp_path / "out.o",
            include=[bundle.root / "include", bundle.root / "src"],
            flags=[*WARNINGS, *threads],
        )


def test_what_tvm_exports_asks_for_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "net.c").write_text(
        'int missing(void);\n__attribute__((visibility("default"))) int net(void);\n'
        "int net(void) { return missing(); }\n"
    )
    toolchain = resolve(load_device("wasm32-emscripten"))
    toolchain.compile_c(tmp_path / "net.c", tmp_path / "net.o")
    toolchain.cross_compiler()(str(tmp_path / "lib.wasm"), [str(tmp_path / "net.o")])
    data = (tmp_path / "lib.wasm").read_bytes()
    assert ("env", "missing", "function") in sections.imports(data)
    assert "net" in {name for name, _ in sections.exports(data)}


def test_it_says_its_version() -> None:
    assert resolve(load_device("wasm32-emscripten")).version().startswith("emcc ")
