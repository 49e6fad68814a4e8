"""Archives of bundles: what comes out is the bundle, and the bytes depend on nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from edgepack.api import Bundle, export
from edgepack.commands import export as export_command
from edgepack.commands.export import source_bundle
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.formats.archives import Entry, write_tar_gz, write_zip
from edgepack.formats.metadata import PackageMetadata, debian_version, pep440_version
from edgepack.registry import EXPORT_FORMATS
from tests.support.manifest import seal


def unpacked(archive: Path, folder: Path) -> Path:
    """The one folder in the archive, unpacked by the system's own tar or Python's unzip."""
    folder.mkdir()
    if archive.name.endswith(".tar.gz"):
        subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)
    else:
        shutil.unpack_archive(archive, folder)
    (inside,) = folder.iterdir()
    return inside


def test_what_was_unpacked_verifies_with_its_own_program(small_bundle: Bundle, tmp_path: Path) -> None:
    made = export(small_bundle, ["tar.gz", "zip"], tmp_path / "dist", package_version="1.2.0")
    stem = f"{small_bundle.manifest.name}-{small_bundle.manifest.device.name}-1.2.0"
    assert [path.name for path in made] == [f"{stem}.tar.gz", f"{stem}.zip"]
    inside = unpacked(made[0], tmp_path / "tar")
    assert inside.name == stem
    program = small_bundle.manifest.artifact("program")
    assert program is not None
    command = [inside / program.path, "verify", inside / "test"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Bundle(unpacked(made[1], tmp_path / "zip")).check_sums() == small_bundle.check_sums()


def test_bytes_depend_on_the_bundle_alone(
    small_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = export(small_bundle, ["tar.gz", "zip"], tmp_path / "first")
    copy = tmp_path / "copy of it"
    shutil.copytree(small_bundle.path, copy, copy_function=shutil.copy)  # other times
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    old = os.umask(0o077)
    try:
        second = export(copy, ["tar.gz", "zip"], tmp_path / "second")
    finally:
        os.umask(old)
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    (third,) = export(copy, "tar.gz", tmp_path / "third")
    with tarfile.open(third) as archive:
        assert {member.mtime for member in archive} == {1700000000}
        assert {(member.uid, member.gid, member.uname) for member in archive} == {(0, 0, "")}


def test_nothing_is_replaced_unless_asked_and_nothing_is_left_of_a_failure(
    small_bundle: Bundle, tmp_path: Path
) -> None:
    (one,) = export(small_bundle, "zip", tmp_path)
    with pytest.raises(ConfigError, match="exists"):
        export(small_bundle, ["tar.gz", "zip"], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [one.name]
    assert export(small_bundle, "zip", tmp_path, force=True) == [one]
    with pytest.raises(ConfigError, match="Two packages would be called"):
        export([small_bundle, small_bundle], "zip", tmp_path / "new")
    with pytest.raises(ConfigError, match=r"no package format 'zap'.*"):
        export(small_bundle, "zap", tmp_path)
    with pytest.raises(ConfigError, match="export has no option 'licence'"):
        export(small_bundle, "zip", tmp_path, licence="MIT")  # type: ignore[call-arg]


def test_what_is_not_of_the_bundle_is_in_no_package(small_bundle: Bundle, tmp_path: Path) -> None:
    """Whoever gives a bundle on signs what he checked: files that somebody put beside its own stay out."""
    copy, absent = tmp_path / "bundle", ("sbom.cdx.json", "pkgconfig/small.pc")
    shutil.copytree(small_bundle.path, copy)
    for path in absent:
        (copy / path).unlink()
    seal(copy)
    for path in (*absent, "extra", "include/evil.h", "src/evil.c", "LICENSES/evil.txt", "test/evil"):
        (copy / path).write_text("Libs: -levil\n")
    with (copy / "SHA256SUMS.sig").open("wb") as file:
        file.truncate(1 << 40)
    (copy / "SHA256SUMS.minisig").symlink_to("/dev/zero")
    bundle = source_bundle(copy)
    names = [name for name in EXPORT_FORMATS.names() if not EXPORT_FORMATS.find(name).refusal(bundle)]
    assert {"c-single-file", "cmake", "tar.gz", "wheel", "zip"} <= set(names)
    export(copy, names, tmp_path / "dist")
    for package in (tmp_path / "dist").iterdir():
        folder = tmp_path / "unpacked" / package.name
        try:
            shutil.unpack_archive(package, folder, "zip" if zipfile.is_zipfile(package) else None)
        except shutil.ReadError:  # Debian's and others, whose bytes say it too where they are not compressed
            folder.mkdir(parents=True)
            shutil.copy(package, folder)
        for file in folder.rglob("*"):
            assert "evil" not in file.name and not file.name.endswith("sig"), file
            assert file.is_dir() or b"-levil" not in file.read_bytes(), file


@pytest.mark.parametrize("moment", ["_check_alike", "_write_all"])
def test_a_file_that_is_swapped_after_its_sum_was_compared_is_in_no_package(
    moment: str, small_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read once more, and then is another file; or it was read already."""
    copy = tmp_path / "copy"
    shutil.copytree(small_bundle.path, copy)
    (good,) = export(copy, "zip", tmp_path / "good")
    real = getattr(export_command, moment)

    def swapped(*arguments: Any) -> Any:
        (copy / "README.md").write_text("swapped")
        return real(*arguments)

    monkeypatch.setattr(export_command, moment, swapped)
    if moment == "_check_alike":
        with pytest.raises(CheckFailedError, match=r"copy is damaged: README\.md"):
            export(copy, "zip", tmp_path / "dist")
        assert list((tmp_path / "dist").iterdir()) == []
    else:
        (made,) = export(copy, "zip", tmp_path / "dist")
        assert made.read_bytes() == good.read_bytes()


