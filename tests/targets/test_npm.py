"""A bundle for WebAssembly as an npm package: installed in a project, used from node, its types checked."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgepack
from edgepack.bundle import web_threads
from edgepack.errors import ConfigError
from edgepack.formats.platform import npm
from edgepack.system.files import list_files
from workbench.mini import run
from workbench.models import save, vision

NODE = shutil.which("node") or "node"
SCRIPT = Path(__file__).with_name("package.mjs")


def name_of(bundle: edgepack.Bundle) -> str:
    return str(json.loads((bundle.path / "package.json").read_text())["name"])


def packed(bundle: edgepack.Bundle) -> list[str]:
    """The files that npm puts into the package."""
    patterns = [
        *json.loads((bundle.path / "package.json").read_text())["files"],
        "package.json",
        "README.md",
    ]
    return [
        path
        for path in list_files(bundle.path)
        if any(path == one or (one.endswith("/") and path.startswith(one)) for one in patterns)
    ]


def installed(bundle: edgepack.Bundle, project: Path) -> Path:
    """The package in a project's node_modules, as npm puts it there."""
    for path in packed(bundle):
        target = project / "node_modules" / name_of(bundle) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(bundle.path / path, target)
    shutil.copyfile(SCRIPT, project / SCRIPT.name)
    return project


def use(case: str, bundle: edgepack.Bundle, project: Path, **given: Any) -> Any:
    """What the case of package.mjs saw."""
    arguments = json.dumps({"bundle": str(bundle.path), **given})
    return json.loads(run([NODE, installed(bundle, project) / SCRIPT.name, case, name_of(bundle), arguments]))


def agrees(bundle: edgepack.Bundle, values: dict[str, Any]) -> bool:
    for output in bundle.manifest.recorded.outputs:
        want = np.fromfile(bundle.path / output.file, output.dtype).astype(float)
        np.testing.assert_allclose(values[output.name][1], want, rtol=output.rtol, atol=output.atol)
    return len(values) == len(bundle.manifest.outputs)


class _Files(BaseHTTPRequestHandler):
    """Serves the params in pieces without a length, cut off, and a page that is there for every address."""

    params: bytes
    module: bytes

    def do_GET(self) -> None:
        name = self.path.strip("/")
        body, kind = {
            "params": (self.params, "application/octet-stream"),
            "cut": (self.params[:70000], "application/octet-stream"),
            "broken": (self.params[:70000], "application/octet-stream"),
            "module": (self.module, "application/wasm"),
            "untyped": (self.module, "application/octet-stream"),
            "page": (b"<!doctype html>", "text/html"),
        }.get(name, (b"", ""))
        self.send_response(200 if kind else 404)
        self.send_header("Content-Type", kind)
        if name == "broken":
            self.send_header("Content-Length", str(len(self.params)))
        self.end_headers()
        for at in range(0, len(body), 1 << 16):
            self.wfile.write(body[at : at + (1 << 16)])

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server(npm_bundles: dict[str, edgepack.Bundle]) -> Iterator[str]:
    bundle = npm_bundles["file"]
    files = {
        "params": (bundle.path / "params/image.params").read_bytes(),
        "module": (bundle.path / "lib/image.wasm").read_bytes(),
    }
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Files", (_Files,), files)) as http:
        threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_address[1]}"
        http.shutdown()


def test_runs_in_node_and_says_what_it_needs(npm_bundles: dict[str, edgepack.Bundle], tmp_path: Path) -> None:
    bundle = npm_bundles["file"]
    seen = use("run", bundle, tmp_path)
    assert agrees(bundle, seen["kept"])
    assert seen["again"] == seen["kept"]
    assert seen["inputs"] == [{"name": "input", "dtype": "float32", "shape": [1, 3, 32, 32], "length": 3072}]
    nbytes = (bundle.path / "params/image.params").stat().st_size
    memory = seen["memory"]
    assert (memory["params"], memory["arena"]) == (nbytes, bundle.manifest.memory.arena)
    assert memory["params"] + memory["arena"] < memory["total"] < nbytes + (2 << 20)
    assert seen["progress"][-1] == [nbytes, nbytes]
    assert [step["kernel"] for step in seen["steps"]] == [step.kernel for step in bundle.manifest.steps]
    assert sum(step["us"] for step in seen["steps"]) > 0
    assert seen["during"] == ["DISPOSED", "The model was disposed; load it again."]
    assert seen["after"] == ["DISPOSED", "The model was disposed; load it again."]


