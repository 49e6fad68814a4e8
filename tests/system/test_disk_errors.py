"""A folder that is full or cannot be written to is named, whoever stumbled over it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import edgepack
import edgepack.system.disk_errors
from edgepack.config.device import load_device
from edgepack.errors import ConfigError, EdgepackWarning, ToolchainError
from edgepack.pipeline.cache import Cache
from edgepack.system.disk_errors import blamed, refusal, writing_to
from edgepack.system.paths import cache_dir
from edgepack.system.process import run_checked
from edgepack.system.temporary import cache_folder
from edgepack.toolchains import resolve
from tests.support import fake


@pytest.fixture
def places(tmp_path: Path) -> Iterator[dict[str, Path]]:
    found = {"output folder": tmp_path / "out", "cache folder": tmp_path / "cache"}
    for path in found.values():
        path.mkdir()
    with writing_to(found):
        yield found


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "is full."),
        (errno.EDQUOT, "is full: this user's quota is used up."),
        (errno.EROFS, "is read-only."),
        (errno.EFBIG, "takes no file of this size (ulimit -f)."),
    ],
)
def test_the_folder_that_holds_the_file_is_named(number: int, said: str, places: dict[str, Path]) -> None:
    for name, path in places.items():
        error = refusal(OSError(number, "why", str(path / "a" / "b")))
        assert error is not None and error.message == f"The {name} {path} {said}"
        assert ("EDGEPACK_CACHE_DIR" in error.hint) == (name == "cache folder")


def test_a_file_that_may_not_be_read_is_not_a_folder_that_may_not_be_written(
    places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refusal(PermissionError(errno.EACCES, "no", str(places["output folder"] / "model.onnx"))) is None
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != places["cache folder"])
    error = refusal(PermissionError(errno.EACCES, "no", str(places["cache folder"] / "x")))
    assert error is not None and error.message.endswith("may not be written to by this user.")
    assert refusal(PermissionError(errno.EACCES, "no", str(tmp_path / "model.onnx"))) is None
    assert refusal(FileNotFoundError(errno.ENOENT, "no", "x")) is None


def _full(monkeypatch: pytest.MonkeyPatch, full: Path) -> None:
    """As if this folder's file system had no room."""
    monkeypatch.setattr(
        edgepack.system.disk_errors,
        "_status",
        lambda folder: {"free": 0 if folder == full else 1 << 40, "flags": 0},
    )


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("error: unable to open output file 'x.o': 'No space left on device'", 1),
        ("error: unable to build libc: NoSpaceLeft", 1),
        ("LLVM ERROR: IO failure on output stream: No space left on device", -6),
        ("", -7),
        ("error: unexpected end of file", 1),
    ],
)
def test_what_compilers_say_of_a_full_disk_is_understood(
    output: str, code: int, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _full(monkeypatch, places["cache folder"])
    error = blamed(output, code)
    assert error is not None and error.message == f"The cache folder {places['cache folder']} is full."
    assert error.detail == output


@pytest.mark.skipif(os.name != "posix", reason="limits of processes are POSIX's")
def test_a_limit_for_the_size_of_files_is_named(places: dict[str, Path]) -> None:
    code = (
        "import resource, signal; resource.setrlimit(resource.RLIMIT_FSIZE, (9, 9));"
        "signal.signal(signal.SIGXFSZ, {}); f = open({!r}, 'wb', 0); f.write(bytes(9)); f.write(b'x')"
    )
    for handler in ("signal.SIG_DFL", "signal.SIG_IGN"):
        command = [sys.executable, "-c", code.format(handler, str(places["output folder"] / "x"))]
        with pytest.raises(ConfigError, match=r"takes no file of this size \(ulimit -f\)"):
            run_checked(command, what="trying", timeout=60)


def test_that_nothing_can_hold_temporary_files_is_one_sentence(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_get_default_tempdir", none)
    with pytest.raises(ConfigError, match="No folder for temporary files can be written to") as caught:
        edgepack.pack(small_model, "host", tmp_path / "out")
    assert "TMPDIR" in caught.value.hint


def test_a_failure_that_has_nothing_to_do_with_disks_is_not_blamed_on_them(places: dict[str, Path]) -> None:
    assert blamed("error: expected ';'", 1) is None
    assert blamed("sh: ./tool: Permission denied", 126) is None
    with pytest.raises(ToolchainError, match="trying failed"):
        run_checked(["false"], what="trying", timeout=60)


def test_numpy_s_error_without_a_number_is_understood(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refusal(OSError("12 requested and 0 written")) is None
    _full(monkeypatch, places["output folder"])
    error = refusal(OSError("12 requested and 0 written"))
    assert error is not None and error.message == f"The output folder {places['output folder']} is full."


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    with suppress(OSError):
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            yield folder
            subprocess.run(["umount", "-l", str(folder)], check=True)
            return
    pytest.skip("only root can mount file systems, and not everywhere")


def test_a_full_output_is_said_to_be_full(disk: Path, small_model: Path) -> None:
    (disk / "fill").write_bytes(bytes(900 << 10))
    done = fake.run("ok", "pack", small_model, "-o", disk / "out", "-q")
    assert done.returncode == 2, done.stderr
    assert f"edgepack: error: The output folder {disk} is full." in done.stderr
    assert [path.name for path in disk.iterdir()] == ["fill"]


@pytest.mark.parametrize(
    ("what", "said"), [("full", "No space left"), ("read-only", "Read-only file system")]
)
def test_work_goes_on_without_a_cache_that_cannot_be_written(
    what: str, said: str, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEPACK_CACHE_DIR", str(disk / what))
    for name in ("zig", "results-3"):
        (disk / what / name).mkdir(mode=0o700, parents=True)
    if what == "full":
        with suppress(OSError), (disk / "fill").open("wb", buffering=0) as file:
            for _ in range(1 << 10):
                file.write(bytes(1 << 10))
    else:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    results = tmp_path / "results"
    results.mkdir()
    (results / "plan.json").write_text("x" * (1 << 17))
    cache = Cache()
    for work in (lambda: cache_folder("zig") / "x", lambda: cache.store("key", results)):
        with pytest.warns(EdgepackWarning, match=f"the cache {disk / what}/.* is not used: {said}"):
            work()
    (cache_folder("zig") / "file").write_text("x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.store("another key", results)


@pytest.mark.skipif(os.name != "posix", reason="homes are named otherwise elsewhere")
def test_where_the_home_cannot_be_written_zig_has_a_cache_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one it fails, or builds its libraries anew for each file."""
    home = tmp_path / "home"
    home.write_text("no folder")
    for name in ("XDG_CACHE_HOME", "EDGEPACK_CACHE_DIR", "ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    with pytest.warns(EdgepackWarning, match="is not used"):
        environment = resolve(load_device("linux-aarch64"), "zig", None).environment
    for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        (Path(environment[name]) / "file").write_text("x")


def test_a_user_without_a_home_has_a_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("XDG_CACHE_HOME", "EDGEPACK_CACHE_DIR", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert cache_dir().is_relative_to(tempfile.gettempdir())
