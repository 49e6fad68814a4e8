"""What a release says of what changed, and what of it is made anew."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from edgepack.cli.main import main
from edgepack.cli.output import Settings
from edgepack.cli.release_display import display
from edgepack.errors import InternalError
from edgepack.release.executing import Estimate, Queue, State
from edgepack.release.index import load_index
from edgepack.release.output import Earlier
from tests.release.conftest import content
from tests.release.test_release import run
from tests.support import fake

pytestmark = pytest.mark.usefixtures("fake_worker")
Write = Callable[..., Path]


def trained_again(path: Path, mode: str, replace: Any) -> Path:
    """The project with another model, which the fake worker compiles in this mode."""
    model = onnx.load(path.parent / "net.onnx")
    model.doc_string = mode  # the cache goes by the bytes
    onnx.save(model, path.parent / "net.onnx")
    fake.install(mode, replace)
    return path


@pytest.fixture
def old(dist: Path, tmp_path: Path) -> Path:
    """The release before."""
    return shutil.copytree(dist, tmp_path / "old")


@pytest.mark.parametrize("said_before", [True, False])
def test_notes_say_which_weights_changed_and_that_new_params_do(
    said_before: bool, project: Write, dist: Path, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also beside a release that said nothing of its parts: its manifests are asked."""
    were = load_index(old).units[0].contents
    assert were is not None
    if not said_before:
        index = load_index(old)
        units = tuple(unit.model_copy(update={"contents": None}) for unit in index.units)
        (old / "release.json").write_text(index.model_copy(update={"units": units}).to_json())
    more = "matrix: {overrides: [{match: '*@my*', params: embed}]}\n"
    made = run(trained_again(project(more), "retrained", monkeypatch.setattr), dist, against=old)
    assert made.index is not None
    one, mine = made.index.units
    assert one.contents is not None
    assert [part.what for part in one.differences] == ["model", "weights"]
    assert (one.update_refusal, mine.update_refusal) == ("", "")  # of the libraries that are in use
    notes = (dist / "RELEASE.md").read_text(encoding="utf-8")
    digests = f"| `{were.weights[:12]}` | `{one.contents.weights[:12]}` |"
    assert f"| net | linux-x86_64 | model, weights {digests} `edgepack update` makes them |" in notes
    assert "| net | my-board | model, weights, options |" in notes
    assert "+0.0 %" not in notes and "-0.0 %" not in notes


def test_notes_say_why_new_params_do_not_do(
    project: Write, dist: Path, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = run(trained_again(project(), "network", monkeypatch.setattr), dist, against=old)
    assert made.index is not None
    notes = (dist / "RELEASE.md").read_text(encoding="utf-8")
    assert "| no: its kernels are others" in notes or "| no: it is another network |" in notes
    assert all(unit.update_refusal for unit in made.index.units)


def test_notes_of_the_same_bundles_say_so(project: Write, dist: Path, old: Path) -> None:
    run(project(), dist, against=old)
    notes = (dist / "RELEASE.md").read_text(encoding="utf-8")
    assert "2 units are made of the same parts." in notes
    assert "No size has changed by as much as is shown." in notes


# A new version alone


def next_version(path: Path) -> Path:
    path.write_text(path.read_text(encoding="utf-8").replace("1.2.0", "1.2.1"), encoding="utf-8")
    return path


@pytest.fixture
def nothing_is_packed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: object) -> None:
        raise InternalError("It was packed again.")

    monkeypatch.setattr("edgepack.release.build.pack_model", refuse)
    monkeypatch.setattr("edgepack.release.build.verify", refuse)
    yield


@pytest.mark.usefixtures("nothing_is_packed")
def test_a_new_version_makes_new_packages_of_the_bundles_that_are_there(project: Write, dist: Path) -> None:
    before = content(dist)
    made = run(next_version(project()), dist)
    assert made.ok and sorted(made.built) == ["net@linux-x86_64", "net@my-board"]
    after = content(dist)
    bundles = {name for name in before if "/bundle/" in name}
    assert bundles and {name: after[name] for name in bundles} == {name: before[name] for name in bundles}
    packages = [name for name in after if name.endswith(".zip")]
    assert packages == ["net/my-board/net-my-board-1.2.1.zip"]
    assert run(next_version(project()), dist).changed is False


