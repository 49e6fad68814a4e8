"""An npm package with a second module for threads, which there is where they help: in node, and in pages that
are isolated from others, or not."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgepack
from edgepack.config.device import load_device
from edgepack.errors import CheckFailedError, ConfigError, ToolchainError
from edgepack.objectfiles.audit import audit
from edgepack.runners import browser
from edgepack.system.files import list_files
from edgepack.toolchains import resolve
from edgepack.toolchains.zig_shared_memory import SharedMemoryToolchain, with_shared_memory
from tests.support import devtools
from workbench.mini import run
from workbench.models import save
from workbench.models.builder import Graph

NODE = shutil.which("node") or "node"
HERE = Path(__file__).parent
DEVICE = "wasm32-wasi"
#: As many as there are, but no more than the device says.
DEFAULT = min(4, os.cpu_count() or 1)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> edgepack.Bundle:
    """Two convolutions with 24 million operations, and what has one task alone."""
    folder = tmp_path_factory.mktemp("web threads")
    g = Graph("wide", seed=5)
    first = g.op("Relu", g.conv(g.input("x", (1, 8, 48, 48)), 8, 32, 3, bias=True))
    last = g.op("GlobalAveragePool", g.op("Tanh", g.conv(first, 32, 16, 3)))
    g.op("Softmax", g.op("Flatten", last), name="y")
    g.output("y")
    return edgepack.pack(save(g.model(), folder, "wide.onnx"), DEVICE, folder / "out")


@pytest.fixture
def project(bundle: edgepack.Bundle, tmp_path: Path) -> Path:
    """A project with the package in its node_modules, as npm puts it there."""
    package = json.loads((bundle.path / "package.json").read_text())
    for path in list_files(bundle.path):
        if path == "package.json" or any(path == one or path.startswith(one) for one in package["files"]):
            target = tmp_path / "node_modules" / package["name"] / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(bundle.path / path, target)
    shutil.copyfile(HERE / "web_threads.mjs", tmp_path / "web_threads.mjs")
    return tmp_path


def use(case: str, bundle: edgepack.Bundle, project: Path) -> Any:
    """What the case of web_threads.mjs saw."""
    return json.loads(
        run([NODE, project / "web_threads.mjs", case, json.dumps({"bundle": str(bundle.path)})])
    )


def agrees(bundle: edgepack.Bundle, values: list[float]) -> bool:
    (output,) = bundle.manifest.recorded.outputs
    want = np.fromfile(bundle.path / output.file, "float32")
    return bool(np.allclose(np.float32(values), want, rtol=output.rtol, atol=output.atol))


def test_any_number_of_threads_gives_the_same(bundle: edgepack.Bundle, project: Path) -> None:
    seen = use("threads", bundle, project)
    models, manifest = seen["models"], bundle.manifest
    assert {kind: model["threads"] for kind, model in models.items()} == {
        **{"default": DEFAULT, "one": 1, "three": 3, "module": 2, "worker": 2}
    }
    assert agrees(bundle, models["one"]["values"])
    assert all(model["values"] == models["one"]["values"] for model in models.values())
    for model in (models["default"], models["one"], models["three"], models["module"]):
        assert model["same"] and model["after"][0] == "DISPOSED"
        assert len(model["us"]) == len(manifest.steps)
        assert all(0 <= us < 1e6 for us in model["us"])  # workers have the clock of who runs the model
        assert model["memory"]["params"] == (bundle.path / "params/wide.params").stat().st_size
    assert {error[0] for error in [*seen["refused"], seen["one"]]} == {"INPUT"}
    assert "from 1 to 64" in seen["refused"][0][1] and "one thread" in seen["one"][1]


def test_without_shared_memory_it_is_the_other_module(bundle: edgepack.Bundle, project: Path) -> None:
    seen = use("alone", bundle, project)
    assert seen["threads"] == 1 and agrees(bundle, seen["values"])
    assert seen["asked"][0] == "ENGINE" and "Cross-Origin-Embedder-Policy" in seen["asked"][1]


def test_a_thread_that_traps_is_not_waited_for(bundle: edgepack.Bundle, project: Path) -> None:
    worker = project / "node_modules/wide-wasm/web/pool_worker.js"
    text = worker.read_text()
    assert "const now = () =>" in text
    worker.write_text(text.replace("const now = () =>", "const now = () => nothing.now +"))
    seen = use("trapped", bundle, project)
    assert seen["error"] == ["RuntimeError", "unreachable"]
    assert seen["after"][0] == "EP_E_BUSY"


def test_threads_that_cannot_be_started_are_told(bundle: edgepack.Bundle, project: Path) -> None:
    (project / "node_modules/wide-wasm/web/pool_worker.js").unlink()
    seen = use("missing", bundle, project)
    assert seen["error"][0] == "WORKER" and "load({ threads: 1 })" in seen["error"][1]
    assert seen["threads"] == 1 and agrees(bundle, seen["values"])
    if DEFAULT > 1:  # of which nobody asked for more than one
        (warned,) = seen["warned"]
        assert warned.startswith("wide computes on one thread. A thread cannot be started")


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder: what is below /isolated/ with the headers that isolate a page."""

    def translate_path(self, path: str) -> str:
        return super().translate_path(path.removeprefix("/isolated").removeprefix("/plain"))

    def end_headers(self) -> None:
        if self.path.startswith("/isolated/"):
            self.send_header("Cross-Origin-Opener-Policy", "same-origin")
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
            self.send_header("Cross-Origin-Resource-Policy", "cross-origin")
        self.send_header("Access-Control-Allow-Origin", "*")
        super().end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    def handler(*arguments: Any) -> Handler:
        return Handler(*arguments, directory=str(folder))

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.skipif(browser.find_browser() is None, reason="no browser is here: apt-get install chromium")
def test_pages_get_threads_if_they_are_isolated(bundle: edgepack.Bundle, tmp_path: Path) -> None:
    (tmp_path / "bundle").symlink_to(bundle.path)
    shutil.copyfile(HERE / "web_threads_page.js", tmp_path / "page.js")
    (tmp_path / "page.html").write_text(
        '<!doctype html><title>threads</title><script src="page.js"></script>'
    )
    seen = {}
    with served(tmp_path) as root, devtools.open_page(f"{root}/plain/page.html") as page:
        seen["plain"] = json.loads(page.evaluate("seen"))
        page.load(f"{root}/isolated/page.html")
        seen["isolated"] = json.loads(page.evaluate("seen"))
    for kind, one in seen.items():
        assert "failed" not in one, one["failed"]
        assert one["isolated"] == (kind == "isolated")
        assert agrees(bundle, one["values"]) and agrees(bundle, one["far"])
    plain, isolated = seen["plain"], seen["isolated"]
    assert (plain["threads"], isolated["threads"]) == ([1, 1], [DEFAULT, DEFAULT])
    assert plain["asked"].startswith("ENGINE Threads need a page that is isolated") and isolated["asked"] == 3
    assert "wide.wasm" in plain["fetched"] and "wide-threads.wasm" not in plain["fetched"]
    assert "pool.js" not in plain["fetched"]  # nothing is fetched for threads that cannot be
    assert "wide-threads.wasm" in isolated["fetched"]
    # Scripts of another site cannot start workers here: one thread, and where there could be more, a warning.
    for one in (plain, isolated):
        threads, values, *warned = one["elsewhere"]
        assert threads == 1 and agrees(bundle, values)
        assert len(warned) == (one is isolated and DEFAULT > 1)
        assert all("A thread cannot be started" in text for text in warned)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tsc") is None, reason="tsc is missing: apt-get install node-typescript")
