"""npm packages: installed by npm from the tarball, run by node; bundled by Vite, shown by Chromium."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgepack.api import Bundle, export, pack
from edgepack.commands.export import source_bundle
from edgepack.errors import ConfigError
from edgepack.formats.npm_package import NPM
from edgepack.runners import browser
from tests.formats.bundles import altered
from tests.support import fake
from tests.support.manifest import seal
from tests.support.packages import METADATA, blocks, hostile, run, tool, write

NPM_FLAGS = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
NAME = "@acme/small.model"


@pytest.fixture(scope="module")
def wasm_bundle(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    with pytest.MonkeyPatch.context() as patch:
        fake.install("ok", patch.setattr)
        return pack(small_model, "wasm32-wasi", tmp_path_factory.mktemp("wäsm bundle") / "small")


@pytest.fixture(scope="module")
def tarball(wasm_bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tar ball") / "dist"
    (made,) = write(NPM, [source_bundle(wasm_bundle.path)], folder, replace(METADATA, name=NAME))
    return made


@pytest.fixture(scope="module")
def project(tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which npm installed the tarball, without a network."""
    folder = tmp_path_factory.mktemp("projéct")
    (folder / "package.json").write_text('{"name": "project", "private": true, "type": "module"}')
    cache = tmp_path_factory.mktemp("npm cache")
    run(tool("npm"), "install", "--offline", *NPM_FLAGS, "--cache", cache, tarball, cwd=folder)
    return folder


USE = """
import { readFile } from "node:fs/promises";
import { load, inputs } from "@acme/small.model";
const file = await readFile(process.argv[2]);
const model = await load({ check: true });
const { output, sign } = model.run({ [inputs[0].name]: new Float32Array(new Uint8Array(file).buffer) });
model.dispose();
console.log(JSON.stringify({ output: Array.from(output), sign: Array.from(sign) }));
"""


def test_is_installed_by_npm_and_runs_in_node(project: Path, wasm_bundle: Bundle) -> None:
    installed = project / "node_modules" / NAME
    (project / "printed.js").write_text(blocks(installed / "README.md", "js")[0])
    assert run(tool("node"), "printed.js", cwd=project) == "32\n32\n"
    (project / "use.js").write_text(USE)
    got = json.loads(run(tool("node"), "use.js", wasm_bundle.path / "test/input_0.bin", cwd=project))
    for tensor in wasm_bundle.manifest.recorded.outputs:
        want = np.fromfile(wasm_bundle.path / tensor.file, tensor.dtype).astype(float)
        np.testing.assert_allclose(got[tensor.name], want, rtol=1e-4, atol=1e-5)
    package = json.loads((installed / "package.json").read_text("utf-8"))
    assert (package["name"], package["version"], package["description"]) == (
        NAME,
        METADATA.version,
        METADATA.summary,
    )
    assert package["author"] == {"name": 'Zoë "Q" O\'Neil ]] */ \\', "email": "zoe@example.org"}
    assert package["contributors"] == [{"name": "Plain Name"}]


def test_holds_what_npm_itself_would_pack(tarball: Path, tmp_path: Path) -> None:
    assert tarball.name == f"acme-small.model-{METADATA.version}.tgz"
    shutil.unpack_archive(tarball, tmp_path / "x")
    flags = ("--dry-run", "--json", "--ignore-scripts", "--loglevel=silent")
    shown = json.loads(run(tool("npm"), "pack", *flags, cwd=tmp_path / "x" / "package"))[0]
    with tarfile.open(tarball) as archive:
        ours = {member.name.partition("/")[2]: member.size for member in archive}
    assert ours == {one["path"]: one["size"] for one in shown["files"]}
    assert shown["filename"] == tarball.name


def test_a_bundles_own_name_and_version_are_kept(wasm_bundle: Bundle, tmp_path: Path) -> None:
    (made,) = export(wasm_bundle, "npm", tmp_path)
    assert re.fullmatch(r"small-wasm-0\.0\.0-m[0-9a-f]{12}\.tgz", made.name)
    (again,) = export(wasm_bundle, "npm", tmp_path / "again")
    assert again.read_bytes() == made.read_bytes()


