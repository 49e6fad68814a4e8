"""``pack --keep-stages`` and ``edgepack stages``."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from edgepack import ConfigError, pack
from edgepack.cli.main import main
from edgepack.commands import look_inside
from edgepack.commands.kept_stages import complete_stages, kept_stages
from edgepack.options import PackOptions
from edgepack.plan.stages import GraphStage, StagesRecord
from edgepack.plan.types import Arena, Plan
from tests.support import fake
from workbench.models.builder import Graph

DEVICE = "raspberrypi4"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "net.onnx"
    g = Graph("net")
    g.op("Relu", g.linear(g.input("x", [4, 8]), 8, 16), name="y")
    g.output("y")
    onnx.save(g.model(), path)
    return path


def content(root: Path) -> dict[str, bytes]:
    return {str(f.relative_to(root)): f.read_bytes() for f in sorted(root.rglob("*")) if f.is_file()}


def test_a_bundle_is_the_same_with_its_stages_kept_which_the_cache_cannot_serve(
    model: Path, tmp_path: Path
) -> None:
    bundle = pack(model, DEVICE, tmp_path / "plain")
    pack(model, DEVICE, tmp_path / "kept", keep_stages=tmp_path / "stages")
    assert content(bundle.path) == content(tmp_path / "kept")
    kept = content(tmp_path / "stages")
    assert {"index.txt", "stages.json", "01-imported.txt", "14-fuse.txt", "16-plan.txt"} <= kept.keys()
    record = json.loads(kept["stages.json"])
    kernel = record["kernels"][0]
    assert b"R.matmul" in kept["01-imported.txt"]
    assert kernel["symbol"].encode() in kept[f"kernels/{kernel['name']}/assembly.s"]
    assert kernel["name"].encode() in kept["16-plan.txt"]
    assert str(tmp_path).encode() not in b"".join(kept.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "plain", "stages"]


def test_stages_shows_counts_kernels_with_their_nodes_and_the_texts_of_one(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def show(*arguments: str) -> str:
        assert main(["stages", str(model), "--device", DEVICE, "-q", *arguments]) == 0
        return capsys.readouterr().out

    found = look_inside.look_inside(model, DEVICE, PackOptions(), None)
    monkeypatch.setattr(look_inside, "look_inside", lambda *_: found)  # compiled once for all that follows
    (record,) = json.loads(show("--json"))
    before = next(stage for stage in record["graph"] if stage["name"] == "legalize")
    after = next(stage for stage in record["graph"] if stage["name"] == "fuse")
    assert (before["operators"], after["operators"]) == (3, 1)  # product, sum, relu: one kernel
    kernel = record["kernels"][0]
    every = show()
    assert "14  fuse                  3      1  14-fuse.txt" in every
    assert "@I.ir_module" in every
    shown = show("--kernel", kernel["name"])
    for text in (f"kernels/{kernel['name']}/tir.txt", "define ", "\tfmla\t", *kernel["nodes"]):
        assert text in shown
    (texts,) = json.loads(show("--kernel", kernel["symbol"], "--json"))
    assert list(texts["texts"]) == kernel["files"]
    assert main(["stages", str(model), "--device", DEVICE, "-q", "--kernel", f"{kernel['name']}x"]) == 2
    assert f"Did you mean {kernel['name']}" in capsys.readouterr().err


def test_on_a_terminal_stages_are_shown_by_the_pager(
    model: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = StagesRecord("net", "a CPU", [GraphStage(1, "imported", "read", "changed", {}, "01.txt")], [])
    texts = {"index.txt": "contents\x1b[2J\n", "01.txt": "graph\n", "02-plan.txt": "plan\n"}
    found = [look_inside.TargetStages("", record, texts)]
    monkeypatch.setattr(look_inside, "look_inside", lambda *_: found)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setenv("PAGER", "sed s/^/paged:/")
    assert main(["stages", str(model), "-q"]) == 0
    shown = capfd.readouterr().out
    assert "paged:contents\\x1b[2J" in shown
    assert "paged:plan" in shown


def test_force_replaces_stages_but_nothing_of_others(tmp_path: Path) -> None:
    def write(*, force: bool) -> None:
        with kept_stages(tmp_path / "stages", force=force) as kept:
            assert kept.folder is not None
            graph = [GraphStage(1, "imported", "read", "changed", {}, "01-imported.txt")]
            record = StagesRecord("net", "a CPU", graph, [])
            (kept.folder / "stages.json").write_text(json.dumps(record.to_json()))
            (kept.folder / "01-imported.txt").touch()
            complete_stages(kept.folder, Plan("net", (), (), (), 0, Arena(), (), ()), "")
            kept.publish()

    (tmp_path / "stages").mkdir()
    write(force=False)
    before = content(tmp_path)
    with pytest.raises(ConfigError, match="is not empty"):
        write(force=False)
    write(force=True)
    (tmp_path / "stages" / "mine.txt").touch()
    with pytest.raises(ConfigError, match="not of the stages and would be deleted: mine"):
        write(force=True)
    assert content(tmp_path) == {**before, "stages/mine.txt": b""}


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_that_holds_something_else_is_refused_before_anything_is_compiled(
    *, force: bool, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.install("crash", monkeypatch.setattr)
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages" / "mine.txt").touch()
    with pytest.raises(ConfigError) as refused:
        pack(small_model, "host", tmp_path / "out", keep_stages=tmp_path / "stages", force=force)
    assert ("holds no stages" if force else "is not empty") in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["stages"]


@pytest.mark.parametrize("folder", ["out", "out/stages", "."])
def test_stages_and_bundle_do_not_lie_in_one_another(folder: str, small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="lie in one another"):
        pack(small_model, "host", tmp_path / "out", keep_stages=tmp_path / folder)
    assert not list(tmp_path.iterdir())


def test_a_pack_that_fails_leaves_no_stages(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.install("error", monkeypatch.setattr)
    options = ["-o", str(tmp_path / "out"), "--keep-stages", str(tmp_path / "stages")]
    assert main(["pack", str(small_model), *options, "-q"]) == 3
    assert not list(tmp_path.iterdir())
