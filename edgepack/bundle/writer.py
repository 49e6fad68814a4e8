"""Writes a folder as one act: made in a hidden folder beside its destination, then renamed into place.

Whatever ends the process in between, the destination is either what it was or complete. An error, SIGINT
or (with the CLI's handler) SIGTERM leaves nothing; what SIGKILL or a power cut leaves is removed by the
next write beside it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from edgepack.bundle.layout import MANIFEST
from edgepack.errors import ConfigError

__all__ = ["Workplace", "check_destination", "normalise_modes", "workplace"]

_MARK = ".edgepack-"
_LOCK = "lock"
_DESTINATION = "destination"
# A folder without a lock file is one that is being made just now, unless it is this old (seconds).
_GRACE = 60.0


@dataclass(frozen=True)
class Workplace:
    """Folders beside the destination: ``bundle`` becomes it, ``job`` is for the worker, ``build`` for
    objects."""

    root: Path
    destination: Path

    @property
    def bundle(self) -> Path:
        """What will be renamed to the destination."""
        return self.root / "bundle"

    @property
    def job(self) -> Path:
        """The worker's folder."""
        return self.root / "job"

    @property
    def build(self) -> Path:
        """For objects and other intermediate files."""
        return self.root / "build"

    def publish(self, *, force: bool) -> None:
        """Put ``bundle`` in the destination's place.

        Raises:
            ConfigError: the destination appeared in the meantime and ``force`` is false, or cannot be
            written.
        """
        check_destination(self.destination, force=force)
        old = self.root / "old"
        try:
            if self.destination.exists():
                self.destination.rename(old)
            try:
                self.bundle.rename(self.destination)
            except BaseException:
                with suppress(OSError):
                    old.rename(self.destination)
                raise
        except OSError as error:
            raise ConfigError(
                f"{self.destination} cannot be written: {error.strerror or error}.",
                hint="Choose another folder with --output.",
            ) from error


def check_destination(destination: Path, *, force: bool, model: Path | None = None) -> None:
    """Refuse a destination that must not be replaced.

    Raises:
        ConfigError: it is a file; or exists and ``force`` is false; or is, with ``force``, no bundle or holds
            the model.
    """
    if not os.path.lexists(destination):
        return
    if not destination.is_dir():
        raise ConfigError(
            f"{destination} exists and is not a folder.", hint="Choose another folder with --output."
        )
    if not any(destination.iterdir()):
        return
    if not force:
        raise ConfigError(
            f"{destination} exists.", hint="Replace it with --force, or choose another folder with --output."
        )
    if not (destination / MANIFEST).is_file():
        raise ConfigError(
            f"{destination} is not a bundle; --force replaces only bundles.",
            hint="Remove it yourself, or choose another folder with --output.",
        )
    if model is not None and destination.resolve() in model.resolve().parents:
        raise ConfigError(
            f"{destination} holds the model {model.name} and would be replaced with it.",
            hint="Choose another folder with --output.",
        )


@contextmanager
def workplace(destination: Path) -> Iterator[Workplace]:
    """A :class:`Workplace` for ``destination``, removed with all that is left in it at the end.

    Raises:
        ConfigError: the folder of the destination cannot be made or written to.
    """
    parent = destination.parent
    made = [folder for folder in (parent, *parent.parents) if not folder.exists()]
    try:
        parent.mkdir(parents=True, exist_ok=True)
        clean_up(parent)
        root = Path(tempfile.mkdtemp(prefix=f".{destination.name[:40]}{_MARK}", dir=parent))
    except OSError as error:
        raise ConfigError(
            f"{parent} cannot be written: {error.strerror or error}.",
            hint="Choose another folder with --output.",
        ) from error
    lock: IO[bytes] | None = None
    place = Workplace(root, destination)
    try:
        lock = (root / _LOCK).open("wb")
        _try_lock(lock)
        (root / _DESTINATION).write_text(destination.name, encoding="utf-8")
        for folder in (place.bundle, place.job, place.build):
            folder.mkdir()
        yield place
    finally:
        if lock is not None:
            lock.close()
        _rescue(place.root, destination)
        shutil.rmtree(root, ignore_errors=True)
        if not destination.exists():
            for folder in made:
                with suppress(OSError):
                    folder.rmdir()


def clean_up(parent: Path) -> None:
    """Remove what killed processes left in ``parent``; a folder whose process lives is left alone."""
    for root in parent.glob(f".*{_MARK}*"):
        with suppress(OSError):
            if not root.is_dir() or root.is_symlink() or _in_use(root):
                continue
            _rescue(root, None)
            shutil.rmtree(root, ignore_errors=True)


def normalise_modes(root: Path, executables: set[str]) -> None:
    """Modes that do not depend on the umask: 755 for folders and ``executables``, 644 for other files."""
    for path in [root, *root.rglob("*")]:
        name = path.relative_to(root).as_posix()
        path.chmod(0o755 if path.is_dir() or name in executables else 0o644)


def _rescue(root: Path, destination: Path | None) -> None:
    """Put a replaced bundle back if the new one did not get to its place."""
    old = root / "old"
    if not old.is_dir():
        return
    if destination is None:
        with suppress(OSError, ValueError):
            destination = root.parent / (root / _DESTINATION).read_text(encoding="utf-8")
    if destination is not None and not destination.exists():
        with suppress(OSError):
            old.rename(destination)


def _in_use(root: Path) -> bool:
    lock = root / _LOCK
    if not lock.exists():
        return time.time() - root.stat().st_mtime < _GRACE
    with lock.open("r+b") as file:
        return not _try_lock(file)


def _try_lock(file: IO[bytes]) -> bool:
    """Whether this process got the lock, which the system releases when the process ends."""
    try:
        import fcntl
    except ImportError:
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