def test_scripts_of_a_bundle_are_not_given_on(wasm_bundle: Bundle, tmp_path: Path) -> None:
    copy = altered(wasm_bundle, tmp_path / "b", lambda manifest: None)
    package = json.loads((copy / "package.json").read_text())
    package |= {"scripts": {"postinstall": "echo harm"}, "dependencies": {"evil": "*"}}
    (copy / "package.json").write_text(json.dumps(package))
    seal(copy)
    (made,) = export(copy, "npm", tmp_path / "dist")
    with tarfile.open(made) as archive:
        member = archive.extractfile("package/package.json")
        assert member is not None
        assert not {"scripts", "dependencies"} & set(json.loads(member.read()))


def test_the_readme_of_hostile_names_is_javascript(wasm_bundle: Bundle, tmp_path: Path) -> None:
    (made,) = write(NPM, [hostile(wasm_bundle)], tmp_path / "dist", replace(METADATA, name=""))
    shutil.unpack_archive(made, tmp_path / "x")
    (tmp_path / "code.mjs").write_text(blocks(tmp_path / "x/package/README.md", "js")[0], "utf-8")
    run(tool("node"), "--check", "code.mjs", cwd=tmp_path)


@pytest.mark.parametrize("wrong", ["a b", "../x", "@a", "Upper", "ü", 'a"b'])
def test_what_npm_takes_for_no_name_is_refused(wrong: str, wasm_bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no name of an npm package"):
        export(wasm_bundle, "npm", tmp_path / "dist", package_name=wrong)


def test_other_devices_are_refused(small_bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="npm packages are made of bundles for WebAssembly"):
        export(small_bundle, "npm", tmp_path / "dist")


PAGE = '<!doctype html><meta charset="utf-8"><script type="module" src="./main.ts"></script>'
MAIN = """
import { load, type Outputs } from "@acme/small.model";
import { loadInWorker } from "@acme/small.model/worker";
const model = await load();
const input = new Float32Array(32).fill(1);
const outputs: Outputs = model.run({ input });
const other = await loadInWorker();
const far: Outputs = await other.run({ input });
const same = outputs.output.every((value, index) => value === far.output[index]);
await fetch("../end", { method: "POST", body: JSON.stringify([outputs.output.length, same]) });
"""


@pytest.fixture(scope="module")
def built(project: Path) -> Path:
    """The project with Vite and TypeScript of the registry, and what Vite builds of a page."""
    try:
        run(tool("npm"), "install", *NPM_FLAGS, "vite@6", "typescript@5", cwd=project)
    except AssertionError as error:
        pytest.skip(f"npm cannot install vite: {error}")
    (project / "index.html").write_text(PAGE)
    (project / "main.ts").write_text(MAIN)
    (project / "vite.config.js").write_text(blocks(project / "node_modules" / NAME / "README.md", "js")[1])
    run(project / "node_modules/.bin/vite", "build", "--base", "./", "--target", "esnext", cwd=project)
    return project


@pytest.mark.slow
def test_types_are_checked_by_typescript(built: Path) -> None:
    flags = ("--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom")
    tsc = built / "node_modules/.bin/tsc"
    run(tsc, *flags, "main.ts", cwd=built)
    (built / "wrong.ts").write_text(MAIN.replace("Float32Array(32)", "Float64Array(32)"))
    assert "Float64Array" in run(tsc, *flags, "wrong.ts", cwd=built, code=2)


@pytest.mark.slow
@pytest.mark.skipif(browser.find_browser() is None, reason="no browser is here: apt-get install chromium")
def test_a_page_that_vite_built_runs_it(built: Path) -> None:
    found = browser.find_browser()
    assert found is not None
    posts = browser.browse(found, {"dist": built / "dist"}, "dist/index.html", timeout=120)
    assert json.loads(posts["end"]) == [32, True]
