"""``edgepack cache``: what it shows, what it removes, and what it never does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from edgepack.cli.main import main
from edgepack.pipeline import compiler_cache
from edgepack.pipeline.cache import Cache, lock_entry
from edgepack.system.log import save_log
from edgepack.system.private_files import own_folder

DAY = 86_400


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with three results (used 10, 5 and 0 days ago), a log, zig's folder, and what is not
    edgepack's."""
    root = tmp_path / "cache"
    monkeypatch.setenv("EDGEPACK_CACHE_DIR", str(root))
    monkeypatch.delenv("EDGEPACK_CACHE_BYTES", raising=False)
    compiler_cache._held.cache_clear()
    cache = Cache()
    for number, (name, days) in enumerate((("recorded/recorded.json", 10), ("params.bin", 5), ("x.o", 0))):
        made = tmp_path / "made" / str(number)
        (made / name).parent.mkdir(parents=True)
        (made / name).write_bytes(bytes(1000 * (number + 1)))
        cache.store(f"{number}" * 64, made)
        entry = cache.root / (f"{number}" * 64) / "entry.json"
        os.utime(entry, (time.time() - days * DAY,) * 2)
    save_log("internal", "a log")
    for name in ("h/manifest", "o/1/x.o", "tmp/y"):
        (root / "zig" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "zig" / name).write_bytes(bytes(5000))
    (root / "zig").chmod(0o700)
    (root / "logs" / "mine.log").write_text("not edgepack's")
    (root / "results-3" / "notes.txt").write_text("not edgepack's")
    (root / "somebody").mkdir()
    (root / "somebody" / "file").write_text("not edgepack's")
    return root


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    assert main(["cache", *map(str, arguments), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def keys(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [one["key"][0] for one in run(capsys, "list")]


def others(root: Path) -> bool:
    names = ("logs/mine.log", "results-3/notes.txt", "somebody/file")
    return all((root / name).read_text() == "not edgepack's" for name in names)


def test_size_has_bytes_entries_and_limits_by_kind(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = run(capsys, "size")
    kinds = {one["kind"]: one for one in said["kinds"]}
    assert (kinds["results"]["entries"], kinds["results"]["limit"]) == (3, 4 << 30)
    assert kinds["results"]["nbytes"] > 6000
    assert (kinds["compiler"]["entries"], kinds["compiler"]["nbytes"]) == (3, 15000)
    assert kinds["compiler"]["limit"] == 1 << 30
    assert kinds["other"]["entries"] == 1
    assert said["nbytes"] == sum(one["nbytes"] for one in said["kinds"])
    assert main(["cache", "size"]) == 0
    out = capsys.readouterr().out
    assert "EDGEPACK_CACHE_BYTES sets the limits" in out and str(root) in out


def test_list_has_the_results_by_their_last_use(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = run(capsys, "list")
    assert [one["kind"] for one in entries] == ["model", "kernels", "objects"]
    assert entries[1]["nbytes"] > 2000 and entries[1]["used"] == pytest.approx(time.time() - 5 * DAY, abs=99)
    assert main(["cache", "list"]) == 0
    assert "2" * 16 in capsys.readouterr().out


def test_prune_by_age_and_by_bytes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "prune", "--older-than", 7)
    assert keys(capsys) == ["1", "2"]
    removed = {one["kind"]: one for one in run(capsys, "prune", "--max-bytes", "4 kB")["removed"]}
    assert keys(capsys) == ["2"]
    assert removed["results"]["entries"] == 1
    assert removed["compiler"]["nbytes"] == 15000
    assert not (root / "zig" / "h").exists() and others(root)
    assert main(["cache", "prune"]) == 2
    assert main(["cache", "prune", "--max-bytes", "many"]) == 2


def test_prune_by_both_removes_what_is_old_until_it_fits(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "prune", "--kind", "results", "--older-than", 1, "--max-bytes", "1 MB")
    assert keys(capsys) == ["0", "1", "2"]
    run(capsys, "prune", "--kind", "results", "--older-than", 1, "--max-bytes", 0)
    assert keys(capsys) == ["2"]


def test_clear_removes_all_but_what_is_not_edgepacks(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "clear"]) == 2
    assert "--yes" in capsys.readouterr().err
    run(capsys, "clear", "--yes")
    assert keys(capsys) == []
    assert not list((root / "logs").glob("edgepack-*")) and others(root)
    assert [path.name for path in (root / "zig").iterdir()] == [".in-use"]


def test_an_entry_in_the_making_stays(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with own_folder(root / "results-3") as folder:
        lock = lock_entry(folder, "1" * 64)
        assert lock is not None
        removed = run(capsys, "clear", "--yes", "--kind", "results")["removed"]
        assert removed[0]["kept"] == "1 of them stay: a process is making them."
        assert keys(capsys) == ["1"]
        os.close(lock)
    run(capsys, "clear", "--yes", "--kind", "results")
    assert keys(capsys) == []


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no links")
def test_nothing_is_removed_through_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir(mode=0o700)
    (tmp_path / "precious" / ("a" * 64)).mkdir()
    (tmp_path / "precious" / "h").write_text("x")
    for name in ("results-3", "zig"):
        (root / name).rename(tmp_path / f"old {name}")
        (root / name).symlink_to(tmp_path / "precious")
    assert main(["cache", "clear", "--yes", "--kind", "results"]) == 2
    assert main(["cache", "clear", "--yes", "--kind", "compiler"]) == 2
    assert len(list((tmp_path / "precious").iterdir())) == 2
    (tmp_path / "old results-3" / ("0" * 64) / "link").symlink_to(tmp_path / "precious")
    (root / "results-3").unlink()
    (tmp_path / "old results-3").rename(root / "results-3")
    main(["cache", "clear", "--yes", "--kind", "results"])
    assert len(list((tmp_path / "precious").iterdir())) == 2


HOLD = "from edgepack.pipeline.compiler_cache import compiler_cache; compiler_cache(); print('held'); input()"


def test_the_compilers_cache_stays_while_a_process_may_start_it(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        (removed,) = run(capsys, "clear", "--yes", "--kind", "compiler")["removed"]
        assert removed["entries"] == 0 and "running" in removed["kept"]
        assert (root / "zig" / "h" / "manifest").is_file()
        process.communicate("\n")
    (removed,) = run(capsys, "clear", "--yes", "--kind", "compiler")["removed"]
    assert (removed["entries"], removed["kept"]) == (3, "")


def test_the_compilers_cache_is_bounded_when_it_is_used(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def use() -> None:
        subprocess.run([sys.executable, "-c", HOLD], input="\n", text=True, check=True, capture_output=True)

    use()
    assert (root / "zig" / "o" / "1" / "x.o").is_file()
    with (root / "zig" / "o" / "large").open("wb") as file:
        file.truncate(257 << 20)  # holes: no disk is filled
    monkeypatch.setenv("EDGEPACK_CACHE_BYTES", "1000000000")
    use()
    assert (root / "zig" / "o").is_dir()  # it was measured a moment ago
    (root / "zig" / ".measured").unlink()
    use()
    assert not (root / "zig" / "o").exists()
