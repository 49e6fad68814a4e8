"""Content-addressed cache of what the worker makes: a second pack of the same model needs no TVM.

An entry (``cache_entry.py``) is a folder named after its key. It is written beside its place and renamed, so
that a reader sees all of it or nothing; on reading, every file is checked, and an entry that is not whole is
forgotten. docs/security.md says against whom it is sealed.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgepack.errors import ConfigError, EdgepackWarning
from edgepack.pipeline import cache_total
from edgepack.pipeline.cache_entry import ENTRY, check_entry, read_entry, write_entry
from edgepack.pipeline.cache_secret import cache_secret
from edgepack.pipeline.compile_job import CompileJob
from edgepack.pipeline.job import ImportJob, QuantiseJob
from edgepack.pipeline.sources import source_digest, whole_digest
from edgepack.pipeline.versions import package_versions
from edgepack.plan.gpu_target import GpuTarget
from edgepack.registry import FRONTENDS
from edgepack.system.deadline import TICK, check_time
from edgepack.system.files import sha256_file
from edgepack.system.paths import cache_dir
from edgepack.system.private_files import (
    NotOursError,
    OwnFolder,
    check_around,
    own_folder,
    private_folder,
)
from edgepack.system.progress import Progress
from edgepack.system.temporary import temporary_folder, try_lock

__all__ = [
    "Cache",
    "cache_limit",
    "compile_key",
    "forget_entry",
    "import_key",
    "lock_entry",
    "objects_key",
    "quantise_key",
    "subgraph_key",
]

#: Bytes that the results may take unless ``EDGEPACK_CACHE_BYTES`` says otherwise.
DEFAULT_LIMIT = 4 << 30


def import_key(job: ImportJob, model_digest: str) -> str:
    """The key of a model's import and recording, in hex: nothing of a target is in it.

    Args:
        job: what is imported; the place of its files does not matter, their content does.
        model_digest: SHA-256 over the model's files.
    """
    what = job.to_json()
    what["model"] = model_digest
    for one in what["custom"]:
        one["source"] = Path(one["source"]).name  # its content is only looked at when the bundle is made
        one["reference"] = sha256_file(Path(one["reference"])) if one["reference"] else ""
    what["expected"] = {name: sha256_file(path) for name, path in job.expected.items()}
    what["inputs"] = {name: sha256_file(path) for name, path in job.inputs.items()}
    return _key(job.task, what, job.frontend)


def quantise_key(job: QuantiseJob, model_digest: str, calibration_digest: str) -> str:
    """The key of a quantised model, in hex.

    Args:
        job: how it is quantised; the place of its files does not matter, their content does.
        model_digest: SHA-256 over the float model's files.
        calibration_digest: that over the files of the calibration data.
    """
    what = job.to_json()
    what["model"], what["calibration"] = model_digest, calibration_digest
    return _key(job.task, what, job.frontend)


def compile_key(job: CompileJob, imported_key: str) -> str:
    """The key of a model's kernels for one target, in hex.

    Args:
        job: what is compiled; texts that it leaves of the way there are none of the results.
        imported_key: :func:`import_key` of what it is compiled from.
    """
    return _key(
        job.task,
        {**replace(job, stages=None).to_json(), "imported": imported_key},
        job.frontend,
        job.target.api if isinstance(job.target, GpuTarget) else "",
    )


def objects_key(version: str, command: Sequence[str], sources: Mapping[str, Mapping[str, str]]) -> str:
    """The key of objects that were compiled from C files, in hex.

    Args:
        version: of the compiler, whose own headers it tells too.
        command: what compiles a file, without folders and files.
        sources: for each file, the digests of those that it is made from.
    """
    return _key("objects", {"version": version, "command": list(command), "files": sources})


def subgraph_key(what: dict[str, Any]) -> str:
    """The key of the library of a subgraph of PyTorch's, in hex.

    Args:
        what: all that decides on it but edgepack itself, as plain data.
    """
    decides = {
        "task": "subgraph",
        **what,
        "versions": package_versions("compile", "onnx"),
        "sources": whole_digest(),
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def _key(task: str, what: dict[str, Any], frontend: str = "", gpu: str = "") -> str:
    """``frontend`` and ``gpu``: what reads the model, and what drives the GPU, where these take part."""
    decides = {
        "task": task,
        **what,
        "frontend": [frontend, FRONTENDS.origin(frontend)],
        "versions": package_versions(task, frontend, gpu),
        "sources": source_digest(task, frontend),
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


class Cache:
    """The results of earlier compilations in ``root``.

    Where it cannot be used (it belongs to another user, others may write to it, there is no secret to seal it
    with, the disk is full), work goes on without it, and an EdgepackWarning says so, once.

    Args:
        root: a folder; made when something is stored.
        limit: bytes; the entries that were not used for longest are dropped beyond it.
    """

    def __init__(self, root: Path | None = None, limit: int | None = None) -> None:
        self.root = (root or cache_dir()) / "results-3"
        self.limit = cache_limit() if limit is None else limit
        self._warned = False

    def fetch(self, key: str, directory: Path) -> bool:
        """Copy the entry's files into ``directory`` and check them; False if there is no whole entry."""
        return self._use(key, lambda root, secret: read_entry(root, key, directory, secret))

    def find(self, key: str) -> Path | None:
        """The entry's folder with its files, which were checked; None if there is no whole entry.

        What is open of them stays readable; but the entry may go at any time, when others need its room.
        """
        if self._use(key, lambda root, secret: check_entry(root, key, secret)):
            return self.root / key
        return None

    @contextmanager
    def opened(self, key: str) -> Iterator[Path | None]:
        """A folder with the entry's files, which were checked, for what opens them by their paths (the system
        loads libraries so), until the block is left; None if there is no whole entry.

        It is the entry's own, as :meth:`find` has it; where another user, or a group, could put something
        else there after the check, it is a copy of what was checked, in a folder of this process.
        """
        try:
            check_around(self.root, group=True)
        except OSError:
            with temporary_folder() as place:
                (copy := place / "entry").mkdir()
                yield copy if self.fetch(key, copy) else None
        else:
            yield self.find(key)

    def forget(self, key: str) -> None:
        """Remove an entry that is of no use here, if it is there and can be removed."""
        with suppress(OSError), own_folder(self.root) as root:
            forget_entry(root, key)

    def _use(self, key: str, read: Callable[[OwnFolder, bytes], None]) -> bool:
        """Whether there is an entry that ``read`` finds whole; another one is forgotten."""
        try:
            with own_folder(self.root) as root:
                return self._read(root, key, read, cache_secret())
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            self._warn(error)
            return False

    def _read(
        self, root: OwnFolder, key: str, read: Callable[[OwnFolder, bytes], None], secret: bytes
    ) -> bool:
        try:
            root.status(key)
        except FileNotFoundError:
            return False
        try:
            read(root, secret)
        except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            if isinstance(error, NotOursError):
                self._warn(error)
            forget_entry(root, key)
            return False
        with suppress(OSError):
            os.utime(self.root / key / ENTRY)  # it was used now
        return True

    def store(self, key: str, directory: Path) -> None:
        """Keep the worker's results in ``directory``; a cache that cannot be written to is no error."""
        try:
            secret = cache_secret()
            with own_folder(private_folder(self.root)) as root:
                root.remove_hidden(".new-", ".old-")
                total = cache_total.add(root, write_entry(root, key, directory, secret))
                if total is None or total > self.limit:
                    cache_total.start(root, self._trim(root, keep=key))
        except OSError as error:
            self._warn(error)

    @contextmanager
    def reserved(self, key: str, progress: Progress) -> Iterator[None]:
        """The body is what makes the entry, in no two processes of this machine at once: the second one waits
        for the first, as long as its own time lasts.

        Raises:
            OutOfTimeError: the time of the whole work is over.
        """
        with ExitStack() as stack:
            try:
                root = stack.enter_context(own_folder(private_folder(self.root)))
                while (lock := lock_entry(root, key)) is None:
                    progress("wait for the same work of another process", "")
                    check_time()
                    time.sleep(TICK)
                stack.callback(os.close, lock)
                stack.callback(_forget_file, root, f".lock-{key}")
            except OSError as error:
                self._warn(error)
            yield

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            reason = error.strerror or error
            text = f"the cache {self.root} is not used: {reason}. EDGEPACK_CACHE_DIR names another folder."
            warnings.warn(text, EdgepackWarning, stacklevel=4)

    def _trim(self, root: OwnFolder, keep: str) -> int:
        """Drop what a killed process left and, where there is more than the limit, the entries that were not
        used for longest until an eighth of it is free: the next stores need no look. The bytes that stay."""
        entries = []
        for entry in self.root.iterdir():
            with suppress(OSError):
                used = (entry / ENTRY if (entry / ENTRY).exists() else entry).stat().st_mtime
                entries.append((used, _bytes_of(entry) if entry.is_dir() else 0, entry))
        newest = max((used for used, _, _ in entries), default=0.0)
        room = self.limit
        if sum(size for _, size, _ in entries) > room:
            room -= room // 8
        total = left = 0
        for used, size, entry in sorted(entries, reverse=True, key=lambda row: row[0]):
            total += size
            abandoned = entry.name.startswith(".") and used < newest - 3600
            if entry.name != keep and (abandoned or total > room):
                forget_entry(root, entry.name)
            else:
                left += size
        return left


