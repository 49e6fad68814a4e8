"""What check-release finds: damage and lies; what it finds in archives, in `archives/`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgepack.api import sign
from edgepack.cli.main import main
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.release.check import check_release
from edgepack.release.output import write_sums
from edgepack.release.run import ReleaseOptions, release

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


def test_a_release_with_another_file_is_not_signed(dist: Path, tmp_path: Path) -> None:
    command = ["minisign", "-G", "-W", "-p", "k.pub", "-s", "k.sec"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    readme, index = dist / "net" / "my-board" / "bundle" / "README.md", dist / "release.json"
    assert sign(dist, tmp_path / "k.sec").name == "SHA256SUMS.minisig"
    (dist / "SHA256SUMS.minisig").unlink()
    text = readme.read_bytes()
    readme.write_bytes(b"changed")
    with pytest.raises(CheckFailedError, match=r"my-board/bundle/README\.md: differs"):
        sign(dist, tmp_path / "k.sec")
    readme.write_bytes(text)
    (dist / "stranger").write_text("x")
    with pytest.raises(CheckFailedError, match="stranger: in no sum"):
        sign(dist, tmp_path / "k.sec")
    (dist / "stranger").unlink()
    data = json.loads(index.read_text(encoding="utf-8"))
    data["units"][0]["manifest_sha256"] = "ab" * 32
    index.write_text(json.dumps(data), encoding="utf-8")
    write_sums(dist)
    with pytest.raises(CheckFailedError, match=r"disagree: net/.*/manifest\.json"):
        sign(dist, tmp_path / "k.sec")
    assert not list(dist.glob("SHA256SUMS.*"))


def test_sums_that_were_made_again_do_not_hide_a_lie(dist: Path) -> None:
    """The index, the manifests and the sums of a bundle say the same, or it is said."""
    index = json.loads((dist / "release.json").read_text(encoding="utf-8"))
    package = dist / index["units"][0]["packages"][0]["path"]
    package.write_bytes(package.read_bytes() + b"\0")
    bundle = dist / "net" / "my-board" / "bundle"
    shutil.copytree(dist / "net" / "linux-x86_64" / "bundle", bundle, dirs_exist_ok=True)
    write_sums(dist)
    broken = package.relative_to(dist).as_posix()  # what stands behind its stream is no part of an archive
    assert failed(dist, run=False) == ["index", broken, "net@my-board"]


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
