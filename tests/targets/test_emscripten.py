"""Emscripten: packed, verified in node, and the ES module loaded there; with and without threads."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import edgepack
from edgepack.config.device import load_device
from edgepack.errors import CheckFailedError
from edgepack.objectfiles.audit import audit
from edgepack.objectfiles.wasm import sections
from edgepack.runners import browser
from edgepack.system.files import list_files
from edgepack.toolchains import resolve
from workbench.mini import WARNINGS, make_sources, run
from workbench.models import build, save

pytestmark = pytest.mark.skipif(
    shutil.which("emcc") is None, reason="Emscripten is not installed: apt install emscripten (850 MB)"
)
NODE = shutil.which("node") or "node"
SCRIPT = Path(__file__).with_name("package_emscripten.mjs")
DEVICES = {"wasm32-emscripten": 1, "wasm32-emscripten-threads": 4}


@pytest.fixture(scope="module", params=DEVICES)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> edgepack.Bundle:
    folder = tmp_path_factory.mktemp("emscripten")
    return edgepack.pack(save(build("ds_cnn"), folder, "ds_cnn.onnx"), request.param, folder / "out")


def test_network_agrees_with_onnxruntime(bundle: edgepack.Bundle) -> None:
    result = bundle.verify()
    assert result.ok, result
    assert (result.runner, result.threads) == ("node", DEVICES[bundle.manifest.device.name])
    assert bundle.bench(runs=2).real_speed


def installed(bundle: edgepack.Bundle, project: Path) -> Path:
    """The package in a project's node_modules, as npm puts it there; the script that uses it beside it."""
    package = json.loads((bundle.path / "package.json").read_text())
    for path in list_files(bundle.path):
        if any(path == one or path.startswith(f"{one.rstrip('/')}/") for one in package["files"]):
            target = project / "node_modules" / package["name"] / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(bundle.path / path, target)
    shutil.copyfile(bundle.path / "package.json", project / "node_modules" / package["name"] / "package.json")
    shutil.copyfile(SCRIPT, project / SCRIPT.name)
    return project / SCRIPT.name


def test_the_package_gives_the_same_and_lets_node_end(bundle: edgepack.Bundle, tmp_path: Path) -> None:
    most = DEVICES[bundle.manifest.device.name]
    arguments = json.dumps({"bundle": str(bundle.path), "most": most})
    seen = json.loads(run([NODE, installed(bundle, tmp_path), arguments]))
    (output,) = bundle.manifest.recorded.outputs
    want = np.fromfile(bundle.path / output.file, "float32")
    assert len(seen["values"]) == (4 if most > 1 else 2)
    for values in seen["values"].values():
        np.testing.assert_allclose(values, want, rtol=output.rtol, atol=output.atol)
    # As many as the machine has processors, less the thread that asks for them, and no more than asked.
    assert seen["workers"]["default"] == min(most, os.cpu_count() or 1) - 1
    assert seen["workers"].get("three", 2) == 2
    assert {error[0] for error in seen["refused"]} == {"INPUT"}
    assert seen["steps"] == len(bundle.manifest.steps)
    assert seen["memory"]["arena"] == bundle.manifest.memory.arena
    assert seen["after"][0] == "DISPOSED"
    assert seen["other"][0] == "ENGINE" and "This is not the module of ds_cnn" in seen["other"][1]


def test_a_page_that_is_not_isolated_is_told(bundle: edgepack.Bundle, tmp_path: Path) -> None:
    if DEVICES[bundle.manifest.device.name] == 1:
        pytest.skip("this module has no threads")
    index = installed(bundle, tmp_path).with_name("isolated.mjs")
    index.write_text(
        "delete globalThis.SharedArrayBuffer;\n"
        'const { load } = await import("ds_cnn-wasm");\n'
        "console.log(await load().catch((error) => `${error.code} ${error.message}`));\n"
    )
    said = run([NODE, index])
    assert said.startswith("ENGINE Threads need a page that is isolated")
    assert "Cross-Origin-Embedder-Policy" in said


def test_the_readme_is_true(bundle: edgepack.Bundle) -> None:
    """Its command runs as it stands there; nothing in it is of other systems."""
    readme = (bundle.path / "README.md").read_text()
    (command,) = re.findall(r"^    (node bin/\S+ verify test) ", readme, re.MULTILINE)
    assert '"status": "ok"' in run(command.split(), cwd=bundle.path).replace('":"', '": "')
    assert "mapped" not in readme and "wasmtime" not in readme
    assert 'from "ds_cnn-wasm"' in readme
    assert ("load({ threads })" in readme) == (DEVICES[bundle.manifest.device.name] > 1)


@pytest.mark.skipif(shutil.which("tsc") is None, reason="tsc is missing: apt-get install node-typescript")
def test_types_have_threads_where_the_module_has(bundle: edgepack.Bundle, tmp_path: Path) -> None:
    installed(bundle, tmp_path)
    threads = DEVICES[bundle.manifest.device.name] > 1
    expected = "" if threads else "// @ts-expect-error: no such option\n"
    (tmp_path / "app.ts").write_text(
        'import { load } from "ds_cnn-wasm";\nimport { loadInWorker } from "ds_cnn-wasm/worker";\n'
        f"{expected}export const model = await load({{ threads: 2 }});\n"
        f"{expected}export const remote = await loadInWorker({{ threads: 2 }});\n"
        "export const words: Float32Array = (await load()).run({ mfcc: new Float32Array(490) }).words;\n"
    )
    options = {"strict": True, "noEmit": True, "target": "es2022", "lib": ["es2022", "dom"], "types": []}
    options |= {"module": "node16", "moduleResolution": "node16"}
    (tmp_path / "package.json").write_text('{"name": "app", "private": true, "type": "module"}')
    (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": ["app.ts"]}))
    run(["tsc", "--project", "."], cwd=tmp_path)


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


@pytest.mark.skipif(browser.find_browser() is None, reason="no browser is here: apt-get install chromium")
def test_the_package_works_in_a_page_and_its_worker(bundle: edgepack.Bundle, tmp_path: Path) -> None:
    for name in ("page.html", "page_emscripten.js"):
        target = tmp_path / ("page.js" if name.endswith(".js") else name)
        shutil.copyfile(Path(__file__).with_name(name), target)
    found = browser.find_browser()
    assert found is not None
    folders = {"bundle": bundle.path, "test": tmp_path}
    seen = json.loads(browser.browse(found, folders, "test/page.html", timeout=120)["end"])
    assert "failed" not in seen, seen["failed"]
    most = DEVICES[bundle.manifest.device.name]
    assert seen["threads"] == min(most, os.cpu_count() or 1)
    (output,) = bundle.manifest.recorded.outputs
    want = np.fromfile(bundle.path / output.file, "float32")
    for values in (seen["values"], seen["far"]):
        np.testing.assert_allclose(values, want, rtol=output.rtol, atol=output.atol)
