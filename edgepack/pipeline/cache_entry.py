"""One entry of the cache: a folder with files, ``entry.json`` (their SHA-256) and ``entry.mac``, the seal.

The seal is an HMAC-SHA-256 (RFC 2104) over the entry's name and ``entry.json``, by a secret that only this
user has: content and digests that were changed together, and an entry that was given another's name, are not
believed. Nothing of an entry is interpreted before its seal was checked.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from edgepack.pipeline.cache_secret import seal
from edgepack.system.files import list_files
from edgepack.system.private_files import OwnFolder, entered, read_own_file

__all__ = ["ENTRY", "check_entry", "read_entry", "write_entry"]

ENTRY = "entry.json"
_MAC = "entry.mac"
_JOB = "job.json"  # holds paths of this machine
_CHUNK = 1 << 20
_LARGEST = 16 << 20  # of entry.json, in bytes


def read_entry(cache: OwnFolder, key: str, directory: Path, secret: bytes) -> None:
    """Copy the files of the entry ``key`` into ``directory``.

    Raises:
        FileNotFoundError: it is not there, or a file of it.
        NotOursError: it, or a file of it, belongs to another user, or others may write to it.
        OSError, ValueError: it is damaged, or was not made with this secret.
    """
    _read(cache, key, directory, secret)


def check_entry(cache: OwnFolder, key: str, secret: bytes) -> None:
    """Check the files of the entry ``key`` where they are; raises as :func:`read_entry`."""
    _read(cache, key, None, secret)


def _read(cache: OwnFolder, key: str, directory: Path | None, secret: bytes) -> None:
    with entered(Path(key), cache) as entry:
        entry.check()
        text = _text(entry, ENTRY, _LARGEST)
        if not hmac.compare_digest(_text(entry, _MAC, 64), seal(secret, key, text)):
            raise ValueError("it was made with another secret")
        sums: Mapping[str, str] = json.loads(text)["files"]
        if not sums:
            raise ValueError("it is empty")
        for name, digest in sums.items():
            parts = _parts(name)
            to = None if directory is None else directory.joinpath(*parts)
            if _digest(entry, parts, to) != digest:
                raise ValueError(f"{name} differs")


def write_entry(cache: OwnFolder, key: str, directory: Path, secret: bytes) -> int:
    """Keep the files in ``directory`` as the entry ``key``: all of it or nothing.

    Returns:
        its bytes; 0 where another process has stored it in the meantime.

    Raises:
        OSError: it cannot be written.
    """
    with cache.hidden(".new-") as new:
        new.make_known("entry")
        with entered(Path("entry"), new) as entry:
            sums = {
                file: _copy_in(entry, file.split("/"), directory / file)
                for file in list_files(directory)
                if file != _JOB
            }
            text = json.dumps({"files": sums}, indent=1).encode()
            _write(entry, ENTRY, text)
            _write(entry, _MAC, seal(secret, key, text))
            nbytes = sum(holder.status(leaf).st_size for _, holder, leaf in entry.files())
        try:
            new.rename("entry", cache, key)
        except OSError:
            cache.status(key)  # is there, from another process
            return 0
    return nbytes


def _parts(name: str) -> list[str]:
    """The names that lead to a file in the entry. Raises ValueError if they lead elsewhere."""
    parts = name.split("/")
    if any(part in {"", ".", ".."} or set(part) & {"\\", ":", "\0"} for part in parts):
        raise ValueError(f"{name!r} is no file of an entry")
    return parts


def _text(folder: OwnFolder, name: str, most: int) -> bytes:
    with read_own_file(folder, name) as descriptor, open(descriptor, "rb", closefd=False) as file:
        text = file.read(most + 1)
    if len(text) > most:
        raise ValueError(f"{name} has more than {most} bytes")
    return text


def _write(folder: OwnFolder, name: str, content: bytes) -> None:
    with os.fdopen(folder.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        file.write(content)


def _digest(entry: OwnFolder, parts: list[str], to: Path | None) -> str:
    """The SHA-256 of a file of the entry, which is copied to ``to`` on the way."""
    digest = hashlib.sha256()
    with ExitStack() as stack:
        folder = entry
        for part in parts[:-1]:
            folder = stack.enter_context(entered(Path(part), folder))
            folder.check()
        descriptor = stack.enter_context(read_own_file(folder, parts[-1]))
        source = stack.enter_context(open(descriptor, "rb", closefd=False))
        copy = None
        if to is not None:
            to.parent.mkdir(parents=True, exist_ok=True)
            copy = stack.enter_context(to.open("wb"))
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            if copy is not None:
                copy.write(chunk)
    return digest.hexdigest()


def _copy_in(entry: OwnFolder, parts: list[str], source: Path) -> str:
    """Copy ``source`` into the entry: its SHA-256."""
    digest = hashlib.sha256()
    with ExitStack() as stack:
        folder = entry
        for part in parts[:-1]:
            folder.make_known(part)
            folder = stack.enter_context(entered(Path(part), folder))
        file = stack.enter_context(source.open("rb"))
        new = os.fdopen(folder.open(parts[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")
        copy = stack.enter_context(new)
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            copy.write(chunk)
    return digest.hexdigest()