def test_a_damaged_bundle_is_not_given_on(small_bundle: Bundle, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(small_bundle.path, copy)
    (copy / "README.md").write_text("changed")
    with pytest.raises(CheckFailedError, match=r"README\.md"):
        export(copy, "zip", tmp_path / "dist")
    assert not (tmp_path / "dist").exists()


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "a//b", "a/./b", "c:/x", "a\\b"])
def test_no_entry_leaves_its_archive(name: str, tmp_path: Path) -> None:
    for write in (write_tar_gz, write_zip):
        with pytest.raises(ValueError, match="is no path in an archive"):
            write(tmp_path / "x", [Entry(name, b"")])


def test_contents_and_modes_are_kept(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(range(256)) * 9000)
    entries = [Entry("b/run", b"#!", executable=True), Entry("a", tmp_path / "big")]
    write_zip(tmp_path / "x.zip", entries)
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert archive.namelist() == ["a", "b/run"]
        assert archive.read("a") == (tmp_path / "big").read_bytes()
        assert [info.external_attr >> 16 for info in archive.infolist()] == [0o100644, 0o100755]
    write_tar_gz(tmp_path / "x.tar.gz", entries)
    with tarfile.open(tmp_path / "x.tar.gz") as archive_tar:
        assert [(one.name, one.mode, one.size) for one in archive_tar] == [
            ("a", 0o644, 256 * 9000),
            ("b/run", 0o755, 2),
        ]


@pytest.mark.parametrize(
    ("version", "python", "debian"),
    [
        ("1.2.3", "1.2.3", "1.2.3"),
        ("2.0.0-beta.1", "2.0.0b1", "2.0.0~beta.1"),
        ("2.0.0-rc", "2.0.0rc0", "2.0.0~rc"),
        ("0.0.0-m00ff1a2b3c4d", "0.0.0+m00ff1a2b3c4d", "0.0.0~m00ff1a2b3c4d"),
    ],
)
def test_versions_are_spelled_as_each_ecosystem_orders_them(version: str, python: str, debian: str) -> None:
    assert pep440_version(version) == python
    assert debian_version(version) == debian


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": "1.2"},
        {"version": "1.2.3\n"},
        {"license": 'MIT"'},
        {"authors": ["A <a@b>\nEvil: 1"]},
        {"authors": ["<a@b>"]},
        {"homepage": "javascript:alert(1)"},
        {"homepage": "https://a b"},
        {"summary": "two\nlines"},
        {"summary": "x" * 301},
        {"name": "\x1b[31m"},
    ],
)
def test_metadata_that_no_package_can_have_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        PackageMetadata(**wrong).check()  # type: ignore[arg-type]
