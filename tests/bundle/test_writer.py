"""A bundle appears as a whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgepack.bundle.manifest import load_manifest
from edgepack.bundle.writer import check_destination, normalise_modes, workplace
from edgepack.errors import ConfigError
from tests.support.manifest import example

KILLED = """
import sys, pathlib, os, signal
from edgepack.bundle.writer import workplace
with workplace(pathlib.Path(sys.argv[1])) as place:
    (place.bundle / "manifest.json").write_text("half")
    if len(sys.argv) > 2:
        place.destination.rename(place.root / "old")
    print("ready", flush=True)
    sys.stdin.readline()
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write(destination: Path, text: str, *, force: bool = False) -> None:
    with workplace(destination) as place:
        put(place.bundle, text)
        place.publish(force=force)


def put(root: Path, text: str) -> None:
    """A manifest and a program, which a bundle consists of here."""
    root.mkdir(exist_ok=True)
    (root / "manifest.json").write_text(example(warnings=[text]).to_json())
    (root / "bin").mkdir()
    (root / "bin" / "net").write_text(text)


def said(root: Path) -> str:
    """The text that a bundle was written with."""
    (text,) = load_manifest(root).warnings
    assert (root / "bin" / "net").read_text() == text
    return text


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_publishes_only_the_bundle(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b", "new")
    assert names(tmp_path / "a") == ["b"]
    assert said(tmp_path / "a" / "b") == "new"


def test_an_error_leaves_nothing_not_even_parents(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), workplace(tmp_path / "a" / "b" / "c"):
        raise RuntimeError
    assert names(tmp_path) == []


def test_force_replaces_and_keeps_the_old_one_if_it_fails(tmp_path: Path) -> None:
    write(tmp_path / "b", "old")
    write(tmp_path / "b", "new", force=True)
    assert said(tmp_path / "b") == "new"
    with pytest.raises(RuntimeError), workplace(tmp_path / "b"):
        raise RuntimeError
    assert said(tmp_path / "b") == "new"
    assert names(tmp_path) == ["b"]


def test_refuses_what_must_not_be_replaced(tmp_path: Path) -> None:
    write(tmp_path / "bundle", "x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("x")
    with pytest.raises(ConfigError, match="exists") as caught:
        check_destination(tmp_path / "bundle", force=False)
    assert "--force" in caught.value.hint
    with pytest.raises(ConfigError, match="is not a folder"):
        check_destination(tmp_path / "file", force=True)
    with pytest.raises(ConfigError, match="is not a bundle"):
        check_destination(tmp_path / "folder", force=True)
    with pytest.raises(ConfigError, match="holds the model"):
        check_destination(tmp_path / "bundle", force=True, model=tmp_path / "bundle" / "m.onnx")
    check_destination(tmp_path / "bundle", force=True)
    check_destination(tmp_path / "new", force=False)


@pytest.mark.parametrize(
    "name", ["build/CMakeCache.txt", "bin/net2", "README.md", "node_modules/x/index.js", "\n"]
)
def test_force_deletes_nothing_that_is_not_of_the_bundle(name: str, tmp_path: Path) -> None:
    root = tmp_path / "b"
    put(root, "old")
    (root / ".DS_Store").write_text("what Finder leaves")
    check_destination(root, force=True)
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text("mine")
    with pytest.raises(ConfigError, match="holds what is not of the bundle and would be deleted") as caught:
        check_destination(root, force=True)
    assert name in caught.value.message
    (root / name).unlink()
    (root / name).symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="not of the bundle"):
        check_destination(root, force=True)


def test_force_takes_no_other_tools_manifest_for_a_bundles(tmp_path: Path) -> None:
    """A web application has a manifest.json too."""
    root = tmp_path / "app"
    (root / "js").mkdir(parents=True)
    (root / "js" / "app.js").write_text("mine")
    for text in ('{"name": "My app", "start_url": "/"}', "no JSON", '{"schema_version": 1}'):
        (root / "manifest.json").write_text(text)
        with pytest.raises(ConfigError, match="is not a bundle that this edgepack knows"):
            check_destination(root, force=True)
    (root / "manifest.json").write_text(example().to_json())
    with pytest.raises(ConfigError, match=r"would be deleted: js/app\.js"):
        check_destination(root, force=True)


def test_what_came_into_the_destination_meanwhile_is_kept(tmp_path: Path) -> None:
    write(tmp_path / "b", "old")
    with (
        pytest.raises(ConfigError, match=r"would be deleted: notes\.txt"),
        workplace(tmp_path / "b") as place,
    ):
        put(place.bundle, "new")
        (tmp_path / "b" / "notes.txt").write_text("mine")
        place.publish(force=True)
    assert said(tmp_path / "b") == "old"
    assert (tmp_path / "b" / "notes.txt").read_text() == "mine"


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    check_destination(tmp_path / "empty", force=False)
    write(tmp_path / "empty", "x")
    assert names(tmp_path / "empty") == ["bin", "manifest.json"]


def test_a_destination_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exists"), workplace(tmp_path / "b") as place:
        (place.bundle / "manifest.json").write_text("mine")
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "manifest.json").write_text("theirs")
        place.publish(force=False)
    assert (tmp_path / "b" / "manifest.json").read_text() == "theirs"
    assert names(tmp_path) == ["b"]


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="cannot be written"), workplace(tmp_path / "file" / "bundle"):
        pass


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    end(start(tmp_path / "b"))
    assert len(names(tmp_path)) == 1
    assert names(tmp_path)[0].startswith(".b.edgepack-")
    write(tmp_path / "other", "x")
    assert names(tmp_path) == ["other"]


def test_a_living_process_is_left_alone(tmp_path: Path) -> None:
    process = start(tmp_path / "b")
    try:
        write(tmp_path / "other", "x")
        assert len(names(tmp_path)) == 2
    finally:
        end(process)


def test_a_bundle_that_was_moved_away_when_killed_comes_back(tmp_path: Path) -> None:
    write(tmp_path / "b", "old")
    end(start(tmp_path / "b", "swap"))
    assert "b" not in names(tmp_path)
    write(tmp_path / "other", "x")
    assert names(tmp_path) == ["b", "other"]
    assert said(tmp_path / "b") == "old"


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True, mode=0o700)
    for name in ("bin/net", "README.md"):
        (root / name).write_text("")
        (root / name).chmod(0o600)
    normalise_modes(root, {"bin/net"})
    modes = {path.name: path.stat().st_mode & 0o777 for path in (root, *root.rglob("*"))}
    assert modes == {"root": 0o755, "bin": 0o755, "net": 0o755, "README.md": 0o644}
