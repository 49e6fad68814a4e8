"""OCI artifacts: the layout is whole and right, and a real client copies it."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from edgepack.api import Bundle, export
from edgepack.commands.export import source_bundle
from edgepack.errors import ConfigError
from edgepack.formats.oci import ARCHIVE, ARTIFACT, OCI, platform
from tests.support.packages import METADATA, on, run, tool, write


def layout(archive: Path, folder: Path) -> dict[str, Any]:
    """The index of the unpacked archive; every blob has its digest."""
    shutil.unpack_archive(archive, folder)
    assert json.loads((folder / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    for path in (folder / "blobs/sha256").iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    found: dict[str, Any] = json.loads((folder / "index.json").read_text())
    return found


def content(descriptor: dict[str, Any], folder: Path) -> bytes:
    """What a descriptor names, of the size that it says."""
    data = (folder / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
    assert len(data) == descriptor["size"]
    return data


def test_the_layout_has_the_bundle_and_what_was_said_of_it(small_bundle: Bundle, tmp_path: Path) -> None:
    (made,) = write(OCI, [source_bundle(small_bundle.path)], tmp_path / "dist")
    assert made.name == f"small-host-{METADATA.version}-oci.tar"
    (descriptor,) = layout(made, tmp_path / "x")["manifests"]
    assert descriptor["annotations"] == {"org.opencontainers.image.ref.name": METADATA.version}
    assert descriptor["artifactType"] == ARTIFACT
    manifest = json.loads(content(descriptor, tmp_path / "x"))
    assert manifest["schemaVersion"] == 2 and manifest["mediaType"] == descriptor["mediaType"]
    assert content(manifest["config"], tmp_path / "x") == b"{}"
    said = {name.rpartition(".")[2]: text for name, text in manifest["annotations"].items()}
    assert said["description"] == METADATA.summary and said["licenses"] == METADATA.license
    assert said["authors"] == ", ".join(METADATA.authors) and said["url"] == METADATA.homepage
    assert said["created"] == "1980-01-01T00:00:00Z"
    archive, sbom, readme = manifest["layers"]
    assert archive["mediaType"] == ARCHIVE
    title = archive["annotations"]["org.opencontainers.image.title"]
    (tmp_path / title).write_bytes(content(archive, tmp_path / "x"))
    shutil.unpack_archive(tmp_path / title, tmp_path / "bundle")
    (inside,) = (tmp_path / "bundle").iterdir()
    assert Bundle(inside).check_sums() == small_bundle.check_sums()
    assert json.loads(content(sbom, tmp_path / "x"))["bomFormat"] == "CycloneDX"
    assert title in content(readme, tmp_path / "x").decode()
    blobs = {descriptor["digest"], *(one["digest"] for one in (manifest["config"], *manifest["layers"]))}
    assert {f"sha256:{path.name}" for path in (tmp_path / "x/blobs/sha256").iterdir()} == blobs
    (again,) = write(OCI, [source_bundle(small_bundle.path)], tmp_path / "again")
    assert again.read_bytes() == made.read_bytes()


def test_bundles_for_several_devices_are_one_index(small_bundle: Bundle, tmp_path: Path) -> None:
    source = source_bundle(small_bundle.path)
    other = on(source, name="board", arch="arm", triple="armv7a-unknown-linux-gnueabihf")
    (made,) = write(OCI, [source, other], tmp_path / "dist")
    assert made.name == f"small-2-devices-{METADATA.version}-oci.tar"
    (descriptor,) = layout(made, tmp_path / "x")["manifests"]
    index = json.loads(content(descriptor, tmp_path / "x"))
    first, second = index["manifests"]
    assert first["platform"] == platform(source)
    assert second["platform"] == {"os": "linux", "architecture": "arm", "variant": "v7"}
    for one in (first, second):
        manifest = json.loads(content(one, tmp_path / "x"))
        assert [bool(content(layer, tmp_path / "x")) for layer in manifest["layers"]] == [True] * 3


@pytest.mark.parametrize("wrong", ["../x", "Upper", "a b", "-x", "@acme/x", 'a"b'])
def test_a_name_that_no_registry_knows_is_refused(wrong: str, small_bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no name of an OCI repository"):
        export(small_bundle, "oci", tmp_path / "dist", package_name=wrong)
    assert not (tmp_path / "dist").exists() or not any((tmp_path / "dist").iterdir())


def test_platforms_are_those_of_go(small_bundle: Bundle) -> None:
    source = source_bundle(small_bundle.path)
    assert platform(on(source, arch="aarch64", os="macos")) == {"architecture": "arm64", "os": "darwin"}
    assert platform(on(source, arch="wasm32", os="wasi")) == {"architecture": "wasm", "os": "wasip1"}
    assert platform(on(source, arch="arm", os="none")) == {}


@pytest.mark.slow
def test_skopeo_copies_it(small_bundle: Bundle, tmp_path: Path) -> None:
    """Needs skopeo (Debian: ``apt-get install skopeo``)."""
    source = source_bundle(small_bundle.path)
    other = on(source, name="board", arch="aarch64", triple="aarch64-unknown-linux-gnu")
    for number, bundles in enumerate(([source], [source, other])):
        (made,) = write(OCI, bundles, tmp_path / f"dist {number}")
        where = f"oci-archive:{made}:{METADATA.version}"
        raw = json.loads(run(tool("skopeo"), "inspect", "--raw", where, cwd=tmp_path))
        assert raw["artifactType"] == ARTIFACT
        copied = tmp_path / f"copied-{number}"
        flags = ("--insecure-policy", "copy", "--all", "--quiet")
        run(tool("skopeo"), *flags, where, f"oci:{copied}:{METADATA.version}", cwd=tmp_path)
        shutil.unpack_archive(made, tmp_path / f"x{number}")
        blobs = tmp_path / f"x{number}" / "blobs/sha256"
        # An index is written anew by skopeo 1.9, with the same manifests; all else keeps its digest.
        index = {path.name for path in blobs.iterdir() if b'"manifests"' in path.read_bytes()[:5000]}
        assert len(index) == number
        ours = {path.name for path in blobs.iterdir()} - index
        theirs = {path.name for path in (copied / "blobs/sha256").iterdir()}
        assert ours <= theirs and len(theirs) == len(ours) + number
