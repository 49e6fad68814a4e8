"""What is said to be safe is what tools unpack: the same files, inside the folder, and nothing else.

Archives are changed by numbers (``mutations.py``). Where ``check_archive`` says that one is safe, every tool
that takes the kind unpacks the files that were checked; where it says that there is none, none unpacks
anything.
"""

from __future__ import annotations

import os
import resource
import shutil
import stat
import subprocess
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgepack.errors import CheckFailedError
from edgepack.release.archives import check_archive
from edgepack.release.archives.ar import read_ar
from edgepack.release.archives.kinds import kind_of
from edgepack.release.archives.policy import Budget, Where
from edgepack.release.archives.source import Source
from edgepack.release.archives.streams import FORMATS, expand
from edgepack.release.archives.tar import read_tar
from edgepack.release.archives.zip import read_zip
from tests.release.archives.mutations import case

Files = dict[str, bytes]
_READERS = {"tar": read_tar, "zip": read_zip, "ar": read_ar}
_ENVIRONMENT = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}
#: One of so many archives that are safe zips is given to jar, which takes half a second.
_JAR = 15


def _limits() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))


def _program(*command: str) -> Callable[[Path, Path], None]:
    def unpack(archive: Path, folder: Path) -> None:
        options = [str(archive) if one == "ARCHIVE" else one for one in command]
        subprocess.run(
            options,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=60,
            env=_ENVIRONMENT,
            preexec_fn=_limits,
        )

    return unpack


def _tarfile(archive: Path, folder: Path) -> None:
    trusting: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}
    try:
        with tarfile.open(archive) as opened:
            opened.extractall(folder, **trusting)
    except (tarfile.TarError, OSError, EOFError, ValueError, KeyError, RecursionError):
        pass


def _zipfile(archive: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(folder)
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, KeyError, RuntimeError):
        pass


_TOOLS: dict[str, Callable[[Path, Path], None]] = {
    "tar": _program("tar", "-xf", "ARCHIVE"),
    "bsdtar": _program("bsdtar", "-xf", "ARCHIVE"),
    "unzip": _program("unzip", "-qq", "-n", "ARCHIVE"),
    "jar": _program("jar", "xf", "ARCHIVE"),
    "tarfile": _tarfile,
    "zipfile": _zipfile,
}
_TAKES = {
    "tar": ("tar", "bsdtar", "tarfile"),
    "zip": ("unzip", "bsdtar", "zipfile", "jar"),
    "ar": ("bsdtar",),
}


def _missing(tool: str) -> bool:
    return tool not in ("tarfile", "zipfile") and shutil.which(tool) is None


def _seen(source: Source, where: Where) -> tuple[str, Files]:
    """The kind below compression, and the files as they were checked; "" for no archive."""
    kind = kind_of(source, where)
    if kind in FORMATS:
        with expand(source, kind, where) as content:
            inner, files = _seen(content, where)
            return (f"compressed {inner}" if inner and inner != "tar" else inner), files
    if kind is None:
        return "", {}
    members = _READERS[kind](source, where)
    return kind, {one.name.removeprefix("./"): one.content.read(0, one.content.size) for one in members}


def _unpacked(folder: Path) -> Files:
    """The regular files; an AssertionError for anything else but folders and links that stay inside."""
    found: Files = {}
    for place, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(place, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                assert Path(os.path.realpath(path)).is_relative_to(folder), f"{path} leads out"
                continue
            assert not mode & 0o6002, f"{path} has the mode {mode:o}"
            path.chmod(0o700)
            if stat.S_ISREG(mode):
                found[path.relative_to(folder).as_posix()] = path.read_bytes()
            else:
                assert stat.S_ISDIR(mode), f"{path} is neither file nor folder"
    return found


def _run(tool: str, archive: Path, root: Path) -> Files:
    """What a tool unpacks, deep in a folder in which nothing else appears."""
    folder = root / "1" / "2" / "3"
    folder.mkdir(parents=True)
    try:
        _TOOLS[tool](archive, folder)
        for deep in (root, root / "1", root / "1" / "2"):
            assert len(list(deep.iterdir())) == 1, f"{tool} wrote beside its folder"
        assert not Path("/edgepack-evil").exists()
        return _unpacked(folder.resolve())
    finally:
        shutil.rmtree(root)


def _compare(number: int, folder: Path, jar: bool) -> str:
    """What was said of an archive; an AssertionError where a tool does otherwise."""
    archive = folder / "archive"
    archive.write_bytes(case(number))
    try:
        count = check_archive(archive)
    except CheckFailedError:
        return "refused"
    with archive.open("rb") as file:
        source = Source(file, 0, archive.stat().st_size)
        kind, files = _seen(source, Where("archive", Budget("archive", source.size)))
    assert bool(count) == bool(kind) == bool(files)
    base = kind.removeprefix("compressed ")
    for tool in _TOOLS:
        if _missing(tool) or (tool == "jar" and not (jar and kind == "zip")):
            continue
        takes = tool in _TAKES.get(base, ()) and (kind == base or tool == "bsdtar")
        if kind and not takes:
            continue
        got = _run(tool, archive, folder / "root")
        if tool == "bsdtar" and base == "ar":  # the tables of a library
            got = {
                name: data for name, data in got.items() if name in files or not name.startswith("__.SYMDEF")
            }
        words = tool == "bsdtar" and not kind and not any(got.values())  # a list of words is an mtree to it
        assert got == files or words, (
            f"{tool} unpacks {sorted(got)} of {kind or 'no archive'}, not {sorted(files)}"
        )
    return kind or "no archive"


def _sweep(numbers: range, folder: Path) -> Counter[str]:
    """How often what was said. All that fails is shown."""
    said: Counter[str] = Counter()
    wrong = []
    for number in numbers:
        try:
            found = _compare(number, folder, jar=said["zip"] % _JAR == 0)
        except Exception as error:
            wrong.append(f"{number}: {type(error).__name__}: {error}"[:300])
            continue
        said[found] += 1
    assert not wrong, f"{len(wrong)} of {len(numbers)}:\n" + "\n".join(wrong[:40])
    return said


def test_tools_unpack_what_was_checked(tmp_path: Path) -> None:
    said = _sweep(range(150), tmp_path)
    assert all(said[kind] for kind in ("tar", "zip", "ar", "no archive", "refused")), said


@pytest.mark.slow
def test_tools_unpack_what_was_checked_in_20000_archives(tmp_path: Path) -> None:
    said = _sweep(range(20_000), tmp_path)
    print(dict(said))
    assert said["tar"] > 1000 and said["zip"] > 1000, said
