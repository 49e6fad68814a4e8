"""The crate: cargo and clippy take it, and a program that uses it gives what NumPy gives."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from edgepack.abi import structs
from edgepack.api import Bundle, export
from edgepack.commands.export import source_bundle
from edgepack.errors import ConfigError
from edgepack.formats.base import SourceBundle
from edgepack.formats.rust import RUST
from tests.support import packages
from tests.support.worker import COLUMNS, ROWS, reference

APP = Path(__file__).with_name("consumers") / "app.rs"
HOME = str(Path.home() / ".cargo" / "bin")


@cache
def program() -> str:
    """Where cargo is. rustup has one that does nothing where no toolchain was chosen."""
    found = packages.tool("cargo", HOME)
    done = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{found} does not run: {done.stderr.strip()[:200]}")
    return found


def cargo(*arguments: str | Path, cwd: Path) -> str:
    target = cwd.parent / "cargo target"
    return packages.run(
        program(),
        *arguments,
        cwd=cwd,
        CARGO_TARGET_DIR=str(target),
        CARGO_NET_OFFLINE="true",
    )


def unpacked(crate: Path, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    subprocess.run(["tar", "-xzf", crate, "-C", folder], check=True)
    return folder / crate.name.removesuffix(".crate")


def test_a_program_with_the_crate_gives_the_results(small_bundle: Bundle, tmp_path: Path) -> None:
    """Installed and used as its README prints it, and with files that are not the model's."""
    (made,) = export(small_bundle, "rust", tmp_path / "dist", package_version="1.2.0")
    assert made.name == "small-1.2.0.crate"
    packages.assert_same_bytes("rust", [small_bundle], made, tmp_path / "copies", package_version="1.2.0")
    crate = unpacked(made, tmp_path / "a place")
    cargo("clippy", "--all-targets", "--", "-D", "warnings", cwd=crate)
    app = tmp_path / "app"
    (app / "src" / "bin").mkdir(parents=True)
    (app / "Cargo.toml").write_text('[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n')
    (example,) = packages.blocks(crate / "README.md", "rust")
    (app / "src" / "main.rs").write_text(example)
    (app / "src" / "bin" / "check.rs").write_text(APP.read_text())
    cargo("add", "--path", crate, cwd=app)
    cargo("build", cwd=app)
    programs = tmp_path / "cargo target" / "debug"
    assert packages.run(programs / "app", cwd=app).count("[") == 2

    inputs = small_bundle.path / "test" / "input_0.bin"
    x = np.fromfile(inputs, "f4").reshape(ROWS, COLUMNS)
    expected = np.stack([part.ravel() for part in reference(x)], axis=1)
    params = next(crate.glob("lib/*/small.params"))
    for arguments in ([], [params]):
        text = packages.run(programs / "check", inputs, *arguments, cwd=app)
        values = np.array([line.split() for line in text.splitlines()], "f4")
        np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)
    damaged = bytearray(params.read_bytes())
    damaged[-1] ^= 1
    for data, variant in ((damaged, "ParamsHash"), (b"no params", "ParamsMagic")):
        (tmp_path / "other.params").write_bytes(data)
        done = subprocess.run(
            [programs / "check", inputs, tmp_path / "other.params"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert done.stderr == f"Error: {variant}\n"


def test_no_name_and_no_metadata_ends_a_string_or_a_comment(small_bundle: Bundle, tmp_path: Path) -> None:
    """And a crate for several targets takes the library of its own."""
    mine = packages.hostile(small_bundle)
    bundles = [packages.on(mine, os="android", arch="aarch64"), mine]
    (made,) = packages.write(RUST, bundles, tmp_path / "dist")
    crate = unpacked(made, tmp_path / "crate")
    cargo("clippy", "--", "-D", "warnings", cwd=crate)
    assert len([*crate.glob("lib/*/libsmall.a")]) == 2
    (package,) = json.loads(cargo("metadata", "--format-version", "1", "--no-deps", cwd=crate))["packages"]
    said, given = package, packages.METADATA
    assert (said["description"], said["authors"]) == (given.summary, given.authors)
    assert (said["license"], said["homepage"]) == (given.license, given.homepage)


def test_the_structs_are_those_of_the_header(small_bundle: Bundle, tmp_path: Path) -> None:
    """Names and their order; each field's type has the size that it has in C by the names of types alone."""
    (made,) = export(small_bundle, "rust", tmp_path)
    text = (unpacked(made, tmp_path / "crate") / "src" / "sys.rs").read_text()
    for struct, fields in (
        (structs.ConstBuffer, "ConstBuffer"),
        (structs.Buffer, "Buffer"),
        (structs.Options, "Options"),
        (structs.Model, "Model"),
        (structs.Api, "Api"),
        (structs.Descriptor, "Descriptor"),
    ):
        (body,) = re.findall(rf"pub struct {fields} \{{\n(.*?)^\}}", text, re.MULTILINE | re.DOTALL)
        found = re.findall(r"^    pub (\w+):\s*(.*?),$", body, re.MULTILINE | re.DOTALL)
        known = list(struct._fields_)[: len(found)]
        assert [name for name, _ in found] == [field[0] for field in known]
        for (name, rust), field in zip(found, known, strict=True):
            assert size_of(rust) == ctypes.sizeof(field[1]), name


def size_of(rust: str) -> int:
    if "*" in rust or " fn(" in rust or rust == "usize":
        return ctypes.sizeof(ctypes.c_void_p)
    if array := re.fullmatch(r"\[(\w+); (\d+)\]", rust):
        return size_of(array[1]) * int(array[2])
    return int(rust[1:]) // 8


def test_what_no_crate_can_hold_is_refused(small_bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Two bundles are for \w+-unknown-linux-gnu"):
        export([small_bundle, small_bundle], "rust", tmp_path)
    with pytest.raises(ConfigError, match="'a crate' is no name of a crate"):
        export(small_bundle, "rust", tmp_path, package_name="a crate")
    source = source_bundle(small_bundle.path)
    wrong = RUST.refusal(packages.on(source, os="wasi", arch="wasm32", libc="wasi"))
    assert wrong == "the crate's targets do not have wasm32 with wasi (wasi)."
    bare = source.manifest.model_copy(update={"artifacts": ()})
    assert RUST.refusal(SourceBundle(source.root, bare)) == "it has no static library, which the crate links."
    (made,) = packages.write(RUST, [packages.on(source, os="android")], tmp_path / "dist")
    crate = unpacked(made, tmp_path / "crate")
    with pytest.raises(
        AssertionError, match=r"small has no library for \S+; it has them for \S+-linux-android\."
    ):
        cargo("check", cwd=crate)
