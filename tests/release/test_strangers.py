"""What others put where a release is made is neither published, signed nor deleted."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from edgepack.errors import ConfigError
from edgepack.release.output import write_sums
from edgepack.release.run import Release, ReleaseOptions, plan_release, release
from edgepack.release.work import work_place
from edgepack.signing.sums import check_signature, public_key, secret_key, sign_sums
from edgepack.system.files import list_files, sha256_file
from tests.release.conftest import PROJECT, content
from tests.support import fake

pytestmark = pytest.mark.usefixtures("fake_worker")
Write = Callable[..., Path]
AS_ROOT = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can make files of another user"
)
NOBODY = 65534
#: minisign's of these tests, without a password.
SIGNING = "signing: {key: ../keys/release.key}\n"


def run(path: Path, output: Path, **options: Any) -> Release:
    with ThreadPoolExecutor(2) as executor:
        return release(path, output, ReleaseOptions(**options), executor=executor)


def units(made: Release) -> tuple[str, ...]:
    return tuple(sorted(made.built))


BOTH = ("net@linux-x86_64", "net@my-board")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of this user's that nobody named."""
    path = tmp_path / "victim"
    for name in ("thesis.txt", "net/my-board/photo.jpg", "records/mail", "stages/mail"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("mine")
    return path


@pytest.fixture(scope="module")
def _interrupted(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interrupted")
    (folder / "net.onnx").write_bytes(small_model.read_bytes())
    (folder / "edgepack.yaml").write_text(PROJECT.format(path="net.onnx"), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        fake.install("ok", patch.setattr)
        patch.setattr("edgepack.release.run.assemble", None)
        with pytest.raises(TypeError):
            run(folder / "edgepack.yaml", folder / "dist")
    return work_place(folder / "dist")


@pytest.fixture
def interrupted(_interrupted: Path, tmp_path: Path) -> Path:
    """The work folder of a release to ``dist`` that was ended when all units were built."""
    shutil.copytree(_interrupted, work_place(tmp_path / "dist"))
    return work_place(tmp_path / "dist")


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """Where a release is made that is not there yet."""
    return tmp_path / "dist"


def libraries(root: Path) -> list[Path]:
    return [root / name for name in list_files(root) if name.endswith("bundle/lib/libnet.so")]


def changed(root: Path) -> None:
    """Change each library below a folder, and every sum over it."""
    for library in libraries(root):
        library.write_bytes(library.read_bytes() + b"backdoor")
    for name in list_files(root):
        if (root / name).name == "SHA256SUMS" and name != "SHA256SUMS":
            sums = (root / name).read_text().splitlines()
            (root / name).write_text(
                "".join(f"{sha256_file((root / name).parent / one[66:])}  {one[66:]}\n" for one in sums)
            )


def test_what_was_built_is_gone_on_with(project: Write, interrupted: Path, new: Path) -> None:
    assert interrupted.stat().st_mode & 0o777 == 0o700
    assert units(run(project(), new)) == ()
    assert not interrupted.exists()


@AS_ROOT
def test_a_strangers_work_folder_is_neither_believed_nor_deleted(
    project: Write, interrupted: Path, new: Path, tmp_path: Path
) -> None:
    changed(interrupted / "units")
    for name in (".", *(path.relative_to(interrupted) for path in interrupted.rglob("*"))):
        os.chown(interrupted / name, NOBODY, NOBODY)
    tmp_path.chmod(0o1777)
    before = content(interrupted)
    states = [one.built for one in plan_release(project(), new, ReleaseOptions())]
    assert states == [None, None]
    with pytest.raises(ConfigError, match=r"work folder .*edgepack-work cannot be used: .* another user"):
        run(project(), new)
    assert content(interrupted) == before
    assert not new.exists()


def test_records_that_this_users_edgepack_did_not_seal_are_built_again(
    project: Write, interrupted: Path, new: Path
) -> None:
    """A restored archive, a CI job's cache: files in this user's name that somebody else made."""
    for library in libraries(interrupted / "units"):
        library.write_bytes(library.read_bytes() + b"backdoor")
    for record in (interrupted / "records").glob("*.json"):
        data = json.loads(record.read_text())
        data["files"] |= {
            path.relative_to(folder).as_posix(): sha256_file(path)
            for folder in [interrupted / "units" / data["record"]["model"] / data["record"]["device"]]
            for path in folder.rglob("lib/*.so")
        }
        record.write_text(json.dumps(data))
    assert units(run(project(), new)) == BOTH
    assert not any(b"backdoor" in library.read_bytes() for library in libraries(new))


@pytest.mark.parametrize("name", [".", "units", "records", "stages", "units/net"])
def test_a_link_in_the_place_of_a_work_folder_leads_nowhere(
    name: str, project: Write, interrupted: Path, new: Path, victim: Path
) -> None:
    before = content(victim)
    place = interrupted / name
    shutil.rmtree(place)
    place.symlink_to(victim, target_is_directory=True)
    if name in (".", "records", "units"):
        with pytest.raises(ConfigError, match=r"work folder .* cannot be used"):
            run(project(), new)
    else:
        assert run(project(), new).ok == (name != "units/net")
    assert new.exists() == (name in ("stages", "units/net/my-board"))
    assert content(victim) == before


def test_a_release_that_somebody_changed_is_built_again_and_said(project: Write, dist: Path) -> None:
    """Library, sums and index agree with each other, and are not what was built."""
    good = content(dist)
    changed(dist)
    write_sums(dist)
    made = run(project(), dist)
    assert units(made) == BOTH
    assert any("was changed since" in text for text in made.warnings)
    assert content(dist) == good
    assert units(run(project(), dist)) == ()


def test_an_index_that_was_changed_alone_is_not_believed(project: Write, dist: Path) -> None:
    index = (dist / "release.json").read_text()
    (dist / "release.json").write_text(index.replace("Apache-2.0", "MIT"))
    assert units(run(project(), dist)) == BOTH


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """minisign's secret key, in ``keys`` beside the project's folder; its public half beside it."""
    nacl = pytest.importorskip("nacl.signing")
    pair = nacl.SigningKey.generate()
    number, secret, public = b"12345678", bytes(pair), bytes(pair.verify_key)
    checksum = hashlib.blake2b(b"Ed" + number + secret + public, digest_size=32).digest()
    blob = b"Ed" + b"\0\0" + b"B2" + bytes(48) + number + secret + public + checksum
    place = tmp_path / "keys"
    place.mkdir()
    (place / "release.key").write_text(f"untrusted comment: k\n{base64.b64encode(blob).decode()}\n")
    text = base64.b64encode(b"Ed" + number + public).decode()
    (place / "release.pub").write_text(f"untrusted comment: k\n{text}\n")
    return place / "release.key"


def test_with_a_key_what_it_signed_is_taken_over_and_nothing_else(
    project: Write, dist: Path, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine, which remembers no release of its own."""
    path = project(SIGNING, folder=tmp_path / "project")
    sign_sums(dist, secret_key(key))
    monkeypatch.setattr("edgepack.release.output.is_remembered", lambda sums: False)
    assert units(run(path, dist)) == ()
    changed(dist)
    write_sums(dist)
    made = run(path, dist)
    assert units(made) == BOTH
    assert any("nor did your key sign it" in text for text in made.warnings)
    assert "fleet 1.2.0" in check_signature(dist, public_key(key.with_suffix(".pub")))
    assert not any(b"backdoor" in library.read_bytes() for library in libraries(dist))


def test_where_others_may_rename_nothing_is_signed(
    project: Write, dist: Path, key: Path, tmp_path: Path
) -> None:
    path = project(SIGNING, folder=tmp_path / "project")
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(ConfigError, match="no place to sign a release in"):
        run(path, open_to_all / "dist")
    assert list(open_to_all.iterdir()) == []


@AS_ROOT
def test_what_is_published_belongs_to_this_user_alone(project: Write, dist: Path, tmp_path: Path) -> None:
    """A file of somebody else with the right content is copied: its owner could change it later."""
    for name in list_files(dist):
        os.chown(dist / name, NOBODY, NOBODY)
    kept = tmp_path / "kept"
    kept.mkdir()
    for name in list_files(dist):
        os.link(dist / name, kept / str(len(list(kept.iterdir()))))
    again = run(project(), dist)
    assert (again.built, again.changed) == ((), True)
    found = [(dist / name).stat() for name in list_files(dist)]
    assert {status.st_uid for status in found} == {0}
    assert not {status.st_ino for status in found} & {path.stat().st_ino for path in kept.iterdir()}


def test_a_project_that_another_tools_release_json_lies_in_is_not_deleted(
    project: Write, key: Path, tmp_path: Path
) -> None:
    path = project("signing: {key: release.key}\n", folder=tmp_path / "project")
    root = path.parent
    shutil.copy(key, root / "release.key")
    (root / "release.json").write_text('{"version": "1.0", "assets": []}')
    before = content(root)
    with pytest.raises(ConfigError, match=r"holds edgepack\.yaml, which the release is made from"):
        run(path, root)
    for output in (root / "other", root / "dist"):
        output.mkdir()
        (output / "src.py").write_text("mine")
        (output / "release.json").write_text('{"version": "1.0", "assets": []}')
        with pytest.raises(ConfigError, match="holds no release that this edgepack knows"):
            run(path, output)
        assert (output / "src.py").read_text() == "mine"
        shutil.rmtree(output)
    assert content(root) == before


@pytest.mark.parametrize("name", ["net.onnx", "release.key"])
def test_a_release_that_names_a_source_among_its_files_is_not_replaced(
    name: str, project: Write, dist: Path, key: Path
) -> None:
    path = project("signing: {key: release.key}\n")
    shutil.copy(key, path.parent / "release.key")
    shutil.move(path.parent / name, dist / name)
    path.write_text(path.read_text().replace(name, f"dist/{name}"))
    write_sums(dist)
    with pytest.raises(ConfigError, match=f"dist holds {name}, which the release is made from"):
        run(path, dist)
    assert (dist / name).is_file()


@pytest.mark.parametrize("kind", ["file", "nested", "link"])
def test_a_users_file_in_a_release_is_not_deleted(
    kind: str, project: Write, dist: Path, tmp_path: Path
) -> None:
    note = dist / ("net/my-board/my-notes.txt" if kind == "nested" else "my-notes.txt")
    if kind == "link":
        note.symlink_to(tmp_path)
    else:
        note.write_text("mine")
    (dist / "measurements.json").write_text('{"units": []}')
    before = content(dist)
    changes = project("budgets: {arena: 1}\n")
    with pytest.raises(ConfigError, match=r"would be deleted: .*my-notes\.txt"):
        run(changes, dist)
    assert content(dist) == before
    note.unlink()
    assert run(changes, dist).changed
