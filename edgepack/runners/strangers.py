"""Files for another user: what a sandbox of root's shows to the one that its program becomes."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from edgepack.errors import ToolchainError
from edgepack.system.temporary import temporary_folder

__all__ = ["STRANGER", "reachable", "readable_paths"]

#: The user, and the group, that owns nothing: what the kernel shows for those that it does not know.
STRANGER = 65534

#: Names that Windows, where there is no sandbox, does not have.
_FLAGS = [getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC")]


@contextmanager
def readable_paths(paths: list[Path], *, by_path: bool) -> Iterator[list[Path]]:
    """Each file or folder itself, or a copy in a temporary folder where others may not read all of it.

    Symbolic links in a folder are copied as links, and what is neither file nor folder is left out: a copy
    holds nothing that is not in the folder.

    Args:
        paths: absolute, without symbolic links.
        by_path: the other user goes to them by their paths, so that the folders around them count too;
            otherwise root has opened them.

    Raises:
        ToolchainError: a copy cannot be made.
    """
    with ExitStack() as stack:
        found: list[Path] = []
        for path in paths:
            if _open_to_others(path) and not (by_path and not reachable(path)):
                found.append(path)
                continue
            try:
                folder = stack.enter_context(temporary_folder())
                if by_path:
                    os.chown(folder, -1, STRANGER)
                    folder.chmod(0o750)
                _copy(path, folder / "copy")
            except OSError as error:
                raise ToolchainError(
                    f"The program of a sandbox is not root, and {path} cannot be copied for it: "
                    f"{error.strerror or error}.",
                    hint="Let other users read it (chmod -R o+rX), or set TMPDIR to a folder with more room.",
                ) from error
            found.append(folder / "copy")
        yield found


def reachable(path: Path) -> bool:
    """Whether other users may go through all folders around it."""
    try:
        return all(folder.stat().st_mode & stat.S_IXOTH for folder in path.parents)
    except OSError:
        return False


def _open_to_others(path: Path) -> bool:
    """Whether other users may read a file, or a folder and all files in it, and run those that its owner
    may run."""
    if not path.is_dir():
        return _allows_others(path.stat().st_mode)
    unread: list[OSError] = []
    for _root, _folders, files, folder in os.fwalk(path, onerror=unread.append):
        if not _allows_others(os.fstat(folder).st_mode):
            return False
        for name in files:
            about = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(about.st_mode) and not _allows_others(about.st_mode):
                return False
    return not unread


def _allows_others(mode: int) -> bool:
    wanted = stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR or stat.S_ISDIR(mode) else 0)
    return mode & wanted == wanted


def _copy(path: Path, to: Path) -> None:
    if path.is_dir():
        _copy_folder(path, to)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        _copy_file(path.name, folder, to)
    finally:
        os.close(folder)


def _copy_folder(path: Path, to: Path) -> None:
    """Copies by the folders' descriptors, so that nobody puts a link to another file in between."""
    for root, folders, files, folder in os.fwalk(path):
        there = to / Path(root).relative_to(path)
        there.mkdir()
        there.chmod(0o755)
        for name in (*folders, *files):
            kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if stat.S_ISLNK(kind):
                (there / name).symlink_to(os.readlink(name, dir_fd=folder))
            elif stat.S_ISREG(kind):
                _copy_file(name, folder, there / name)


def _copy_file(name: str, folder: int, to: Path) -> None:
    with os.fdopen(os.open(name, os.O_RDONLY | sum(_FLAGS), dir_fd=folder), "rb") as source:
        mode = os.fstat(source.fileno()).st_mode
        if not stat.S_ISREG(mode):
            return
        with to.open("xb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    to.chmod(0o755 if mode & stat.S_IXUSR else 0o644)