def test_any_name_and_other_dtypes_pass_with_params_inside(
    npm_bundles: dict[str, edgepack.Bundle], tmp_path: Path
) -> None:
    bundle = npm_bundles["embed"]
    assert not any(path.startswith("params/") for path in packed(bundle))
    seen = use("run", bundle, tmp_path)
    assert agrees(bundle, seen["kept"])
    kinds = {name: kind for name, (kind, _) in seen["kept"].items()}
    assert kinds == {'"quoted" \\ y': "Float32Array", "class": "BigInt64Array", "__proto__": "Uint8Array"}
    assert seen["again"] == seen["kept"] and seen["progress"] == []


def test_the_version_is_another_one_for_other_params(npm_bundles: dict[str, edgepack.Bundle]) -> None:
    """npm ci takes what its cache has of a version, so two models must not share one."""
    root = npm_bundles["file"].path
    version = json.loads((root / "package.json").read_text())["version"]
    assert re.fullmatch(r"0\.0\.0-m[0-9a-f]{12}", version)
    built = ("lib/image.wasm", "params/image.params")
    others = ("package.json", "README.md", "LICENSES/", *built)
    names = [*packed(npm_bundles["file"]), *(path for path in list_files(root) if path.startswith("demo/"))]
    texts = {path: (root / path).read_text() for path in names if not path.startswith(others)}
    files = {path: (root / path).read_bytes() for path in built}
    assert npm.content_version(texts, files) == version
    changed = files["params/image.params"][:-1] + b"x"
    assert npm.content_version(texts, {**files, "params/image.params": changed}) != version
    assert npm.content_version({**texts, "index.js": "//"}, files) != version


def test_name_scope_and_version_are_the_users(tmp_path: Path) -> None:
    image = save(vision.mobilenetv3(size=32), tmp_path, "image.onnx")
    bundle = edgepack.pack(
        image,
        "wasm32-wasi",
        tmp_path / "out",
        package_name="@acme/detector",
        package_version="2.0.0-beta.1",
    )
    package = json.loads((bundle.path / "package.json").read_text())
    assert (package["name"], package["version"]) == ("@acme/detector", "2.0.0-beta.1")
    assert 'from "@acme/detector"' in (bundle.path / "README.md").read_text()
    assert agrees(bundle, use("run", bundle, tmp_path)["kept"])


NO_NAMES = ["Detector", "@acme", "@acme/", "a b", ".hidden", "_x", "@Acme/x", "a/b", "x" * 215]
NO_VERSIONS = ["1", "1.2", "01.2.3", "1.2.3-", "1.2.3-01", "v1.2.3", "1.2.3 ", "^1.2.3"]


@pytest.mark.parametrize("name", NO_NAMES)
def test_names_that_npm_refuses_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is no name of an npm package"):
        npm.check_identity(name, "")


@pytest.mark.parametrize("version", NO_VERSIONS)
def test_versions_that_npm_refuses_are_refused(version: str) -> None:
    with pytest.raises(ConfigError, match="is no version of an npm package"):
        npm.check_identity("", version)


def test_only_npm_packages_have_a_name_and_a_version(tmp_path: Path) -> None:
    model = save(vision.mobilenetv3(size=32), tmp_path)
    with pytest.raises(ConfigError, match="A bundle for raspberrypi4 is no npm package"):
        edgepack.pack(model, "raspberrypi4", tmp_path / "out", package_version="1.0.0")
    npm.check_identity("@acme/a.b_c~d-1", "1.2.3-rc.1+build.5")


def test_params_may_come_from_the_caller(npm_bundles: dict[str, edgepack.Bundle], tmp_path: Path) -> None:
    bundle = npm_bundles["caller"]
    assert not any(path.startswith("params/") for path in packed(bundle))
    seen = use("caller", bundle, tmp_path, params=str(bundle.path / "params/caller.params"))
    assert seen["missing"][0] == "PARAMS" and "load({ params })" in seen["missing"][1]
    assert agrees(bundle, seen["values"])


def test_wrong_inputs_are_told_and_harm_nothing(
    npm_bundles: dict[str, edgepack.Bundle], tmp_path: Path
) -> None:
    seen = use("wrongInputs", npm_bundles["file"], tmp_path)
    messages = [message for code, message in seen["seen"] if code == "INPUT"]
    missing = "The inputs are not the model's: input is missing; it has input."
    assert messages == [
        missing,
        "The inputs are not the model's: input is missing, image is unknown; it has input.",
        "Input input is a plain array; the model takes float32 in a Float32Array.",
        "Input input is Float64Array; the model takes float32 in a Float32Array.",
        "Input input has 3071 elements; the model takes 3072 (1 x 3 x 32 x 32).",
        missing,
    ]
    assert seen["runs"] == ["INPUT", "0 runs cannot be measured."]
    assert agrees(npm_bundles["file"], seen["still"])


