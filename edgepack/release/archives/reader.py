"""Reads a file from end to end, with the archives in it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from edgepack.release.archives.ar import read_ar
from edgepack.release.archives.kinds import Kind, kind_of
from edgepack.release.archives.oci import LAYOUT, check_layout
from edgepack.release.archives.policy import Budget, Where
from edgepack.release.archives.source import Member, Source
from edgepack.release.archives.streams import FORMATS, expand
from edgepack.release.archives.tar import read_tar
from edgepack.release.archives.zip import read_zip

__all__ = ["check_archive"]

_READERS: dict[Kind, Callable[[Source, Where], Iterator[Member]]] = {
    "tar": read_tar,
    "zip": read_zip,
    "ar": read_ar,
}


def check_archive(path: Path) -> int:
    """Read an archive from end to end, and what is in it.

    Returns:
        how many files are in it, those in archives in it counted too; 0 for a file that is no archive.

    Raises:
        CheckFailedError: it is damaged, would do harm, is of a kind that is not read here, or is unpacked to
            different files by different tools; with the entry.
    """
    size = path.stat().st_size
    where = Where(path.name, Budget(path.name, size))
    with path.open("rb") as file:
        try:
            return _look(Source(file, 0, size), where)
        except (OSError, ValueError, struct.error, MemoryError) as error:
            raise where.unsafe(f"it cannot be read: {error}") from error


def _look(source: Source, where: Where) -> int:
    """How many files are in it."""
    kind = kind_of(source, where)
    if kind is None:
        return 0
    if kind in FORMATS:
        with expand(source, kind, where) as content:
            return _look(content, where.inside(""))
    count, files = 0, {}
    for member in _READERS[kind](source, where):
        count += 1 + _look(member.content, where.inside(member.name))
        if kind == "tar":
            files[member.name.removeprefix("./")] = member.content
    if not count and where.top:
        raise where.unsafe("there is no file in it")
    if LAYOUT in files:
        check_layout(files, where)
    return count
