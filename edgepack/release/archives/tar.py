"""Tar archives as GNU tar, Python and bsdtar write them: ustar, long names of GNU, a few records of pax."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from edgepack.release.archives.policy import Where
from edgepack.release.archives.source import Member, Source
from edgepack.release.archives.tar_blocks import BLOCK
from edgepack.release.archives.tree import Kind, Tree, wrong_mode

__all__ = ["read_tar"]

_ZEROS = bytes(BLOCK)
_NUMBER = re.compile(rb"([0-7]+)[ \0]+")
#: Where a header's numbers lie.
_NUMBERS = {
    "mode": slice(100, 108),
    "uid": slice(108, 116),
    "gid": slice(116, 124),
    "size": slice(124, 136),
    "mtime": slice(136, 148),
    "checksum": slice(148, 156),
}
_POSIX, _GNU = b"ustar\x0000", b"ustar  \0"
_KINDS: dict[bytes, Kind] = {b"0": "file", b"\0": "file", b"5": "folder", b"2": "link"}
#: Headers that say more of the next one -> the most bytes that they may say.
_EXTENSIONS = {b"x": 64 << 10, b"g": 4 << 10, b"L": 4 << 10, b"K": 4 << 10}
_LONG = b"././@LongLink"
#: Records of pax that tools agree about -> what they look like.
_RECORDS = {
    "path": r".+",
    "linkpath": r".+",
    "size": r"0|[1-9][0-9]{0,18}",
    "uid": r"[0-9]{1,10}",
    "gid": r"[0-9]{1,10}",
    "uname": r".*",
    "gname": r".*",
    "mtime": r"-?[0-9]{1,12}(\.[0-9]*)?",
    "atime": r"-?[0-9]{1,12}(\.[0-9]*)?",
    "ctime": r"-?[0-9]{1,12}(\.[0-9]*)?",
    "comment": r".*",
}
_RECORD = re.compile(rb"([1-9][0-9]{0,5}) ([A-Za-z]+)=")


@dataclass(frozen=True)
class _Header:
    """A header block, as it says itself."""

    at: int
    name: bytes
    flag: bytes
    target: bytes
    size: int
    mode: int
    posix: bool


def read_tar(source: Source, where: Where) -> Iterator[Member]:
    """The files of a tar archive.

    Raises:
        CheckFailedError: it is not in the form that tools agree about, or an entry would do harm.
    """
    tree, at = Tree(where), 0
    said: dict[str, str] = {}
    extended = b""
    while (block := source.read(at, BLOCK)) != _ZEROS:
        header = _header(block, at, where)
        at += BLOCK
        end = at + -(-header.size // BLOCK) * BLOCK
        if end > source.size:
            raise where.unsafe(f"it cannot be read: it ends within {_shown(header.name)}")
        if source.read(at + header.size, end - at - header.size).strip(b"\0"):
            raise where.differs(f"there is something behind {_shown(header.name)}")
        if header.flag in _EXTENSIONS:
            where.budget.entry()
            _mixed(extended, header, where)
            said |= _said(header, source.read(at, min(header.size, 64 << 10)), where)
            extended += header.flag if header.flag != b"g" else b""
        else:
            name, target = _entry(header, said, extended, where)
            tree.add(name, _KINDS[header.flag], target)
            if header.flag in (b"0", b"\0"):
                yield Member(name, source.part(at, header.size))
            said, extended = {}, b""
        at = end
    if extended:
        raise where.differs("it ends with a header that speaks of the next one")
    if source.size - at < 2 * BLOCK or source.size % BLOCK:
        raise where.differs("it does not end with two blocks of zeros")
    if any(chunk.strip(b"\0") for chunk in source.part(at, source.size - at).chunks()):
        raise where.differs("there is something behind the archive's end")
    tree.end()


def _header(block: bytes, at: int, where: Where) -> _Header:
    def wrong(what: str) -> Exception:
        return where.differs(f"the header at byte {at} has {what}")

    if len(block) < BLOCK:
        raise where.unsafe("it cannot be read: it has no end")
    magic = block[257:265]
    if magic not in (_POSIX, _GNU):
        raise wrong(f"the magic {magic!r}")
    numbers = {}
    for field, place in _NUMBERS.items():
        found = _NUMBER.fullmatch(block[place])
        if found is None:
            raise wrong(f"the {field} {block[place]!r}")
        numbers[field] = int(found[1], 8)
    if sum(block) - sum(block[148:156]) + 8 * ord(" ") != numbers["checksum"]:
        raise wrong("another checksum")
    texts = [block[0:100], block[157:257], block[265:297], block[297:329], block[345:500]]
    if any(text.partition(b"\0")[2].strip(b"\0") for text in texts) or block[500:].strip(b"\0"):
        raise wrong("something behind a text")
    if block[329:345].strip(b"\0 0"):
        raise wrong("a device's numbers")
    name, target, user, group, prefix = (text.partition(b"\0")[0] for text in texts)
    if prefix and magic != _POSIX:
        raise wrong("times or a map that only GNU tar reads")
    if any(character < 0x20 or character == 0x7F for character in user + group):
        raise wrong("an owner with control characters")
    flag = block[156:157]
    if flag not in _KINDS and flag not in _EXTENSIONS:
        name = prefix + b"/" + name if prefix else name
        raise where.unsafe(f"{_shown(name)} is neither file, folder nor symbolic link")
    if (target and flag != b"2") or (numbers["size"] and flag in b"25") or numbers["mode"] > 0o7777:
        raise wrong("a target, a size or a mode that its kind has not")
    name = prefix + b"/" + name if prefix else name
    return _Header(at, name, flag, target, numbers["size"], numbers["mode"], magic == _POSIX)


def _mixed(extended: bytes, header: _Header, where: Where) -> None:
    """An extension speaks once, of the same flavour as the others; and is short."""
    flag = header.flag
    if extended + flag not in (b"x", b"g", b"L", b"K", b"LK", b"KL"):
        raise where.differs(f"the header at byte {header.at} speaks of the same entry as another one")
    if header.size > _EXTENSIONS[flag]:
        raise where.differs(f"the header at byte {header.at} says {header.size} bytes of the next one")
    if (flag in b"LK") == header.posix or (flag in b"LK" and header.name != _LONG):
        raise where.differs(f"the header at byte {header.at} is of another flavour of tar")


def _said(header: _Header, data: bytes, where: Where) -> dict[str, str]:
    """What an extension says of the next entry: pax's keywords and their values."""
    if header.flag in b"LK":
        text = _text(data[:-1], where)
        if not data.endswith(b"\0") or "\0" in text or not text:
            raise where.differs(f"the header at byte {header.at} has no plain name")
        return {"path" if header.flag == b"L" else "linkpath": text}
    found: dict[str, str] = {}
    at = 0
    while at < len(data):
        record = _RECORD.match(data, at)
        end = at + int(record[1]) if record else 0
        keyword = record[2].decode("ascii") if record else ""
        if record is None or end <= record.end() or data[end - 1 : end] != b"\n" or keyword in found:
            raise where.differs(f"the pax header at byte {header.at} has no plain records")
        value = _text(data[record.end() : end - 1], where)
        if keyword not in _RECORDS or (header.flag == b"g" and keyword != "comment"):
            raise where.differs(f"the pax header at byte {header.at} has a record {keyword!r}")
        if not re.fullmatch(_RECORDS[keyword], value) or (value and not value.isprintable()):
            raise where.differs(
                f"the pax header at byte {header.at} has another {keyword!r} than tools write"
            )
        found[keyword] = value
        at = end
    return found if header.flag == b"x" else {}


def _entry(header: _Header, said: dict[str, str], extended: bytes, where: Where) -> tuple[str, str]:
    """An entry's name and target, by its header and by what its extensions said."""
    if extended and (extended == b"x") != header.posix:
        raise where.differs(f"the header at byte {header.at} is of another flavour of tar")
    if b".." in header.name.split(b"/") or header.name.startswith(b"/") or header.target.startswith(b"/"):
        # Also where an extension says otherwise: busybox does not read those of pax.
        raise where.unsafe(f"the entry {_shown(header.name)} leads out of its folder")
    name = said["path"] if "path" in said else _text(header.name, where)
    target = said["linkpath"] if "linkpath" in said else _text(header.target, where)
    if ("linkpath" in said and header.flag != b"2") or int(said.get("size", header.size)) != header.size:
        raise where.differs(f"the header at byte {header.at} has a target or a size that was said otherwise")
    if header.flag != b"2" and (error := wrong_mode(header.mode, name[:100], where)):
        raise error
    return name, target


def _text(data: bytes, where: Where) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise where.unsafe(f"the entry {_shown(data)} is no plain path") from None


def _shown(name: bytes) -> str:
    return repr(name[:100].decode("utf-8", errors="replace"))