def test_params_and_module_come_from_anywhere(
    npm_bundles: dict[str, edgepack.Bundle], server: str, tmp_path: Path
) -> None:
    bundle = npm_bundles["file"]
    params = bundle.path / "params/image.params"
    seen = use(
        "sources",
        bundle,
        tmp_path,
        server=server,
        params=str(params),
        wasm=str(bundle.path / "lib/image.wasm"),
    )
    assert len(seen) >= 9
    for source in seen.values():
        assert agrees(bundle, source["values"])
        assert source.get("last", [0, 0]) in ([0, 0], [params.stat().st_size] * 2)
    assert seen["url"]["pieces"] > 1


def test_wrong_params_and_modules_are_told(
    npm_bundles: dict[str, edgepack.Bundle], server: str, tmp_path: Path
) -> None:
    bundle = npm_bundles["file"]
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as http:
        closed = f"http://127.0.0.1:{http.server_address[1]}/"
    seen = use(
        "wrongSources",
        bundle,
        tmp_path,
        server=server,
        closed=closed,
        params=str(bundle.path / "params/image.params"),
        program=str(bundle.path / "bin/image.wasm"),
    )
    nbytes = (bundle.path / "params/image.params").stat().st_size
    wanted = {
        "none": ("FETCH", "no such file"),
        "404": ("FETCH", f"{server}/nothing: 404"),
        "closed": ("FETCH", "ECONNREFUSED"),
        "short": ("PARAMS", f"{nbytes - 1} bytes, the model's params have {nbytes}"),
        "cut": ("PARAMS", f"{server}/cut: only 70000 bytes"),
        "broken": ("FETCH", f"cannot be fetched from {server}/broken: "),
        "page": ("PARAMS", f"{server}/page: only 15 bytes"),
        "long": ("PARAMS", f"more than {nbytes} bytes"),
        "zeros": ("EP_E_PARAMS_MAGIC", "not a params file"),
        "changed": ("EP_E_PARAMS_HASH", "copy the file again"),
        "number": ("INPUT", "not number"),
        "used": ("FETCH", "was read already"),
        "aborted": ("DOMException", "aborted"),
        "wasm page": ("ENGINE", "expected magic word"),
        "wasm program": ("ENGINE", "This is not the module of image"),
        "simd": ("ENGINE", "This engine has no WebAssembly SIMD"),
    }
    assert seen.keys() == wanted.keys()
    for kind, (code, text) in wanted.items():
        assert seen[kind] is not None, kind
        assert seen[kind][0] == code and text in seen[kind][1], (kind, seen[kind])


def test_runs_in_a_worker(npm_bundles: dict[str, edgepack.Bundle], tmp_path: Path) -> None:
    bundle = npm_bundles["file"]
    seen = use("worker", bundle, tmp_path)
    assert agrees(bundle, seen["kept"])
    assert (seen["before"], seen["after"]) == (3072, 0)
    assert seen["wrong"] == [
        "INPUT",
        "Input input has 2 elements; the model takes 3072 (1 x 3 x 32 x 32).",
    ]
    assert seen["steps"] == len(bundle.manifest.steps)
    assert seen["memory"]["arena"] == bundle.manifest.memory.arena
    assert [code for code, _ in seen["ended"]] == ["DISPOSED", "DISPOSED"]
    assert seen["missing"][0] == "FETCH"
    assert seen["progress"][0] == seen["progress"][1] == seen["memory"]["params"]


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed: apt-get install npm")
@pytest.mark.parametrize("mode", ["file", pytest.param("embed", marks=pytest.mark.slow)])
def test_npm_packs_and_installs_it(
    mode: str, npm_bundles: dict[str, edgepack.Bundle], tmp_path: Path
) -> None:
    bundle = npm_bundles[mode]
    (tmp_path / "package.json").write_text('{"name": "app", "private": true}')
    before = list_files(bundle.path)
    pack = ["npm", "pack", bundle.path, "--json"]
    done = subprocess.run(pack, cwd=tmp_path, stdout=subprocess.PIPE, check=True, timeout=60)
    (tarball,) = json.loads(done.stdout)
    assert sorted(file["path"] for file in tarball["files"]) == sorted(packed(bundle))
    assert list_files(bundle.path) == before
    install = ["npm", "install", f"./{tarball['filename']}", "--offline", "--no-audit", "--no-fund"]
    run(install, cwd=tmp_path)
    shutil.copyfile(SCRIPT, tmp_path / SCRIPT.name)
    arguments = json.dumps({"bundle": str(bundle.path)})
    seen = json.loads(run([NODE, tmp_path / SCRIPT.name, "run", name_of(bundle), arguments]))
    assert agrees(bundle, seen["kept"])


