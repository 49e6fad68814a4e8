"""Archives of ar: Debian packages, and static libraries as GNU's, BSD's and LLVM's ar write them.

Sources: deb(5); GNU binutils' ``include/aout/ar.h``; LLVM's ``ArchiveWriter.cpp``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from edgepack.release.archives.policy import Where
from edgepack.release.archives.source import Member, Source
from edgepack.release.archives.tree import Tree, wrong_mode

__all__ = ["read_ar"]

_MAGIC = b"!<arch>\n"
_HEADER = 60
_FIELDS = re.compile(rb"([^ ]+) *", re.DOTALL)
#: Time, owner, group and mode, which the tables of a library need not have; then the size.
_NUMBERS = re.compile(rb"(?:[0-9]+ *| +)")
_LONGEST_TABLE = 16 << 20
#: Tables of a library: its symbols, and the names that are longer than a header's field.
_SYMBOLS = b"/"
_TABLE = re.compile(rb"(?:[^/\0\n]+/\n)+[\n`]?")
_BSD_SYMBOLS = ("__.SYMDEF", "__.SYMDEF SORTED", "__.SYMDEF_64", "__.SYMDEF_64 SORTED")
_DEB = re.compile(r"debian-binary (?:_gpgorigin )?control\.tar(?:\.gz|\.xz)? data\.tar(?:\.gz|\.xz|\.bz2)?")


@dataclass(frozen=True)
class _Raw:
    """A member as it lies there: the field with its name, and its bytes."""

    field: bytes
    data: Source


def read_ar(source: Source, where: Where) -> Iterator[Member]:
    """The files of a Debian package or of a static library.

    A library may have members of one name, as those by which Windows' linkers import a DLL do; of these
    tools leave the last.

    Raises:
        CheckFailedError: it is not in the form that tools agree about, or a member would do harm.
    """
    tree, long_names = Tree(where), b""
    names: dict[str, int] = {}
    for number, raw in enumerate(_members(source, where)):
        if raw.field == _SYMBOLS and number < 2 and not names:
            continue
        if raw.field == b"//" and not long_names and not names and raw.data.size <= _LONGEST_TABLE:
            long_names = raw.data.read(0, raw.data.size)
            if not _TABLE.fullmatch(long_names):
                raise where.differs("its table of names is no plain one")
            continue
        name, content = _named(raw, long_names, where)
        if name in _BSD_SYMBOLS and number == 0 and raw.field.startswith(b"#1/"):
            continue
        if "/" in name:
            raise where.unsafe(f"the member {name[:100]!r} is no plain name")
        if name not in names:
            tree.add(name, "file")
        names[name] = names.get(name, 0) + 1
        yield Member(name, content)
    deb = "debian-binary" in names
    if deb and not (_DEB.fullmatch(" ".join(names)) and all(count == 1 for count in names.values())):
        raise where.unsafe("it is no Debian package of control and data, in forms that are read here")
    tree.end()


def _members(source: Source, where: Where) -> Iterator[_Raw]:
    at = len(_MAGIC)
    while at < source.size:
        where.budget.entry()
        header = source.read(at, _HEADER)
        field = _FIELDS.fullmatch(header[:16])
        numbers = [header[16:28], header[28:34], header[34:40], header[40:48], header[48:58]]
        if (
            header[58:] != b"`\n"
            or field is None
            or not all(_NUMBERS.fullmatch(number) for number in numbers)
            or not numbers[4].strip()
            or re.search(b"[89]", numbers[3])
        ):
            raise where.differs(f"the header at byte {at} is no plain one; it is no archive of ar")
        size, at = int(numbers[4]), at + _HEADER
        padding = source.read(at + size, size % 2)
        if at + size > source.size or (size % 2 and padding != b"\n"):
            raise where.unsafe("it cannot be read: it is no archive of ar that is whole")
        if error := wrong_mode(int(numbers[3].strip() or b"0", 8), field[1].decode("latin-1"), where):
            raise error
        yield _Raw(field[1], source.part(at, size))
        at += size + size % 2


def _named(raw: _Raw, long_names: bytes, where: Where) -> tuple[str, Source]:
    """A member's name and its content."""
    field, content = raw.field, raw.data
    name = field.removesuffix(b"/")
    if found := re.fullmatch(rb"/([0-9]+)", field):
        name, end, _ = long_names[int(found[1]) :].partition(b"/\n")
        if not end or (int(found[1]) and long_names[int(found[1]) - 1 : int(found[1])] != b"\n"):
            raise where.differs(f"the member {field!r} has no name in the table of names")
    elif found := re.fullmatch(rb"#1/([0-9]+)", field):
        size = int(found[1])
        if size > content.size:
            raise where.differs("a member's name is longer than the member")
        name, _, rest = content.read(0, size).partition(b"\0")
        if rest.strip(b"\0"):
            raise where.differs("a member's name has something behind it")
        content = content.part(size, content.size - size)
    elif b"/" in name or not name:
        raise where.differs(f"the member {field!r} is no file")
    try:
        return name.decode("utf-8"), content
    except UnicodeDecodeError:
        raise where.unsafe(f"the member {name!r} is no plain name") from None