def test_types_have_threads(project: Path) -> None:
    (project / "app.ts").write_text(
        'import { load } from "wide-wasm";\nimport { loadInWorker } from "wide-wasm/worker";\n'
        "export const near: number = (await load({ threads: 2 })).threads;\n"
        "export const far: number = (await loadInWorker({ threads: 2 })).threads;\n"
    )
    options = {"strict": True, "noEmit": True, "target": "es2022", "lib": ["es2022", "dom"], "types": []}
    options |= {"module": "node16", "moduleResolution": "node16"}
    (project / "package.json").write_text('{"name": "app", "private": true, "type": "module"}')
    (project / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": ["app.ts"]}))
    run(["tsc", "--project", "."], cwd=project)


def test_both_modules_are_in_manifest_and_package(bundle: edgepack.Bundle) -> None:
    module = bundle.manifest.web_threads
    assert module is not None and (module.path, module.threads) == ("lib/wide-threads.wasm", 4)
    assert module.nbytes == (bundle.path / module.path).stat().st_size
    assert "atomics" in module.audit["features"] and "env.memory" in module.audit["undefined"]
    shared = bundle.manifest.artifact("shared")
    assert shared is not None and "atomics" not in shared.audit["features"]
    package = json.loads((bundle.path / "package.json").read_text())
    assert {shared.path, module.path} <= set(package["files"])
    assert package["exports"][f"./{module.path}"] == f"./{module.path}"
    for types in ("index.d.ts", "worker.d.ts"):
        text = (bundle.path / types).read_text()
        assert "at most 4. */" in text and "threads?: number" in text
    assert "load({ threads })" in (bundle.path / "README.md").read_text()


def test_it_is_no_module_for_one_thread(bundle: edgepack.Bundle) -> None:
    module = bundle.manifest.web_threads
    assert module is not None
    with pytest.raises(CheckFailedError, match=r"env\.memory") as caught:
        audit(bundle.path / module.path, load_device(DEVICE), kind="shared", exported=["ep_run"])
    assert "memory: found 0 memories; allowed: one of its own" in caught.value.detail


def test_only_web_assembly_has_web_threads(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text("extends: linux-x86_64\nweb_threads: 2\n")
    with pytest.raises(ConfigError, match="web_threads: only WebAssembly"):
        load_device(tmp_path / "net.yaml")
    (tmp_path / "one.yaml").write_text(f"extends: {DEVICE}\nweb_threads: 1\n")
    assert with_shared_memory(resolve(load_device(tmp_path / "one.yaml"))) is None
    assert with_shared_memory(resolve(load_device("wasm32-emscripten"))) is None


def test_a_zig_that_does_not_say_what_it_links_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    toolchain = with_shared_memory(resolve(load_device(DEVICE)))
    assert isinstance(toolchain, SharedMemoryToolchain)
    monkeypatch.setattr(SharedMemoryToolchain, "_run", lambda *arguments: "wasm-ld -o out.wasm")
    with pytest.raises(ToolchainError, match="does not say with what it links") as caught:
        toolchain.link_shared([], tmp_path / "net.wasm", exported=["net"], soname="net.wasm")
    assert "web_threads: 1" in caught.value.hint
