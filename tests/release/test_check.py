"""What check-release finds: damage, lies, and archives that would do harm."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import shutil
import subprocess
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgepack.cli.main import main
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.release.check import check_release
from edgepack.release.output import write_sums
from edgepack.release.run import ReleaseOptions, release
from edgepack.release.unpacking import check_archive

Write = Callable[..., Path]


def failed(root: Path, **options: Any) -> list[str]:
    return [one.what for one in check_release(root, **options) if one.status == "failed"]


def test_a_release_is_checked_and_its_programs_run(dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-release", str(dist), "--json", "--quiet"]) == 0
    found = {one["what"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert {name: one["status"] for name, one in found.items()} == {
        "signature": "not checked",
        "files": "ok",
        "index": "ok",
        "net/linux-x86_64/net-linux-x86_64-1.2.0.tar.gz": "ok",
        "net/my-board/net-my-board-1.2.0.zip": "ok",
        "net@linux-x86_64": "ok",
        "net@linux-x86_64 runs": "ok",
        "net@my-board": "ok",
        "net@my-board runs": "ok",
    }
    assert "files, unpack safely" in found["net/my-board/net-my-board-1.2.0.zip"]["text"]


def test_damage_is_found_before_anything_runs(dist: Path) -> None:
    readme = dist / "net" / "my-board" / "bundle" / "README.md"
    text = readme.read_bytes()
    readme.write_bytes(text + b" ")
    (finding,) = [one for one in check_release(dist) if one.status == "failed"]
    assert (finding.what, "net/my-board/bundle/README.md: differs" in finding.text) == ("files", True)
    readme.unlink()
    readme.symlink_to("/etc/passwd")
    assert failed(dist) == ["files"]
    readme.unlink()
    readme.write_bytes(text)
    (dist / "net" / "stranger").write_text("x")
    assert failed(dist) == ["files"]
    (dist / "net" / "stranger").unlink()
    (dist / "measurements.json").write_text("{}")  # is in no sum
    os.mkfifo(dist / "pipe")
    assert failed(dist) == ["files"]
    (dist / "pipe").unlink()
    sums = (dist / "SHA256SUMS").read_text(encoding="utf-8")
    line = "0" * 64 + "  ../outside\n"
    for text in (sums + line, sums.replace("  ", " ", 1), sums.rstrip("\n"), "", sums + sums):
        (dist / "SHA256SUMS").write_text(text, encoding="utf-8")
        assert failed(dist) == ["files"], text[-200:]


def test_sums_that_were_made_again_do_not_hide_a_lie(dist: Path) -> None:
    """The index, the manifests and the sums of a bundle say the same, or it is said."""
    index = json.loads((dist / "release.json").read_text(encoding="utf-8"))
    package = dist / index["units"][0]["packages"][0]["path"]
    package.write_bytes(package.read_bytes() + b"\0")
    bundle = dist / "net" / "my-board" / "bundle"
    shutil.copytree(dist / "net" / "linux-x86_64" / "bundle", bundle, dirs_exist_ok=True)
    write_sums(dist)
    assert failed(dist, run=False) == ["index", "net@my-board"]


def test_a_signature_that_was_asked_for_is_there(
    project: Write, dist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key.pem"
    command = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key]
    subprocess.run(command, check=True, capture_output=True)
    subprocess.run(
        ["openssl", "ec", "-in", key, "-pubout", "-out", f"{key}.pub"], check=True, capture_output=True
    )
    assert failed(dist, key=f"{key}.pub", run=False) == ["signature"]
    monkeypatch.setenv("RELEASE_KEY", key.read_text())
    made = release(project("signing: {key_env: RELEASE_KEY}\n"), dist, ReleaseOptions())
    assert (made.built, made.changed) == ((), False)
    assert failed(dist, key=f"{key}.pub") == []
    sums = (dist / "SHA256SUMS").read_text()
    (dist / "SHA256SUMS").write_text(sums + "\n")
    assert failed(dist, key=f"{key}.pub") == ["signature", "files"]
    (dist / "SHA256SUMS").write_text(sums)
    monkeypatch.delenv("RELEASE_KEY")
    with pytest.raises(
        ConfigError, match=r"edgepack\.yaml:9: signing: The environment variable 'RELEASE_KEY'"
    ):
        release(tmp_path / "edgepack.yaml", dist, ReleaseOptions())


def _tar(*members: tuple[str, dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, fields in members:
            info = tarfile.TarInfo(name)
            for key, value in fields.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    return out.getvalue()


def _plain_tar(name: str) -> bytes:
    return gzip.decompress(_tar((name, {"size": 5000})))


def _of_1980(archive: bytes) -> bytes:
    """One entry as the first tar wrote it: no magic, and the checksum of that."""
    header = archive[:148] + b" " * 8 + archive[156:257] + bytes(255)
    return archive[:148] + b"%06o\0 " % sum(header) + header[156:] + archive[512:]


def _flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :]


def _zip(*names: str, mode: int = 0o100644, content: bytes = b"x") -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore", UserWarning)  # two entries of one name
        for name in names:
            info = zipfile.ZipInfo("x")
            info.filename, info.external_attr = name, mode << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _link(target: str) -> dict[str, Any]:
    return {"type": tarfile.SYMTYPE, "linkname": target}


def _deb(data: bytes) -> bytes:
    parts = {"debian-binary": b"2.0\n", "control.tar.gz": _tar(("./control", {})), "data.tar.gz": data}
    text = b"!<arch>\n"
    for name, content in parts.items():
        text += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
        text += content + b"\n" * (len(content) % 2)
    return text


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (_tar(("../evil", {})), "leads out"),
        (_tar(("/etc/passwd", {})), "leads out"),
        (_tar(("a/../../evil", {})), "leads out"),
        (_tar(("c:/evil", {})), "leads out"),
        (_tar(("a\\..\\evil", {})), "is no plain path"),
        (_tar(("a\x1b[31m", {})), "is no plain path"),
        (_tar(("a", _link("/etc"))), "leads out"),
        (_tar(("a/b", _link("../../etc"))), "leads out"),
        (_tar(("a", _link("b")), ("a/evil", {})), "which is no folder"),
        (_tar(("a", {"type": tarfile.LNKTYPE, "linkname": "b"})), "neither file, folder nor"),
        (_tar(("a", {"type": tarfile.CHRTYPE, "devmajor": 1})), "neither file, folder nor"),
        (_tar(("a", {"type": tarfile.FIFOTYPE})), "neither file, folder nor"),
        (_tar(("a", {"mode": 0o4755})), "another user"),
        (_tar(("a", {}), ("A", {})), "take the place"),
        (_tar(("a", {}), ("a/b", {})), "which is no folder"),
        (_tar(("a", {"size": 90 << 20})), "unpacks to more than"),
        (_tar(("a", {"size": 5000}))[:-30], "cannot be read"),
        (_flipped(lzma.compress(_plain_tar("a"))), "cannot be read"),
        (_flipped(bz2.compress(_plain_tar("a"))), "cannot be read"),
        (_flipped(gzip.compress(_plain_tar("a"), 0)), "cannot be read"),
        (_flipped(gzip.compress(b"a manual page" * 99)), "cannot be read"),
        (gzip.compress(_plain_tar("a") + _plain_tar("../evil")), "behind the archive's end"),
        (_of_1980(_plain_tar("../evil")), "leads out"),
        (_zip("../evil"), "leads out"),
        (_zip("a", mode=0o120777), "neither file nor folder"),
        (_zip("a", "a"), "take the place"),
        (_zip("é", "e\u0301"), "take the place"),
        (_zip("a", content=bytes(99))[:40] + b"?" + _zip("a", content=bytes(99))[41:], "cannot be read"),
        (b"#!/bin/sh\n" + _zip("a"), "something else before it"),
        (_zip("classes.jar", content=_zip("../evil")), "leads out"),
        (_deb(_tar(("./usr/../../evil", {}))), "leads out"),
        (_deb(_tar(("./a", {})))[:-40], "no archive of ar"),
    ],
    ids=lambda value: "archive" if isinstance(value, bytes) else value,
)
def test_an_archive_that_would_do_harm_is_refused(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(content)
    with pytest.raises(CheckFailedError, match=f"x.bin is not safe to unpack: .*{why}|{why}"):
        check_archive(tmp_path / "x.bin")


def test_archives_that_do_no_harm_are_read(tmp_path: Path) -> None:
    folder: dict[str, Any] = {"type": tarfile.DIRTYPE}
    good = _tar(
        ("./", folder), ("./lib", folder), ("./lib/a.so", _link("a.so.1")), ("./lib/a.so.1", {"size": 5})
    )
    for content, count in ((good, 1), (_deb(good), 5), (_zip("a/", "a/b", "c"), 2), (b"text", 0)):
        (tmp_path / "x").write_bytes(content)
        assert check_archive(tmp_path / "x") == count
