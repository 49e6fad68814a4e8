"""A release: what it holds, what is built again, what a failure leaves, and that its bytes are the same."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import onnx
import pytest

from edgepack.compiler.frontend.onnx.binding import bind
from edgepack.config.device import load_device
from edgepack.config.tuned import TunedFile, write_tuned
from edgepack.errors import ConfigError
from edgepack.plan.tuned import TunedChoice
from edgepack.release.build import Job, build
from edgepack.release.executing import State
from edgepack.release.index import load_index
from edgepack.release.matrix import units_of
from edgepack.release.measure import Measurements, load_measurements, slower_units
from edgepack.release.notes import render_notes
from edgepack.release.output import Earlier
from edgepack.release.project_file import load_project
from edgepack.release.run import Release, ReleaseOptions, plan_release, release
from edgepack.system.files import list_files
from tests.release.conftest import content
from tests.support import fake
from tests.support.pages import tags, text_of
from workbench.models.single import single

pytestmark = pytest.mark.usefixtures("fake_worker")
Write = Callable[..., Path]


def run(path: Path, output: Path, *, jobs: int = 2, **options: Any) -> Release:
    """A release whose units are built in this process."""
    with ThreadPoolExecutor(jobs) as executor:
        return release(path, output, ReleaseOptions(**options), executor=executor)


def test_a_release_holds_what_its_sums_and_its_index_say(project: Write, dist: Path, tmp_path: Path) -> None:
    budgets = "budgets: {text: 1 MiB, arena: 1, flash: 1}\n"
    budgets += "matrix: {overrides: [{match: '*@my*', budgets: {arena: 9 MiB}}]}\n"
    made = run(project(budgets), dist)
    assert made.index is not None
    assert (made.built, made.ok, made.broken) == ((), False, (("net@linux-x86_64", "arena"),))
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=dist, check=False
    )
    assert done.returncode == 0
    assert set(list_files(dist)) == {*Earlier.at(dist).sums, "SHA256SUMS"}
    assert sorted(path.name for path in (dist / "net" / "my-board").iterdir()) == [
        "bundle",
        "net-my-board-1.2.0.zip",
    ]
    one, mine = load_index(dist).units
    assert (one.name, mine.name) == ("net@linux-x86_64", "net@my-board")
    assert [package.path for package in mine.packages] == ["net/my-board/net-my-board-1.2.0.zip"]
    assert (one.verified.runner, one.verified.reference) == ("native", "numpy")
    assert [(b.what, b.limit, b.kept) for b in mine.budgets] == [
        ("text", 1 << 20, True),
        ("arena", 9 << 20, True),
        ("flash", 1, True),
    ]
    notes = (dist / "RELEASE.md").read_text(encoding="utf-8")
    assert "| net | linux-x86_64 | arena | 1 B | 128 B | BROKEN |" in notes
    assert "| net | my-board | flash | 1 B |  | not measured |" in notes
    assert not [one.name for one in tmp_path.iterdir() if one.name.startswith(".")]


def test_what_is_up_to_date_is_not_built_again(project: Write, dist: Path) -> None:
    path = project()
    before = {name: (dist / name).stat().st_mtime_ns for name in list_files(dist)}
    again = run(path, dist)
    assert (again.built, again.changed, again.ok) == ((), False, True)
    assert before == {name: (dist / name).stat().st_mtime_ns for name in list_files(dist)}
    (dist / "net" / "linux-x86_64" / "stranger").write_text("new")
    more = "matrix: {overrides: [{match: '*@my-board', optimize: size}]}\n"
    states = [one.built is not None for one in plan_release(project(more), dist, ReleaseOptions())]
    assert states == [False, False]
    (dist / "net" / "linux-x86_64" / "stranger").unlink()
    (dist / "net" / "my-board" / "bundle" / "README.md").write_text("changed")
    assert run(project(), dist).built == ("net@my-board",)
    assert run(project(), dist).changed is False
    (dist / "provenance.intoto.json").unlink()
    again = run(project(), dist)
    assert (again.built, again.changed) == ((), True)
    assert (dist / "provenance.intoto.json").is_file()


def test_tuned_schedules_decide_on_a_unit_where_they_are_for_its_cpu(project: Write, dist: Path) -> None:
    path = project("matrix: {overrides: [{match: '*@my-board', tuned: [tuned.json]}]}\n")
    kind = load_device("linux-x86_64").cpu_target().cpu_kind
    for cpu, current in (("other", [True, True]), (kind, [True, False])):
        choice = TunedChoice(cpu, "dense", "dense", {}, 2.0)
        write_tuned(path.parent / "tuned.json", TunedFile((choice,)))
        planned = plan_release(path, dist, ReleaseOptions())
        assert [one.built is not None for one in planned] == current


@pytest.mark.slow
def test_what_is_chosen_otherwise_is_built_again(project: Write, dist: Path) -> None:
    more = "matrix: {overrides: [{match: '*@my-board', formats: []}]}\n"
    assert run(project(more), dist).built == ("net@my-board",)
    assert sorted(path.name for path in (dist / "net" / "my-board").iterdir()) == ["bundle"]
    assert run(project(), dist).built == ("net@my-board",)


@pytest.mark.slow
def test_a_failure_stops_neither_the_rest_nor_the_next_release(
    project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist = tmp_path / "dist"
    states: list[State] = []
    # Of a device without a runner and one without a compiler, and a check that fails.
    more = "  firm: {extends: linux-x86_64, compilers: {zig: {target: no-such-target}}}\n"
    path = project(more)
    with ThreadPoolExecutor(1) as executor:
        made = release(path, dist, ReleaseOptions(), states.append, executor)
    assert (made.index, made.ok, set(made.failures)) == (None, False, {"net@firm"})
    assert made.failures["net@firm"].kind == "ToolchainError"
    assert made.built == ("net@linux-x86_64", "net@my-board")
    assert not dist.exists()
    assert (states[-1].done, states[-1].total) == (3, 3)
    assert [name for state in states for name, why in state.finished if why] == ["net@firm"]
    (path.parent / "bad.onnx").write_text("models")  # is seen before anything is built
    path.write_text(
        path.read_text("utf-8").replace("models:\n", "models:\n  bad: {path: bad.onnx}\n"), "utf-8"
    )
    states.clear()
    with ThreadPoolExecutor(1) as executor:
        part = ReleaseOptions(only=("*@firm",))
        made = release(path, tmp_path / "part", part, states.append, executor)
    finished = [name for state in states for name, why in state.finished if why]
    assert sorted(finished) == sorted(made.failures) == ["bad@firm", "net@firm"]
    fake.install("wrong", monkeypatch.setattr)  # whoever compiles now fails its check
    made = run(project(), dist)
    assert (made.built, made.ok) == ((), True)
    (path.parent / "net.onnx").write_bytes(b"another model" + os.urandom(8))
    made = run(project(), dist)
    assert {failure.kind for failure in made.failures.values()} == {"CheckFailedError"}
    assert "fails its own check" in made.failures["net@my-board"].message
    assert load_index(dist).version == "1.2.0"  # the one before stands


@pytest.mark.parametrize(
    ("option", "said"),
    [("shape", "the model has no input 'ghost'."), ("dim", "no input of the model has a dimension 'ghost'.")],
)
def test_a_wrong_size_is_named_where_the_project_says_it(
    option: str, said: str, project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = "[1]" if option == "shape" else "1"
    model = f"net:\n    path: net.onnx\n    {option}s: {{{{ghost: {size}}}}}\n"
    head = "name: fleet\nversion: 1.2.0\ndevices: {{linux-x86_64: }}\n"
    path = project(text=f"{head}models:\n  {model}")
    (unit,) = units_of(load_project(path))

    def pack(*_: object) -> None:
        shapes, dims = ({"ghost": (1,)}, {}) if option == "shape" else ({}, {"ghost": 1})
        bind(single((2,), lambda g, x: g.op("Relu", x)), shapes=shapes, dims=dims)

    monkeypatch.setattr("edgepack.release.build.pack_model", pack)
    failure = build(Job(unit, "key", "", "", tmp_path)).failure
    assert failure is not None
    assert failure.message == f"{path}:7: models.net.{option}s: {said}"


def test_two_releases_are_the_same_bytes(
    project: Write, dist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "another, é"
    path = project(folder=place)
    for name, value in {"TZ": "Pacific/Auckland", "LC_ALL": "C", "USER": "eve", "HOSTNAME": "other"}.items():
        monkeypatch.setenv(name, value)
    old = os.umask(0o077)
    try:
        assert len(run(path, place / "out", jobs=1).built) == 2
    finally:
        os.umask(old)
    assert content(dist) == content(place / "out")
    assert (place / "out").stat().st_mode & 0o777 == 0o755


def test_a_part_does_not_replace_the_whole(project: Write, dist: Path, tmp_path: Path) -> None:
    path = project()
    with pytest.raises(ConfigError, match="holds a whole release"):
        run(path, dist, only=("*@my*",))
    with pytest.raises(ConfigError, match=r"--only 'net@your\*' matches nothing"):
        run(path, tmp_path / "new", only=("net@your*",))
    assert not [one.name for one in tmp_path.iterdir() if one.name.startswith(".")]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="is not empty and holds no release"):
        run(path, tmp_path / "full")
    assert [one.name for one in (tmp_path / "full").iterdir()] == ["thesis.tex"]


def test_changes_since_the_release_before_are_said(project: Write, dist: Path, tmp_path: Path) -> None:
    old = load_index(dist)
    (unit,) = [unit for unit in old.units if unit.device == "linux-x86_64"]
    smaller = unit.model_copy(update={"sizes": unit.sizes.model_copy(update={"arena": 100})})
    before = old.model_copy(update={"version": "1.1.0", "units": (smaller,)})
    (tmp_path / "old.json").write_text(before.to_json(), encoding="utf-8")
    made = run(project(), dist, against=tmp_path / "old.json")
    assert (made.built, made.changed) == ((), True)
    assert made.index is not None
    assert made.index.against == "1.1.0"
    notes = (dist / "RELEASE.md").read_text(encoding="utf-8")
    assert "## Changes since 1.1.0" in notes
    assert "| net | linux-x86_64 | arena | 100 B | 128 B | +28.0 % |" in notes
    assert "| net | my-board | new |  |  |  |" in notes


def test_a_changed_model_under_an_unchanged_version_is_a_warning(
    project: Write, dist: Path, tmp_path: Path
) -> None:
    path = project()
    assert run(path, dist).warnings == ()
    was = load_index(dist).units[0].model_sha256
    model = onnx.load(tmp_path / "net.onnx")
    model.doc_string = "trained again"
    onnx.save(model, tmp_path / "net.onnx")
    old = shutil.copytree(dist, tmp_path / "old")
    made = run(path, dist)
    assert made.index is not None and made.ok
    now = made.index.units[0].model_sha256
    assert made.warnings == (
        "fleet 1.2.0 was released before with another model: "
        f"net (SHA-256 {was[:12]} before, {now[:12]} now); "
        "raise `version` in the project file, or give allow_same_version=True.",
    )
    assert run(path, dist).warnings == ()  # the same as what stands there now
    assert "net (SHA-256" in run(path, dist, against=old).warnings[0]
    assert run(path, dist, against=old, allow_same_version=True).warnings == ()
    path.write_text(path.read_text().replace("1.2.0", "1.3.0"))
    assert run(path, dist, against=old).warnings == ()


def test_names_of_others_are_text_in_the_notes(dist: Path) -> None:
    hostile = "]]> | `x` <script>alert(1)</script> */ $(id) ${x} \\ ## [a](b)"
    index = load_index(dist)
    unit = index.units[0].model_copy(update={"warnings": (f"{hostile}\n# x\x1b[31m\u202e",)})
    notes = render_notes(index.model_copy(update={"authors": (hostile,), "units": (unit,)}))
    (line,) = [line for line in notes.split("\n") if line.startswith("- net@")]
    assert line.isprintable()
    assert f"By {hostile}." in text_of(notes) and f"{hostile} # x" in text_of(line)
    assert not {"script", "img", "em", "strong"} & tags(notes)
    assert tags(line) == {"ul", "li"}


@pytest.mark.slow
def test_a_part_becomes_the_whole(project: Write, tmp_path: Path) -> None:
    path = project()
    part = run(path, tmp_path / "part", only=("*@my*",))
    assert part.index is not None
    assert ([unit.name for unit in part.index.units], part.index.only) == (["net@my-board"], ("*@my*",))
    assert run(path, tmp_path / "part").built == ("net@linux-x86_64",)


@pytest.mark.slow
def test_two_releases_into_one_folder_do_not_mix(project: Write, tmp_path: Path) -> None:
    path = project()

    def meddle(state: State) -> None:
        if state.done == 0:
            with pytest.raises(ConfigError, match="Another release is being written"):
                run(path, tmp_path / "dist")

    with ThreadPoolExecutor(2) as executor:
        assert release(path, tmp_path / "dist", ReleaseOptions(), meddle, executor).ok


def test_latencies_are_in_a_file_of_their_own_and_compared_where_they_can_be(
    project: Write, dist: Path, tmp_path: Path
) -> None:
    before = content(dist)
    plain = run(project("budgets: {slower: 5}\n"), dist)
    assert plain.ok
    assert "`slower` was not checked of net@linux-x86_64, net@my-board" in plain.warnings[0]
    path = project("budgets: {slower: 1000}\n")
    made = run(path, dist, bench=True)
    assert (made.changed, made.measured is not None) == (False, True)
    after = content(dist)
    assert set(after) - set(before) == {"measurements.json"}
    assert {name: after[name] for name in before} == before
    found = load_measurements(dist)
    assert {one.unit: (one.runner, one.runs) for one in found.units} == {
        "net@linux-x86_64": ("native", 50),
        "net@my-board": ("native", 50),
    }
    one, mine = (unit for unit in units_of(load_project(path)))
    faster = [one.model_copy(update={"median_ms": one.median_ms / 12}) for one in found.units]
    elsewhere = faster[1].model_copy(update={"cpu": "another"})
    slower, unknown = slower_units([one, mine], found, Measurements(units=(faster[0], elsewhere)))
    assert [(slow.unit, slow.limit) for slow in slower] == [("net@linux-x86_64", 1000.0)]
    assert "not checked of net@my-board" in unknown[0]
    shutil.copytree(dist, tmp_path / "older")
    Measurements(units=tuple(faster)).write(tmp_path / "older")
    assert not run(path, dist, against=tmp_path / "older").slower  # nothing was measured now
