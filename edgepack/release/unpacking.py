"""Whether an archive can be unpacked without harm: nothing in it leads out of its folder, is a device, takes
the place of something else, or grows without end. Nothing is written.

Archives are known by their first bytes: tar (plain or gzip, bzip2, xz), zip (wheels, AARs, jars) and ar
(Debian packages); archives in archives are looked into too.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import posixpath
import stat
import struct
import tarfile
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PureWindowsPath
from typing import IO, Any, cast

from edgepack.errors import CheckFailedError

__all__ = ["check_archive"]

_DEEPEST = 3
_LONGEST = 1024
_MOST_ENTRIES = 100_000
_CHUNK = 1 << 20
#: Bytes of an archive in an archive that are held in memory; of a larger one, in a file without a name.
_IN_MEMORY = 64 << 20
#: What is in an archive may take so many times its bytes, and this on top.
_RATIO, _FREE = 100, 64 << 20
_AR = b"!<arch>\n"
_COMPRESSED: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}


def check_archive(path: Path) -> int:
    """Read an archive from end to end.

    Returns:
        how many files are in it, those in archives in it counted too; 0 for a file that is no archive.

    Raises:
        CheckFailedError: it is damaged, or would do harm; with the entry.
    """
    budget = _Budget(path.name, _FREE + _RATIO * path.stat().st_size)
    with path.open("rb") as file:
        try:
            return _check(file, path.name, budget, 0)
        except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
            raise _unsafe(path.name, f"it cannot be read: {error}") from error
        except (lzma.LZMAError, struct.error, NotImplementedError, RuntimeError, MemoryError) as error:
            raise _unsafe(path.name, f"it cannot be read: {error}") from error


class _Budget:
    """How much may still come out of an archive."""

    def __init__(self, name: str, nbytes: int) -> None:
        self._name, self._bytes, self._entries = name, nbytes, _MOST_ENTRIES

    def entry(self) -> None:
        self._entries -= 1
        if self._entries < 0:
            raise _unsafe(self._name, f"it has more than {_MOST_ENTRIES} entries")

    def take(self, nbytes: int) -> None:
        self._bytes -= nbytes
        if self._bytes < 0:
            raise _unsafe(self._name, f"it unpacks to more than {_RATIO} times its size")


class _Names:
    """The entries of one archive, as they would take their places."""

    def __init__(self, archive: str) -> None:
        self._archive = archive
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        self._links: dict[str, str] = {}

    def add(self, name: str, kind: str, target: str = "") -> None:
        """A file, folder or symbolic link."""
        plain = name.removeprefix("./").removesuffix("/")
        if plain in ("", "."):
            return
        self._check(plain, name)
        key = _place(plain)
        if key in self._files or key in self._links or (kind != "folder" and key in self._folders):
            raise _unsafe(self._archive, f"two entries take the place {name!r}")
        if kind == "folder":
            self._folders[key] = plain
        elif kind == "link":
            self._check_target(plain, target)
            self._links[key] = plain
        else:
            self._files[key] = plain

    def end(self) -> None:
        """All entries were added: no file lies in another one, or behind a link."""
        for name in (*self._files.values(), *self._folders.values(), *self._links.values()):
            parent = posixpath.dirname(name)
            while parent:
                if _place(parent) in self._links or _place(parent) in self._files:
                    raise _unsafe(self._archive, f"{name!r} lies in {parent!r}, which is no folder")
                parent = posixpath.dirname(parent)

    def _check(self, plain: str, name: str) -> None:
        parts = plain.split("/")
        wrong = (
            "leads out of its folder"
            if ".." in parts or plain.startswith("/") or PureWindowsPath(plain).drive
            else "is no plain path"
            if "\\" in plain
            or "" in parts
            or "." in parts
            or len(plain) > _LONGEST
            or not plain.isprintable()
            else ""
        )
        if wrong:
            raise _unsafe(self._archive, f"the entry {name[:100]!r} {wrong}")

    def _check_target(self, name: str, target: str) -> None:
        leads = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
        if not target or target.startswith("/") or "\\" in target or leads.split("/")[0] == "..":
            raise _unsafe(self._archive, f"the link {name!r} leads out, to {target[:100]!r}")


def _place(name: str) -> str:
    """What is the same for two names that some file system takes for one."""
    return unicodedata.normalize("NFC", name).casefold()


def _unsafe(archive: str, why: str) -> CheckFailedError:
    return CheckFailedError(f"{archive} is not safe to unpack: {why}.", hint="Do not unpack it.")


def _check(file: IO[bytes], name: str, budget: _Budget, depth: int) -> int:
    if depth > _DEEPEST:
        raise _unsafe(name, f"it has archives inside each other, more than {_DEEPEST} deep")
    start = file.read(512)
    file.seek(0)
    if start.startswith(b"PK\x03\x04") or start.startswith(b"PK\x05\x06"):
        return _zip(file, name, budget, depth)
    if start.startswith(_AR) and start[8:24].rstrip() == b"debian-binary":
        return _deb(file, name, budget, depth)
    content = _plain(file)
    if _is_header(content.read(512)):
        return _tar(_plain(file), name, budget, depth)
    while content is not file and (
        chunk := content.read(_CHUNK)
    ):  # a manual page: its checksum is at its end
        budget.take(len(chunk))
    file.seek(0)
    if depth == 0 and zipfile.is_zipfile(file):
        raise _unsafe(name, "it is a zip archive with something else before it")
    return 0


def _plain(file: IO[bytes]) -> IO[bytes]:
    """What is compressed, as a stream from its beginning; anything else as it is."""
    file.seek(0)
    start = file.read(8)
    file.seek(0)
    opener = next((opener for magic, opener in _COMPRESSED.items() if start.startswith(magic)), None)
    return cast("IO[bytes]", opener(file)) if opener is not None else file


def _is_header(block: bytes) -> bool:
    """Whether a tar archive begins so: its checksum is right. Those of before 1988 have no ``ustar``."""
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _inside(read: Callable[[int], bytes], name: str, budget: _Budget, depth: int) -> int:
    """Read an entry to its end; one that is an archive itself is looked into."""
    start = read(_CHUNK)
    budget.take(len(start))
    archive = start.startswith((b"PK\x03\x04", _AR, *_COMPRESSED)) or _is_header(start[:512])
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as kept:
        chunk = start
        while chunk:
            if archive:
                kept.write(chunk)
            chunk = read(_CHUNK)
            budget.take(len(chunk))
        kept.seek(0)
        return _check(kept, name, budget, depth + 1) if archive else 0


def _tar(file: IO[bytes], name: str, budget: _Budget, depth: int) -> int:
    names, count = _Names(name), 0
    with tarfile.open(fileobj=file, mode="r:") as archive:
        for member in archive:
            budget.entry()
            if member.issym():
                names.add(member.name, "link", member.linkname)
                continue
            if member.isdir():
                names.add(member.name, "folder")
                continue
            if not member.isreg() or member.issparse():
                raise _unsafe(name, f"{member.name[:100]!r} is neither file, folder nor symbolic link")
            if member.mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH):
                raise _unsafe(
                    name, f"{member.name[:100]!r} would run as another user, or be anybody's to write"
                )
            names.add(member.name, "file")
            content = archive.extractfile(member)
            assert content is not None
            count += 1 + _inside(content.read, member.name, budget, depth)
        file.seek(archive.offset)
    while chunk := file.read(_CHUNK):  # zeros; what is compressed has its checksum at the end
        budget.take(len(chunk))
        if chunk.strip(b"\0"):
            raise _unsafe(name, "there is something behind the archive's end")
    names.end()
    return count


def _zip(file: IO[bytes], name: str, budget: _Budget, depth: int) -> int:
    names, count = _Names(name), 0
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            budget.entry()
            mode = info.external_attr >> 16
            kind = stat.S_IFMT(mode)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or info.flag_bits & 1:
                raise _unsafe(name, f"{info.filename[:100]!r} is neither file nor folder, or is encrypted")
            if info.orig_filename != info.filename:
                raise _unsafe(name, f"{info.orig_filename[:100]!r} is no plain path")
            names.add(info.filename, "folder" if info.is_dir() else "file")
            if info.is_dir():
                continue
            with archive.open(info) as content:
                count += 1 + _inside(content.read, info.filename, budget, depth)
    names.end()
    return count


def _deb(file: IO[bytes], name: str, budget: _Budget, depth: int) -> int:
    """A Debian package: an ar archive of its version, control files and data."""
    names, count = _Names(name), 0
    file.seek(len(_AR))
    while header := file.read(60):
        budget.entry()
        member = header[:16].decode("ascii").rstrip().removesuffix("/")
        size = int(header[48:58].decode("ascii"))
        content = file.read(size)
        if len(header) != 60 or header[58:] != b"`\n" or len(content) != size:
            raise _unsafe(name, "it is no archive of ar")
        file.read(size % 2)
        names.add(member, "file")
        if member.endswith(".zst"):
            raise _unsafe(name, f"{member} is compressed in a way that cannot be read here")
        count += 1 + _inside(io.BytesIO(content).read, member, budget, depth)
    names.end()
    return count