def lock_entry(root: OwnFolder, key: str) -> int | None:
    """The descriptor of a lock file of an entry that this process has locked; None where another one has."""
    name = f".lock-{key}"
    lock = root.open(name, os.O_RDWR | os.O_CREAT)
    with suppress(FileNotFoundError):
        if try_lock(lock) and os.path.samestat(os.fstat(lock), root.status(name)):
            return lock  # and it is still the file of this name, which others see
    os.close(lock)
    return None


def _bytes_of(folder: str | os.PathLike[str]) -> int:
    """Of the files below a folder."""
    total = 0
    with os.scandir(folder) as found:
        for one in found:
            total += _bytes_of(one.path) if one.is_dir(follow_symlinks=False) else one.stat().st_size
    return total


def _forget_file(root: OwnFolder, name: str) -> None:
    path, where = root.at(name)
    with suppress(OSError):
        os.unlink(path, **where)


def forget_entry(root: OwnFolder, key: str) -> None:
    """Remove an entry of the open folder ``root`` such that nobody meets half of it."""
    with suppress(OSError), root.hidden(".old-") as grave:
        root.rename(key, grave, "entry")


def cache_limit() -> int:
    """Bytes that the results may take: ``EDGEPACK_CACHE_BYTES``, or :data:`DEFAULT_LIMIT`. Raises ConfigError
    for a value that is no number of bytes."""
    text = os.environ.get("EDGEPACK_CACHE_BYTES", "")
    if not text:
        return DEFAULT_LIMIT
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise ConfigError(
            f"EDGEPACK_CACHE_BYTES is {text!r}, which is no number of bytes.",
            hint="Give a whole number, or unset it.",
        )
    return value