def test_small_models_and_embedded_params_have_one_module(npm_bundles: dict[str, edgepack.Bundle]) -> None:
    for mode, small in npm_bundles.items():
        assert small.manifest.web_threads is None, mode
        assert small.manifest.flops < web_threads.LEAST_FLOPS
        assert not (small.path / "web/pool.js").exists()
        assert "threads?" not in (small.path / "index.d.ts").read_text()


USES_IMAGE = """
import { inputs, load, outputs, EdgepackError, type ErrorCode, type Inputs } from "image-wasm";
import { loadInWorker } from "image-wasm/worker";
import { imageToTensor, IMAGENET, type ImageOptions } from "image-wasm/image";
import { logMel, resample, toMono, type Matrix } from "image-wasm/audio";

const options: ImageOptions = { ...IMAGENET, resize: 36 };
const image: Float32Array = imageToTensor(new ImageData(40, 50), inputs[0], options);
const sound: Float32Array = resample(toMono([new Float32Array(8)]), 44100, 16000);
const mel: Matrix = logMel(sound, { sampleRate: 16000, fftSize: 400, hop: 160, mels: 80, log: "log10" });
// @ts-expect-error: a transform has a size
logMel(sound, { sampleRate: 16000, hop: 160, mels: 80 });
export { image, mel };
const shape: readonly [1, 3, 32, 32] = inputs[0].shape;
const name: "logits" = outputs[0].name;
const model = await load({ onProgress: (loaded: number, total: number) => loaded / total, check: true });
const given: Inputs = { input: new Float32Array(inputs[0].length) };
const { logits } = model.run(given);
const scores: Float32Array = logits;
const us: number = (await model.profile(given, 3))[0]!.us + model.memory.total;
const code = (error: EdgepackError): ErrorCode => error.code;
const remote = await loadInWorker({ params: "elsewhere/image.params" });
const later: Promise<{ logits: Float32Array }> = remote.run(given, { transfer: true });
// @ts-expect-error: a plain array
model.run({ input: [1, 2, 3] });
// @ts-expect-error: no such input
model.run({ image: new Float32Array(3) });
// @ts-expect-error: no such output
model.run(given).probabilities;
// @ts-expect-error: a promise
remote.run(given).logits;
// @ts-expect-error: no such option
await load({ threads: 2 });
// @ts-expect-error: a Response cannot be sent to a worker
await loadInWorker({ params: new Response() });
model.dispose();
export { shape, name, scores, us, code, later };
"""
USES_ODD = """
import { load } from "odd-wasm";

const model = await load();
const given = { "my input:0": new Float32Array(6), count: new BigInt64Array(2) };
const result = model.run(given);
const large: BigInt64Array = result.class;
const is: Uint8Array = result["__proto__"];
const y: Float32Array = result['"quoted" \\\\ y'];
// @ts-expect-error: int64 is a BigInt64Array
model.run({ ...given, count: new Int32Array(2) });
export { large, is, y };
"""
USES_CALLER = """
import { load } from "caller-wasm";
import { loadInWorker } from "caller-wasm/worker";

const model = await load({ params: "https://example.org/params" });
// @ts-expect-error: the params must be given
await load();
// @ts-expect-error: the params must be given
await loadInWorker({});
export { model };
"""


@pytest.mark.skipif(shutil.which("tsc") is None, reason="tsc is missing: apt-get install node-typescript")
def test_types_are_right(npm_bundles: dict[str, edgepack.Bundle], tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"name": "app", "private": true, "type": "module"}')
    for bundle in npm_bundles.values():
        installed(bundle, tmp_path)
    uses = {"image": USES_IMAGE, "odd": USES_ODD, "caller": USES_CALLER}
    for name, text in uses.items():
        (tmp_path / f"{name}.ts").write_text(text)
    options = {
        "strict": True,
        "noEmit": True,
        "noUncheckedIndexedAccess": True,
        "target": "es2022",
        "lib": ["es2022", "dom"],
        "types": [],
        "module": "node16",
        "moduleResolution": "node16",
    }
    files = [f"{name}.ts" for name in uses]
    (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": files}))
    run(["tsc", "--project", "."], cwd=tmp_path)
