"""What the cache folder holds, by kind, and how it is made smaller.

Only what edgepack writes there is counted as its own and removed: in folders of its names that belong to this
user alone, reached without following links. An entry that a process is making, and the compiler's cache while
a process may start the compiler, stay.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from edgepack.errors import ConfigError
from edgepack.pipeline.cache import Cache, forget_entry, lock_entry
from edgepack.pipeline.cache_entry import ENTRY
from edgepack.pipeline.compiler_cache import COMPILER_CACHE, compiler_cache_limit, empty, folder_size
from edgepack.system.log import is_log
from edgepack.system.paths import cache_dir
from edgepack.system.private_files import OwnFolder, entered, own_folder, read_own_file

__all__ = ["KINDS", "CacheEntry", "CacheKind", "Removed", "cache_entries", "cache_kinds", "remove"]

Kind = Literal["results", "compiler", "logs", "seals", "boards", "wine"]

#: By kind: its folder. What is not of these is not edgepack's, or of an older version, and stays.
KINDS: dict[Kind, str] = {
    "results": "results-3",
    "compiler": COMPILER_CACHE,
    "logs": "logs",
    "seals": "releases-1",
    "boards": "boards-1",
    "wine": "wine",
}
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LARGEST = 16 << 20  # of entry.json, in bytes
_DAY = 86_400.0


@dataclass(frozen=True)
class CacheKind:
    """What one kind takes.

    Attributes:
        kind: one of :data:`KINDS`, or "other" for what is not edgepack's.
        folder: its path.
        nbytes: of all files.
        entries: results, logs, seals or notes; of the others files.
        limit: bytes that it may take; None where it is bounded by number, or not at all.
    """

    kind: str
    folder: Path
    nbytes: int
    entries: int
    limit: int | None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "folder": str(self.folder)}


@dataclass(frozen=True)
class CacheEntry:
    """A result.

    Attributes:
        key: its name.
        kind: ``model`` (imported and recorded), ``kernels`` (of a model, for a device), ``objects`` (of C) or
            ``subgraph`` (of PyTorch's, for this machine).
        nbytes: of its files.
        used: when it was last used, in seconds since 1970.
        locked: whether a process is making it.
    """

    key: str
    kind: str
    nbytes: int
    used: float
    locked: bool

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Removed:
    """What was removed of a kind.

    Attributes:
        kind: one of :data:`KINDS`.
        nbytes: of what was removed.
        entries: as in :class:`CacheKind`.
        kept: why something stayed that should have gone, as a sentence; "" where nothing did.
    """

    kind: str
    nbytes: int
    entries: int
    kept: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def cache_kinds() -> list[CacheKind]:
    """What each kind takes, then what is none of them."""
    limits = {"results": Cache().limit, "compiler": compiler_cache_limit()}
    found = []
    for kind, name in KINDS.items():
        folder = cache_dir() / name
        nbytes, files, _ = folder_size(folder)
        number = len(cache_entries()) if kind == "results" else files
        found.append(CacheKind(kind, folder, nbytes, number, limits.get(kind)))
    nbytes = number = 0
    with suppress(OSError):
        for path in sorted(cache_dir().iterdir()):
            if path.name not in KINDS.values():
                size = folder_size(path) if path.is_dir() else (path.lstat().st_size, 1, 0.0)
                nbytes, number = nbytes + size[0], number + size[1]
    return [*found, CacheKind("other", cache_dir(), nbytes, number, None)] if number else found


def cache_entries() -> list[CacheEntry]:
    """The results, those that were not used for longest first."""
    found = []
    with _opened(KINDS["results"]) as folder:
        names = folder.names() if folder is not None else []
        for name in filter(_DIGEST.fullmatch, names):
            assert folder is not None
            with suppress(OSError):
                found.append(_entry(folder, name))
    return sorted(found, key=lambda one: (one.used, one.key))


def _entry(folder: OwnFolder, key: str) -> CacheEntry:
    with entered(Path(key), folder) as entry:
        nbytes = sum(holder.status(leaf).st_size for _, holder, leaf in entry.files())
        used = entry.status(ENTRY).st_mtime if ENTRY in entry.names() else entry.own().st_mtime
        kind = _kind(entry)
    return CacheEntry(key, kind, nbytes, used, _is_locked(folder, key))


def _kind(entry: OwnFolder) -> str:
    """The kind of an entry, by the names of its files; nothing else of it is believed."""
    try:
        with read_own_file(entry, ENTRY) as file:
            files = set(json.loads(os.read(file, _LARGEST))["files"])
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return "damaged"
    if "recorded/recorded.json" in files:
        return "model"
    if "subgraph.json" in files:
        return "subgraph"
    return "kernels" if "params.bin" in files else "objects"


def _is_locked(folder: OwnFolder, key: str) -> bool:
    try:
        folder.status(f".lock-{key}")
    except OSError:
        return False
    lock = lock_entry(folder, key)
    if lock is None:
        return True
    os.close(lock)
    return False


def remove(
    kinds: Collection[str], *, most: int | None = None, older_than: float | None = None
) -> list[Removed]:
    """Remove what is in the cache.

    Args:
        kinds: of what.
        most: bytes that each kind may keep, of what was used last; 0 for nothing. None: no matter.
        older_than: days; what was used since then stays. None: no matter.
    """
    before = None if older_than is None else time.time() - older_than * _DAY
    done = []
    for kind in KINDS:
        if kind not in kinds:
            continue
        if kind == "results":
            done.append(_remove_results(most, before))
        elif kind in ("logs", "seals", "boards"):
            ours = is_log if kind == "logs" else lambda name: _DIGEST.fullmatch(name) is not None
            done.append(_remove_files(kind, ours, most, before))
        else:
            done.append(_remove_whole(kind, most, before))
    return done


def _surplus(found: Sequence[tuple[float, int]], most: int | None, before: float | None) -> list[bool]:
    """Which of the things that were used at a time and have a size go: the oldest first."""
    left = sum(size for _, size in found)
    goes = []
    for used, size in found:
        old = before is None or used < before
        large = most is None or left > most
        goes.append(old and large)
        left -= size if goes[-1] else 0
    return goes


def _remove_results(most: int | None, before: float | None) -> Removed:
    entries = cache_entries()
    goes = _surplus([(one.used, one.nbytes) for one in entries], most, before)
    chosen = [one for one, go in zip(entries, goes, strict=True) if go]
    with _opened(KINDS["results"]) as folder:
        for one in chosen:
            if folder is not None and not one.locked:
                forget_entry(folder, one.key)
    locked = sum(one.locked for one in chosen)
    gone = [one for one in chosen if not one.locked]
    kept = f"{locked} of them stay: a process is making them." if locked else ""
    return Removed("results", sum(one.nbytes for one in gone), len(gone), kept)


def _remove_files(kind: Kind, ours: Callable[[str], bool], most: int | None, before: float | None) -> Removed:
    with _opened(KINDS[kind]) as folder:
        if folder is None:
            return Removed(kind, 0, 0)
        status = {name: folder.status(name) for name in folder.names() if ours(name)}
        names = sorted(status, key=lambda name: status[name].st_mtime)
        goes = _surplus([(status[name].st_mtime, status[name].st_size) for name in names], most, before)
        chosen = [name for name, go in zip(names, goes, strict=True) if go]
        for name in chosen:
            folder.remove(name)
    return Removed(kind, sum(status[name].st_size for name in chosen), len(chosen))


def _remove_whole(kind: Kind, most: int | None, before: float | None) -> Removed:
    """The compiler's cache, and Wine's folders: all of it, or nothing."""
    path = cache_dir() / KINDS[kind]
    nbytes, files, newest = folder_size(path)
    if not files or not _surplus([(newest, nbytes)], most, before)[0]:
        return Removed(kind, 0, 0)
    try:
        if not empty(path):
            return Removed(kind, 0, 0, "It stays: a process that may use it is running.")
    except OSError as error:
        raise ConfigError(f"{path} is left as it is: {error.strerror or error}.") from error
    left, some, _ = folder_size(path)
    return Removed(kind, nbytes - left, files - some)


@contextmanager
def _opened(name: str) -> Iterator[OwnFolder | None]:
    """A folder of the cache that is this user's alone; None where it is not there. Raises ConfigError where
    others may write to it, or it is a link."""
    path = cache_dir() / name
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(own_folder(path)) if os.path.lexists(path) else None
        except OSError as error:
            raise ConfigError(
                f"{path} is left as it is: {error.strerror or error}.",
                hint="Look whose it is; EDGEPACK_CACHE_DIR names another folder.",
            ) from error
        yield folder
