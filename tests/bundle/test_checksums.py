"""SHA256SUMS: complete, readable by sha256sum, and any change is found."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from edgepack.bundle import checksums
from edgepack.bundle.checksums import write_sums
from edgepack.bundle.listed_files import copy_listed
from edgepack.bundle.manifest import FileRecord, Manifest
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.system.files import list_files, sha256_file

#: Bytes of the files of :func:`folder`; all others have one.
SIZES = {"lib/libü net.so": 2}


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
    files = tuple(
        FileRecord(path=name, nbytes=SIZES.get(name, 1), sha256=digest) for name, digest in listed.items()
    )
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


def test_a_file_of_another_size_is_not_read(folder: Path) -> None:
    digests = _digests(folder)
    for name, size in (("a", 1 << 62), ("b", 0), ("lib/libü net.so", 3)):
        with (folder / name).open("r+b") as file:
            file.truncate(min(size, 1 << 43))  # what ext4 has room for
    with pytest.raises(CheckFailedError, match="3 files of 4") as caught:
        check_sums(folder, digests)
    assert "a: has 8796093022208 bytes, 1 were packed" in caught.value.detail
    assert "b: has 0 bytes, 1 were packed" in caught.value.detail


@pytest.mark.skipif(os.name != "posix", reason="pipes and devices are POSIX's")
@pytest.mark.parametrize("name", ["a", "manifest.json"])
@pytest.mark.parametrize("kind", ["pipe", "zero", "folder"])
def test_what_is_no_regular_file_is_not_waited_for(name: str, kind: str, folder: Path) -> None:
    digests = _digests(folder)
    (folder / name).unlink()
    if kind == "folder":
        (folder / name).mkdir()
    elif kind == "pipe":
        os.mkfifo(folder / name)
    elif os.geteuid():
        pytest.skip("only root makes devices")
    else:
        os.mknod(folder / name, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    with pytest.raises(
        CheckFailedError,
        match=rf"{name}: (not|cannot be read:) (it is not )?(a regular file|Is a dir|Invalid)",
    ):
        check_sums(folder, digests)


def test_only_what_the_manifest_lists_is_copied(folder: Path, tmp_path: Path) -> None:
    """As regular files; not what a link or a user put beside them."""
    files = [(name, SIZES.get(name, 1), digest) for name, digest in _digests(folder).items()]
    manifest = Manifest.model_construct(
        files=tuple(FileRecord(path=name, nbytes=size, sha256=digest) for name, size, digest in files)
    )
    (folder / "a").chmod(0o755)
    (folder / "x").symlink_to("/dev/zero")
    (folder / "b").rename(folder / "b.real")
    (folder / "b").symlink_to("b.real")
    os.mkfifo(folder / "lib" / "pipe")
    copy_listed(folder, manifest, tmp_path / "copy")
    assert list_files(tmp_path / "copy") == ["a", "b", "lib/libü net.so"]
    assert not (tmp_path / "copy" / "b").is_symlink()
    assert [(tmp_path / "copy" / name).stat().st_mode & 0o777 for name in "ab"] == [0o755, 0o644]
    copy_listed(folder, manifest, tmp_path / "part", without=("lib", "b"))
    assert list_files(tmp_path / "part") == ["a"]
    (tmp_path / "secret").write_text("b")
    (folder / "b").unlink()
    (folder / "b").symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigError, match="names the file 'b', which does not lie in it"):
        copy_listed(folder, manifest, tmp_path / "out")
    (folder / "b").unlink()
    (folder / "b").write_text("c")
    with pytest.raises(CheckFailedError, match="b: differs from its checksum"):
        copy_listed(folder, manifest, tmp_path / "other")


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
