"""SHA256SUMS: complete, readable by sha256sum, and any change is found."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from edgepack.bundle import checksums
from edgepack.bundle.checksums import write_sums
from edgepack.bundle.manifest import FileRecord, Manifest
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.files import list_files, sha256_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "bundle"
    (root / "lib").mkdir(parents=True)
    (root / "lib" / "libü net.so").write_bytes(b"\x00\x01")
    (root / "b").write_text("b")
    (root / "a").write_text("a")
    (root / "manifest.json").write_text("{}")
    write_sums(root)
    return root


def check_sums(root: Path, listed: dict[str, str] | None = None) -> int:
    """With a manifest that lists these files; by default those of :func:`folder`, as they were."""
    if listed is None:
        lines = (root / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
        listed = {line[66:]: line[:64] for line in lines if not line.endswith("manifest.json")}
    files = tuple(FileRecord(path=name, nbytes=0, sha256=digest) for name, digest in listed.items())
    return checksums.check_sums(root, Manifest.model_construct(files=files))


def test_lists_every_file_but_itself_sorted(folder: Path) -> None:
    names = [line.split("  ")[1] for line in (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()]
    assert names == ["a", "b", "lib/libü net.so", "manifest.json"]
    assert check_sums(folder) == 4


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="coreutils are not on this system")
def test_sha256sum_accepts_it(folder: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=True)


def test_changed_and_missing_files_are_all_named(folder: Path) -> None:
    (folder / "a").write_text("A")
    (folder / "b").unlink()
    with pytest.raises(CheckFailedError, match="2 files of 4") as caught:
        check_sums(folder)
    assert "a: differs" in caught.value.detail
    assert "b: missing" in caught.value.detail


def test_a_folder_without_sums_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(CheckFailedError, match="cannot be read"):
        check_sums(tmp_path, {})


@pytest.mark.parametrize("text", ["", "nonsense\n", "abc  file\n"])
def test_a_malformed_list_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "SHA256SUMS").write_text(text)
    with pytest.raises(CheckFailedError, match=r"is empty|not a line of sha256sum"):
        check_sums(tmp_path, {})


def _digests(root: Path) -> dict[str, str]:
    names = [name for name in list_files(root) if name not in {"manifest.json", "SHA256SUMS"}]
    return {name: sha256_file(root / name) for name in names}


@pytest.mark.parametrize("cut", ["a", "manifest.json"])
def test_a_line_that_was_cut_out_is_missed(folder: Path, cut: str) -> None:
    digests = _digests(folder)
    lines = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / cut).write_text("changed")
    (folder / "SHA256SUMS").write_text("".join(line for line in lines if not line.endswith(f"  {cut}\n")))
    with pytest.raises(CheckFailedError, match=f"{cut}: not in SHA256SUMS"):
        check_sums(folder, digests)


def test_sums_that_were_made_anew_do_not_agree_with_the_manifest(folder: Path) -> None:
    digests = _digests(folder)
    (folder / "a").write_text("changed")
    (folder / "more").write_text("new")
    write_sums(folder)
    with pytest.raises(CheckFailedError, match="2 files of 5") as caught:
        check_sums(folder, digests)
    assert "a: not as manifest.json says\nmore: not as manifest.json says" in caught.value.detail


@pytest.mark.parametrize(
    "path", ["../b", "/etc/passwd", "lib/../../b", "C:/b", "lib\\b", "lib//b", "./b", "b/"]
)
def test_a_file_outside_of_the_bundle_is_not_looked_at(folder: Path, path: str) -> None:
    digests = _digests(folder)
    with (folder / "SHA256SUMS").open("a") as sums:
        sums.write(f"{'0' * 64}  {path}\n")
    with pytest.raises(ConfigError, match="does not lie in it"):
        check_sums(folder, digests)


def test_a_link_out_of_the_bundle_is_not_followed(folder: Path) -> None:
    digests = _digests(folder)
    (folder.parent / "secret").write_text("a")
    (folder / "a").unlink()
    (folder / "a").symlink_to(folder.parent / "secret")
    with pytest.raises(ConfigError, match=r"names the file 'a', which does not lie in it"):
        check_sums(folder, digests)


def test_what_a_user_builds_in_the_folder_is_left_alone(folder: Path) -> None:
    digests = _digests(folder)
    (folder / "build").mkdir()
    (folder / "build" / "app").write_text("x")
    assert check_sums(folder, digests) == 4
