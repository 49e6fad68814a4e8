"""Archives whose bytes depend on their entries alone: no time, user, umask or order of a folder gets in.

Entries come sorted by name; times are ``SOURCE_DATE_EPOCH`` or the first that a zip can hold, 1980-01-01
(https://reproducible-builds.org/docs/archives/); owners are 0, modes 0644 or 0755. zlib's level is fixed;
another version of zlib may compress to other bytes.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
import time
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from edgepack.errors import ConfigError

__all__ = ["Entry", "bundle_entries", "epoch", "write_tar", "write_tar_gz", "write_zip"]

#: 1980-01-01 00:00 UTC, where zip's times begin; and where they end.
_FIRST, _LAST = 315532800, 4354819198
_LEVEL = 6
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Entry:
    """A file of an archive.

    Attributes:
        name: relative path with ``/``.
        data: the content, or the file that holds it.
        executable: whether its mode is 0755.
    """

    name: str
    data: bytes | Path
    executable: bool = False

    def below(self, folder: str) -> Entry:
        """The same in a folder."""
        return replace(self, name=f"{folder}/{self.name}")

    def open(self) -> IO[bytes]:
        """The content as a stream."""
        return io.BytesIO(self.data) if isinstance(self.data, bytes) else self.data.open("rb")

    @property
    def size(self) -> int:
        """Bytes of the content."""
        return len(self.data) if isinstance(self.data, bytes) else self.data.stat().st_size


def epoch() -> int:
    """Seconds since 1970 that archives have as their files' time, by ``SOURCE_DATE_EPOCH`` where that is set.

    Raises:
        ConfigError: it is no whole number of seconds.
    """
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not text:
        return _FIRST
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise ConfigError(
            f"SOURCE_DATE_EPOCH is {text!r}.", hint="Set it to seconds since 1970, or unset it."
        )
    return min(max(int(text), _FIRST), _LAST)


def _in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Sorted by name.

    Raises:
        ValueError: a name leaves the archive, or there are two entries of one name.
    """
    ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        parts = entry.name.split("/")
        if any(part in ("", ".", "..") for part in parts) or "\\" in entry.name or ":" in parts[0]:
            raise ValueError(f"{entry.name!r} is no path in an archive")
    if len({entry.name for entry in ordered}) != len(ordered):
        raise ValueError("two entries of one name")
    return ordered


def write_tar(file: IO[bytes] | gzip.GzipFile, entries: Iterable[Entry]) -> None:
    """A tar archive in GNU's format, without entries for folders."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for entry in _in_order(entries):
            info = tarfile.TarInfo(entry.name)
            info.size, info.mtime = entry.size, epoch()
            info.mode = 0o755 if entry.executable else 0o644
            with entry.open() as content:
                archive.addfile(info, content)


def write_tar_gz(path: Path, entries: Iterable[Entry]) -> None:
    """A gzipped tar archive."""
    with path.open("wb") as raw, gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as file:
        write_tar(file, entries)


def write_zip(path: Path, entries: Iterable[Entry], *, stored: bool = False) -> None:
    """A zip archive with modes that ``unzip`` restores; ``stored`` leaves the contents uncompressed."""
    method = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    when = time.gmtime(epoch())[:6]
    with zipfile.ZipFile(path, "w", method, compresslevel=_LEVEL) as archive:
        for entry in _in_order(entries):
            info = zipfile.ZipInfo(entry.name, when)
            info.create_system, info.compress_type = 3, method
            info.external_attr = (0o100755 if entry.executable else 0o100644) << 16
            info.file_size = entry.size
            with entry.open() as content, archive.open(info, "w") as out:
                while chunk := content.read(_CHUNK):
                    out.write(chunk)


def bundle_entries(root: Path, paths: Iterable[str], prefix: str) -> list[Entry]:
    """Files of a folder below ``prefix/``, executable where they are in the folder."""
    return [
        Entry(f"{prefix}/{path}", root / path, bool((root / path).stat().st_mode & 0o100)) for path in paths
    ]
