"""The Go module. What runs Go is behind the marker, for Go takes 200 MB: `apt-get install golang-go`,
`pytest -m slow tests/formats/test_go.py`."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from edgepack.api import Bundle, export
from edgepack.commands.export import source_bundle
from edgepack.errors import ConfigError
from edgepack.formats.base import SourceBundle
from edgepack.formats.golang import GO
from edgepack.formats.metadata import PackageMetadata
from tests.support import packages
from tests.support.worker import COLUMNS, ROWS, reference

CHECK = Path(__file__).with_name("consumers") / "check.go"


def unpacked(file: Path, folder: Path) -> Path:
    shutil.unpack_archive(file, folder, "zip")
    (inside,) = folder.iterdir()
    return inside


def go(*arguments: str | Path, cwd: Path, **environment: str) -> str:
    # No module comes from the network; the compiler is the installed one.
    offline = {
        "GOFLAGS": "-mod=mod",
        "GOPROXY": "off",
        "GOTOOLCHAIN": "local",
        "CGO_ENABLED": "1",
        "GOWORK": "off",
    }
    return packages.run(packages.tool("go"), *arguments, cwd=cwd, **{**offline, **environment})


@pytest.mark.slow
def test_a_program_with_the_module_gives_the_results(small_bundle: Bundle, tmp_path: Path) -> None:
    """Used as its README says, and from a vendor folder."""
    (made,) = export(small_bundle, "go", tmp_path / "dist", package_version="1.2.0")
    module = unpacked(made, tmp_path / "place")
    assert not packages.run(packages.tool("gofmt"), "-l", ".", cwd=module)
    go("vet", "./...", cwd=module)
    app = tmp_path / "place" / "app"
    app.mkdir()
    (app / "go.mod").write_text("module app\n\ngo 1.17\n")
    readme = (module / "README.md").read_text("utf-8")
    (line,) = re.findall(r"^    go (mod edit .*)$", readme, re.MULTILINE)
    go(*line.split(), cwd=app)
    (example,) = packages.blocks(module / "README.md", "go")
    (app / "main.go").write_text(example)
    assert len(go("run", ".", cwd=app).split()) == 2
    (app / "main.go").write_text(CHECK.read_text())
    go("vet", ".", cwd=app)
    inputs = small_bundle.path / "test" / "input_0.bin"
    go("mod", "vendor", cwd=app)
    shutil.rmtree(module)
    text = go("run", ".", inputs, cwd=app, GOFLAGS="-mod=vendor")
    values = np.array([line.split() for line in text.splitlines()], "f4")
    x = np.fromfile(inputs, "f4").reshape(ROWS, COLUMNS)
    expected = np.stack([part.ravel() for part in reference(x)], axis=1)
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_no_name_and_no_metadata_ends_a_string_or_a_comment(small_bundle: Bundle, tmp_path: Path) -> None:
    """Compiled against a function of any arguments."""
    odd = packages.hostile(small_bundle)
    (made,) = packages.write(GO, [odd], tmp_path / "dist")
    module = unpacked(made, tmp_path / "place")
    source = module / "model.go"
    source.write_text(
        source.read_text().replace("return small_run(session", "return ((ep_status(*)())0)(session")
    )
    go("vet", ".", cwd=module)
    assert not packages.run(packages.tool("gofmt"), "-l", ".", cwd=module)


@pytest.mark.slow
def test_another_target_is_told_that_there_is_no_library(small_bundle: Bundle, tmp_path: Path) -> None:
    other = packages.on(source_bundle(small_bundle.path), os="windows")
    (made,) = packages.write(GO, [other], tmp_path / "dist", PackageMetadata())
    with pytest.raises(AssertionError, match="small_has_no_library_for_this_target"):
        go("build", ".", cwd=unpacked(made, tmp_path / "place"))


def test_the_files_are_where_go_looks(small_bundle: Bundle, tmp_path: Path) -> None:
    """A file for each target, the header's folder with a package, and a path that has the major version."""
    source = source_bundle(small_bundle.path)
    bundles = [source, packages.on(source, os="android", arch="aarch64")]
    given = PackageMetadata(name="github.com/acme/small", version="2.0.0")
    (made,) = packages.write(GO, bundles, tmp_path / "dist", given)
    assert made.name == "small-2.0.0-go.zip"
    module = unpacked(made, tmp_path / "place")
    assert (module / "go.mod").read_text().splitlines()[0] == "module github.com/acme/small/v2"
    here = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    for name, constraint in (
        (f"linux_{here}", f"linux && !android && {here}"),
        ("android_arm64", "android && arm64"),
    ):
        text = (module / f"library_{name}.go").read_text()
        assert text.startswith(f"//go:build {constraint}\n\npackage small\n")
        (library,) = re.findall(r"\$\{SRCDIR\}/(\S+\.a)", text)
        assert (module / library).is_file()
        (params,) = re.findall(r'\.incbin "(\S+)"', (module / f"params_{name}.S").read_text())
        assert (module / params).read_bytes() == (small_bundle.path / "params" / "small.params").read_bytes()
    assert (module / "edgepack" / "doc.go").is_file()
    assert (module / "edgepack" / "runtime.h").is_file()


def test_it_has_the_same_bytes_wherever_it_is_made(small_bundle: Bundle, tmp_path: Path) -> None:
    (made,) = export(small_bundle, "go", tmp_path / "dist")
    packages.assert_same_bytes("go", [small_bundle], made, tmp_path / "copies")


def test_what_no_module_can_hold_is_refused(small_bundle: Bundle, tmp_path: Path) -> None:
    source = source_bundle(small_bundle.path)
    with pytest.raises(ConfigError, match=r"Two bundles are for linux/\w+;"):
        export([small_bundle, small_bundle], "go", tmp_path)
    for name in ("small", "Example.org/x", "example.org/../x", "example.org/a b"):
        with pytest.raises(ConfigError, match="is no name of a Go module"):
            export(small_bundle, "go", tmp_path, package_name=name)
    assert GO.refusal(packages.on(source, os="wasi")).startswith("the module's targets do not have")
    bare = source.manifest.model_copy(update={"artifacts": ()})
    assert GO.refusal(SourceBundle(source.root, bare)) == "it has no static library, which the module links."
