"""The cache: hits what is the same, misses what is not, survives damage and rivals, and stays small."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgepack.errors import ConfigError, EdgepackWarning
from edgepack.pipeline import cache as cache_module
from edgepack.pipeline.cache import Cache, compile_key, import_key
from edgepack.pipeline.cache_total import TOTAL
from edgepack.pipeline.compile_job import CompileJob
from edgepack.pipeline.job import WARNINGS, ImportJob
from edgepack.pipeline.versions import package_versions
from edgepack.plan.target import CpuTarget
from edgepack.plan.tuned import TunedChoice
from edgepack.system.deadline import OutOfTimeError, time_limit
from edgepack.system.private_files import OwnFolder

KEY = "k" * 64
RESULTS = (*CompileJob.results, "kernels.o", WARNINGS)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return fill(tmp_path / "results")


def fill(folder: Path, size: int = 10) -> Path:
    for name in (*RESULTS, "recorded/input_0.bin", "job.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode() * size)
    return folder


def nbytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def entries(cache: Cache) -> set[str]:
    return {path.name for path in cache.root.iterdir()} - {TOTAL}


def fetch(cache: Cache, key: str, folder: Path) -> bool:
    folder.mkdir(exist_ok=True)
    return cache.fetch(key, folder)


def test_gives_back_what_was_stored_but_the_job(tmp_path: Path, results: Path) -> None:
    cache = Cache(tmp_path / "cache")
    assert not fetch(cache, KEY, tmp_path / "out")
    cache.store(KEY, results)
    assert fetch(cache, KEY, tmp_path / "out")
    for name in (*RESULTS, "recorded/input_0.bin"):
        assert (tmp_path / "out" / name).read_bytes() == (results / name).read_bytes()
    assert not (tmp_path / "out" / "job.json").exists()


def test_an_entry_is_found_where_it_lies_if_it_is_whole(tmp_path: Path, results: Path) -> None:
    cache = Cache(tmp_path / "cache")
    assert cache.find(KEY) is None
    cache.store(KEY, results)
    assert cache.find(KEY) == cache.root / KEY
    file = cache.root / KEY / "kernels.o"
    file.write_bytes(b"x" + file.read_bytes()[1:])
    assert cache.find(KEY) is None
    assert not (cache.root / KEY).exists()
    cache.store(KEY, results)
    cache.forget(KEY)
    assert cache.find(KEY) is None
    cache.forget(KEY)


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "entry", "entry gone", "incomplete"])
def test_a_damaged_entry_is_forgotten_and_can_be_replaced(tmp_path: Path, results: Path, damage: str) -> None:
    cache = Cache(tmp_path / "cache")
    cache.store(KEY, results)
    entry = cache.root / KEY
    file = entry / "kernels.o"
    if damage == "flip":
        file.write_bytes(b"x" + file.read_bytes()[1:])
    elif damage == "truncate":
        file.write_bytes(file.read_bytes()[:-1])
    elif damage == "remove":
        file.unlink()
    elif damage == "entry":
        (entry / "entry.json").write_text("{")
    elif damage == "entry gone":
        (entry / "entry.json").unlink()
    else:
        (entry / "entry.json").write_text('{"files": {}}')
    assert not fetch(cache, KEY, tmp_path / "out")
    assert not entry.exists()
    cache.store(KEY, results)
    assert fetch(cache, KEY, tmp_path / "out")


def test_storing_twice_keeps_one(tmp_path: Path, results: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.store(KEY, results)
    cache.store(KEY, results)
    assert entries(cache) == {KEY}


def test_the_least_recently_used_go_first(tmp_path: Path, results: Path) -> None:
    cache = Cache(tmp_path / "cache", limit=int(nbytes_of(results) * 3.5) + 2000)
    for number, key in enumerate("abc"):
        cache.store(key, results)
        os.utime(cache.root / key / "entry.json", (number, number))
    assert fetch(cache, "a", tmp_path / "out")  # used now
    fill(results, size=20)
    cache.store("d", results)
    left = entries(cache)
    assert "d" in left
    assert "b" not in left
    assert "a" in left


def test_an_entry_larger_than_the_limit_is_not_dropped_at_once(tmp_path: Path, results: Path) -> None:
    cache = Cache(tmp_path / "cache", limit=1)
    cache.store("a", results)
    cache.store("b", results)
    assert entries(cache) == {"b"}


def test_a_store_looks_at_other_entries_only_when_there_may_be_too_many(
    tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    trim = Cache._trim
    monkeypatch.setattr(Cache, "_trim", lambda *of, keep: looks.append(keep) or trim(*of, keep=keep))
    cache = Cache(tmp_path / "cache")
    cache.store("0", results)
    cache.limit = int(16.5 * nbytes_of(cache.root / "0"))
    for number in range(1, 19):
        cache.store(f"{number}", results)
    # The first one, and at 17 entries, after which an eighth of the limit is free.
    assert looks == ["0", "16"]
    assert len(entries(cache)) == 16
    for _ in range(9):
        cache.store("18", results)  # is there, and adds nothing
    assert looks == ["0", "16"]


@pytest.mark.parametrize("damage", ["gone", "no numbers", "empty", "negative", "long"])
def test_without_a_right_total_the_next_store_looks(tmp_path: Path, results: Path, damage: str) -> None:
    cache = Cache(tmp_path / "cache")
    for key in "abc":
        cache.store(key, results)
    cache.limit = int(3.5 * nbytes_of(cache.root / "a"))
    texts = {"no numbers": "many\n", "empty": "", "negative": "0\n-900000\n", "long": "0\n" * 9000}
    if damage == "gone":
        (cache.root / TOTAL).unlink()
    else:
        (cache.root / TOTAL).write_text(texts[damage])
    cache.store("d", results)
    assert len(entries(cache)) == 3


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, results: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file")
    with pytest.warns(EdgepackWarning, match="is not used: File exists"):
        cache.store(KEY, results)
    assert not fetch(cache, KEY, tmp_path / "out")


def test_place_and_limit_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEPACK_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("EDGEPACK_CACHE_BYTES", "123")
    cache = Cache()
    assert cache.root.parent == tmp_path
    assert cache.limit == 123
    monkeypatch.setenv("EDGEPACK_CACHE_BYTES", "lots")
    with pytest.raises(ConfigError, match="EDGEPACK_CACHE_BYTES"):
        Cache()


def import_job(tmp_path: Path, **changes: Any) -> ImportJob:
    return replace(ImportJob(tmp_path / "net.onnx", "onnx", shapes={"x": (1,)}), **changes)


def compile_job(tmp_path: Path, **changes: Any) -> CompileJob:
    target = CpuTarget("x86_64-unknown-linux-gnu")
    base = CompileJob(tmp_path / "net.onnx", tmp_path / "imported", "onnx", "net", target, "p_")
    return replace(base, **changes)


def test_keys_depend_on_content_not_on_places(tmp_path: Path) -> None:
    one, two = tmp_path / "1.npy", tmp_path / "2.npy"
    one.write_bytes(b"x")
    two.write_bytes(b"x")
    keys = {
        import_key(import_job(tmp_path, inputs={"x": one}), "digest"),
        import_key(import_job(tmp_path, model=tmp_path / "elsewhere.onnx", inputs={"x": two}), "digest"),
    }
    assert len(keys) == 1
    two.write_bytes(b"y")
    assert import_key(import_job(tmp_path, inputs={"x": two}), "digest") not in keys
    elsewhere = compile_job(tmp_path, imported=tmp_path / "elsewhere", model=tmp_path / "other.onnx")
    assert compile_key(compile_job(tmp_path), "k") == compile_key(elsewhere, "k")


@pytest.mark.parametrize(
    "changes", [{"shapes": {"x": (2,)}}, {"dims": {"n": 1}}, {"seed": 1}, {"frontend": "other"}]
)
def test_the_import_key_depends_on_everything_that_decides(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert import_key(import_job(tmp_path), "d") != import_key(import_job(tmp_path, **changes), "d")
    assert import_key(import_job(tmp_path), "d") != import_key(import_job(tmp_path), "e")


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"target": CpuTarget("x86_64-unknown-linux-gnu", features=("+avx2",))},
        {"symbol_prefix": "q_"},
        {"tuned": [TunedChoice("cpu", "group", "rule", {"tile": 4}, 1.5)]},
        {"frontend": "other"},
    ],
)
def test_the_compile_key_depends_on_everything_that_decides(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert compile_key(compile_job(tmp_path), "k") != compile_key(compile_job(tmp_path, **changes), "k")
    assert compile_key(compile_job(tmp_path), "k") != compile_key(compile_job(tmp_path), "l")


def test_keys_depend_on_versions_and_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def keys() -> tuple[str, str]:
        return import_key(import_job(tmp_path), "d"), compile_key(compile_job(tmp_path), "k")

    before = keys()
    assert before[0] != before[1]
    newer = {**package_versions("compile", "onnx"), "apache-tvm": "0.99"}
    monkeypatch.setattr(cache_module, "package_versions", lambda *of: newer)
    assert not set(keys()) & set(before)
    monkeypatch.setattr(cache_module, "package_versions", package_versions)
    monkeypatch.setattr(cache_module, "source_digest", lambda *of: f"another one of {of}")
    assert not set(keys()) & set(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("act", ["store", "forget"])
def test_what_a_process_left_that_was_killed_in_the_middle_goes_with_the_next_store(
    act: str, tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path / "cache")
    cache.store(KEY, results)
    (cache.root / KEY / "plan.json").write_text("damaged")
    if not (child := os.fork()):
        try:
            monkeypatch.setattr(OwnFolder, "rename", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            if act == "store":
                cache.store("other", results)
            else:
                fetch(cache, KEY, tmp_path / "out")
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert any(name.startswith(".") for name in entries(cache))
    cache.store("third", results)
    assert not any(name.startswith(".") for name in entries(cache))


def test_no_two_make_the_same_entry_at_once(tmp_path: Path, results: Path) -> None:
    """Not two processes either: the lock is of the open file, which each of these has its own."""
    key, events = "b" * 64, []
    started = threading.Event()

    def first() -> None:
        with Cache(tmp_path).reserved(key, lambda _stage, _detail: None):
            started.set()
            assert waits.wait(60)
            Cache(tmp_path).store(key, results)
            events.append("stored")

    waits, thread = threading.Event(), threading.Thread(target=first)
    thread.start()
    assert started.wait(60)
    other = Cache(tmp_path)
    with pytest.raises(OutOfTimeError), time_limit(0.1), other.reserved(key, lambda _stage, _detail: None):
        events.append("never")
    with other.reserved("c" * 64, lambda _stage, _detail: None):  # another entry is nobody's
        events.append("another")
    with other.reserved(key, lambda _stage, _detail: waits.set()):
        assert fetch(other, key, tmp_path / "out")
        events.append("second")
    thread.join()
    assert events == ["another", "stored", "second"]
    assert not list(other.root.glob(".lock*"))
