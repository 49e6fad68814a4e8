"""What zig builds once for each target is built beside the compilation, and a link finds it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edgepack.config.device import load_device
from edgepack.toolchains import resolve
from tests.support.c_sources import SOURCES

SYMBOL = "edgepack_model_test"


def _wait_until(happened: Callable[[], bool], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)


def _built(cache: Path) -> set[Path]:
    return set(cache.glob("zig/o/*/*.a"))


def test_a_link_finds_what_was_prepared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = folder / "cache"
    monkeypatch.setenv("EDGEPACK_CACHE_DIR", str(cache))
    toolchain = resolve(load_device("raspberrypi4"), "zig")
    with toolchain.preparation():
        pass  # ended at once: what it leaves behind must not disturb
    toolchain.compile_c(SOURCES / "two_exports.c", folder / "a.o")
    with toolchain.preparation():
        wanted = {"libcompiler_rt.a", "libc_nonshared.a"}
        _wait_until(lambda: {path.name for path in _built(cache)} == wanted)
        prepared = _built(cache)
        toolchain.link_shared([folder / "a.o"], folder / "a.so", exported=[SYMBOL], soname="a.so")
    assert _built(cache) == prepared


def test_what_killed_zigs_left_goes_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """zig itself leaves it there for good."""
    monkeypatch.setenv("EDGEPACK_CACHE_DIR", str(tmp_path))
    left = tmp_path / "zig" / "tmp"
    left.mkdir(parents=True, mode=0o700)
    (left / "old folder").mkdir()
    for name in ("old folder/x.o", "old.o", "new.o"):
        (left / name).write_text("x")
    (left / "old link").symlink_to(tmp_path)
    for name in ("old folder", "old.o", "old link"):
        os.utime(left / name, (1, 1), follow_symlinks=False)
    assert resolve(load_device("linux-aarch64"), "zig", None).environment
    assert [path.name for path in left.iterdir()] == ["new.o"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["windows-x86_64", "wasm32-wasi"])
def test_a_c_library_of_many_files_is_waited_for_once_and_said(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to a minute each, in an empty cache."""
    monkeypatch.setenv("EDGEPACK_CACHE_DIR", str(folder / "cache"))
    device = load_device(name)
    (folder / "main.c").write_text("int main(void) { return 0; }\n")
    for often in (1, 0):
        toolchain = resolve(device, "zig")
        said: list[tuple[str, str]] = []
        with toolchain.preparation():
            toolchain.compile_c(folder / "main.c", folder / "main.o")
            toolchain.wait_until_prepared(lambda stage, detail, said=said: said.append((stage, detail)))  # type: ignore[misc]
            made = {path.parent for path in (folder / "cache" / "zig" / "o").glob("*/*")}
            toolchain.link_program([folder / "main.o"], folder / "program")
        assert [stage for stage, _ in said] == ["C library"] * often
        more = {path.parent for path in (folder / "cache" / "zig" / "o").glob("*/*")} - made
        assert len(more) < 5, "the link builds the library again"