@pytest.mark.usefixtures("nothing_is_packed")
def test_a_new_version_takes_bundles_of_the_release_that_it_is_compared_with(
    project: Write, dist: Path, tmp_path: Path
) -> None:
    made = run(next_version(project()), tmp_path / "new", against=dist)
    assert made.ok and load_index(tmp_path / "new").version == "1.2.1"
    assert (tmp_path / "new/net/my-board/net-my-board-1.2.1.zip").is_file()


def test_a_bundle_that_was_changed_is_packed_again(project: Write, dist: Path) -> None:
    (dist / "net" / "my-board" / "bundle" / "README.md").write_text("changed")
    (unit,) = [one for one in load_index(dist).units if one.device == "my-board"]
    assert Earlier.at(dist).bundle(unit.name, "net/my-board", unit.bundle_inputs) is None
    made = run(next_version(project()), dist)
    assert made.ok and (dist / "net" / "my-board" / "bundle" / "README.md").read_text() != "changed"


@pytest.mark.slow
def test_a_new_version_of_bundles_that_are_there_has_the_bytes_of_one_from_nothing(
    project: Write, dist: Path, tmp_path: Path
) -> None:
    path = next_version(project())
    run(path, dist)
    run(path, tmp_path / "from nothing")
    assert content(dist) == content(tmp_path / "from nothing")


# A dry run


def test_a_dry_run_says_that_the_key_is_missing(
    project: Write, dist: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RELEASE_KEY", raising=False)
    path = project("signing: {key_env: RELEASE_KEY}\n")
    command = ["release", str(path), "-o", str(dist), "--dry-run"]
    assert main(command) == 2
    said = capsys.readouterr()
    assert "linux-x86_64" in said.out and "RELEASE_KEY" in said.err and "edgepack.yaml:" in said.err
    assert main([*command, "--json"]) == 2
    assert main([*command, "--unsigned"]) == 0
    capsys.readouterr()
    assert main(["release", str(path), "-o", str(dist)]) == 2  # as the release itself


def test_a_release_for_checks_needs_no_key(
    project: Write, dist: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RELEASE_KEY", raising=False)
    assert run(project("signing: {key_env: RELEASE_KEY}\n"), dist, unsigned=True).ok


# The order, and how long it takes


def planned(name: str, library: str = "") -> Any:
    return SimpleNamespace(name=name, library=library)


def test_one_unit_alone_waits_for_a_library_that_is_built_first() -> None:
    devices = {"win": "W", "lin": "", "wasi": "I"}
    todo = [planned(f"{model}@{name}", library) for name, library in devices.items() for model in "ab"]
    queue = Queue(todo)
    by_name = {one.name: one for one in todo}

    def names(found: list[Any]) -> list[str]:
        return [one.name for one in found]

    assert names(queue.ready()) == ["a@win", "a@lin", "b@lin"]
    assert names(queue.ended(by_name["a@lin"])) == []
    assert names(queue.ended(by_name["a@win"])) == ["a@wasi", "b@win"]
    assert names(queue.ended(by_name["b@win"])) == []
    assert names(queue.ended(by_name["a@wasi"])) == ["b@wasi"]
    assert names(queue.ended(by_name["b@wasi"])) == []


def test_the_time_that_is_left_follows_from_the_units_that_ended() -> None:
    now = 0.0
    estimate = Estimate(lambda: now)
    assert estimate(0, 10) is None
    now = 20.0
    assert estimate(1, 9) is None  # one says little
    now = 40.0
    assert estimate(1, 8) == pytest.approx(160)
    now = 50.0
    assert estimate(0, 8) == pytest.approx(150)
    now = 400.0
    assert estimate(0, 8) == 0.0
    assert estimate(8, 0) is None


def test_the_time_that_is_left_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with display(Settings()) as show:
        show(State(2, 9, (), (("net@a", None),), 125.0))
        show(State(9, 9, (), (("net@b", None),)))
    first, last = capsys.readouterr().err.splitlines()
    assert first.endswith("net@a: done (2 of 9, about 2 min left)") and last.endswith("(9 of 9)")
