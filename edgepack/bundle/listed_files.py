"""The files that a bundle's manifest lists, as somebody else may have put them there: a pipe is not waited
for, a device or a file without end is not read, a link that leads out is not followed."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Collection
from pathlib import Path

from edgepack.bundle.manifest import FileRecord, Manifest
from edgepack.bundle.paths import inside
from edgepack.errors import CheckFailedError

__all__ = ["copy_listed", "find_damage"]

_CHUNK = 1 << 20
_HINT = "Pack the model again, or copy the bundle again."


def find_damage(root: Path, record: FileRecord, take: Callable[[bytes], object] | None = None) -> str:
    """What is wrong with a file of the bundle in the folder ``root``, in words; "" where it has the size and
    the digest that ``record`` says. No more than that many bytes are read.

    Args:
        take: called with each piece of the content, also of one that turns out to be another.

    Raises:
        ConfigError: it lies outside of the bundle, perhaps behind a link.
        OSError: raised by ``take``.
    """
    path = inside(root, record.path)
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if path.is_dir():  # what stands there instead of a file; Python opens none as a stream
        return "not a regular file"
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    digest, left = hashlib.sha256(), record.nbytes
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            return "not a regular file"
        if found.st_size != record.nbytes:
            return f"has {found.st_size} bytes, {record.nbytes} were packed"
        while left:
            try:
                piece = file.read(min(_CHUNK, left))
            except OSError as error:
                return f"cannot be read: {error.strerror or error}"
            if not piece:
                return "differs from its checksum"
            digest.update(piece)
            left -= len(piece)
            if take is not None:
                take(piece)
    return "" if digest.hexdigest() == record.sha256 else "differs from its checksum"


def copy_listed(root: Path, manifest: Manifest, target: Path, without: Collection[str] = ()) -> None:
    """Copy the files of a bundle that its manifest lists, and nothing else that lies there, as regular files.
    ``manifest.json`` and ``SHA256SUMS`` are not among them.

    Args:
        root: the bundle's folder.
        target: a folder, which is made.
        without: top folders and files that are left out.

    Raises:
        CheckFailedError: a file has another size or digest than the manifest says, or is no file.
        ConfigError: one lies outside of the bundle, perhaps behind a link.
        OSError: ``target`` cannot be written.
    """
    target.mkdir()
    for record in manifest.files:
        if record.path in without or record.path.partition("/")[0] in without:
            continue
        place = inside(target, record.path)
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("xb") as file:
            damage = find_damage(root, record, file.write)
        if damage:
            raise CheckFailedError(f"{root} is damaged: {record.path}: {damage}.", hint=_HINT)
        executable = inside(root, record.path).stat().st_mode & 0o100
        place.chmod(0o755 if executable else 0o644)
