"""Archives of each kind, changed by a number; half of the time what lies around a change is made right."""

from __future__ import annotations

import bz2
import lzma
import struct
import tarfile
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

from tests.release.archives.building import (
    FOLDER,
    Fields,
    ar,
    deb,
    extra,
    gzipped,
    link,
    pax,
    plain_tar,
    record,
    resummed,
    tar,
    zip_of,
    zip_parts,
)

__all__ = ["case"]

_NAMES = (
    *(
        "a",
        "b",
        "A",
        "a/b",
        "a/b/c",
        "b/c",
        "d",
        "größe",
        "e\u0301",
        "é",
        "x y",
        "a.txt",
        "lib.so.1",
        "n" * 98,
    ),
    *(
        "n" * 99,
        "n" * 100,
        "n" * 101,
        "m" * 120 + "/" + "n" * 90,
        "f" * 150 + "/" + "g" * 105,
        "h/" * 20 + "i",
    ),
    *(
        "../evil",
        "/edgepack-evil",
        "a/../../evil",
        "./a",
        ".",
        "./",
        "..",
        "a/",
        "a//b",
        "a/.",
        "c:/a",
        "a\\b",
    ),
    *(
        "nul.txt",
        "a.",
        "a ",
        "a;1",
        "._a",
        "-a",
        "--help",
        "@a",
        "a*",
        "~a",
        "a~1",
        "\x01",
        "a\nb",
        "%s",
        "A~1.TXT",
    ),
)
_GOOD = (
    *(
        "a.txt",
        "d/x",
        "b/c/d",
        "größe",
        "x y",
        "lib.so.1",
        "e/",
        "g/h/",
        "links",
        "-a",
        "@b",
        "%s",
        "h/" * 20 + "i",
    ),
    *("n" * 98, "n" * 99, "n" * 100, "n" * 101, "m" * 120 + "/" + "n" * 90, "f" * 150 + "/" + "g" * 105),
)
_TARGETS = (
    "a",
    "b",
    ".",
    "..",
    "a/..",
    "../..",
    "a/b",
    "/etc/passwd",
    "../a",
    "d",
    "d/..",
    "b/c",
    "",
    "x",
    "./a",
)
_MODES = (0o644, 0o755, 0o600, 0o444, 0o666, 0o777, 0o4755, 0o2755, 0o1755, 0, 0o640)
_BYTES = (0, 1, 9, 10, 32, 47, 48, 49, 55, 56, 57, 120, 127, 128, 255)
_FLAGS = b"0125\0xgLK7SDVXM34z6"


def _content(random: Random) -> bytes:
    """Of a file; now and then an archive itself, or what one is looked for in."""
    return random.choice(
        (
            *(b"", b"x", b"text\n" * 20, bytes(random.choices(range(256), k=700)), bytes(600), b"y" * 512),
            *(
                zip_of("in"),
                plain_tar("in"),
                gzipped(b"a page"),
                ar({"o/": b"x"}),
                b"z" * 512 + plain_tar("q"),
            ),
        )
    )


def _entries(random: Random) -> list[tuple[str, Fields]]:
    if random.random() < 0.75:
        return _good_entries(random)
    found: list[tuple[str, Fields]] = []
    for _ in range(random.randint(1, 4)):
        name, mode = random.choice(_NAMES), random.choice(_MODES)
        kind = random.random()
        if kind < 0.65:
            found.append(
                (name, {"data": _content(random), "mode": mode, "mtime": random.choice((0, 1.5, 9**9))})
            )
        elif kind < 0.8:
            found.append((name, {**FOLDER, "mode": mode | 0o700}))
        else:
            found.append((name, link(random.choice(_TARGETS))))
    return found


def _good_entries(random: Random) -> list[tuple[str, Fields]]:
    found: list[tuple[str, Fields]] = []
    for name in random.sample(_GOOD, k=random.randint(1, 4)):
        content = random.choice(
            (b"", b"x", b"text\n" * 20, bytes(random.choices(range(256), k=700)), bytes(600))
        )
        if name == "links":
            found += [("links/v/A/h/x", {}), ("links/v/Now", link("A")), ("links/h", link("v/Now/h"))]
        elif name.endswith("/"):
            found.append((name, FOLDER))
        else:
            found.append((name, {"data": content, "mtime": random.choice((0, 1.5))}))
    return found


def _tar(random: Random) -> bytes:
    form = random.choice((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT))
    entries = _entries(random)
    if form != tarfile.PAX_FORMAT:
        entries = [(name, {**said, "mtime": 0}) for name, said in entries]
    try:
        made = tar(*entries, form=form)
    except ValueError:  # too long for ustar
        made = tar(*entries)
    for _ in range(random.choice((0, 0, 0, 1, 1, 2))):
        made = random.choice(_TAR_CHANGES)(made, random)
    return made


def _headers(data: bytes) -> list[int]:
    return [at for at in range(0, len(data) - 511, 512) if data[at + 257 : at + 262] == b"ustar"] or [0]


def _header_field(data: bytes, random: Random) -> bytes:
    """Another value in a header, whose checksum is right then."""
    at = random.choice(_headers(data))
    block = data[at : at + 512].ljust(512, b"\0")
    place, values = random.choice(
        (
            (0, [name.encode() for name in _NAMES if len(name) < 100]),
            (0, [b"a\0junk", b"\xff", b"a" * 100]),
            (
                100,
                [
                    b"0000644\0",
                    b"0100644\0",
                    b"644 \0   ",
                    b"    644\0",
                    b"\x80" + bytes(6) + b"\1",
                    b"0004755\0",
                ],
            ),
            (108, [b"0000000\0", b"\xff" * 8, b"8", b"00000000"]),
            (
                124,
                [
                    b"%011o\0" % random.choice((0, 1, 2, 100, 511, 512, 513, 1024, 99999)),
                    b"\x80" + bytes(10) + b"\5",
                ],
            ),
            (124, [b"          1\0", b"1\0", b"1 ", b"-1", b"+1", b"0x1", b"77777777777\0"]),
            (136, [b"00000000000\0", b"\xff" * 12, b"-0000000001\0"]),
            (156, [bytes([flag]) for flag in _FLAGS]),
            (157, [target.encode() + b"\0" for target in _TARGETS]),
            (257, [b"ustar\x0000", b"ustar  \0", b"ustar\0\0\0", bytes(8), b"ustar\x00 0"]),
            (265, [b"root", b"\x1b[m"]),
            (329, [b"0000000\x000000000\0", b"0000001\0", b"x"]),
            (345, [b"p", b"../p", b"p/", b"/", b"\0p", b"a" * 155]),
            (482, [b"\1", b"x"]),
            (500, [b"x", b"tar\0"]),
        )
    )
    value = random.choice(values)
    block = (block[:place] + value + block[place + len(value) :])[:512]
    return data[:at] + resummed(block) + data[at + 512 :]


def _record(data: bytes, random: Random) -> bytes:
    """A header before another one, that speaks of it."""
    at = random.choice(_headers(data))
    keyword, values = random.choice(
        (
            ("path", _NAMES),
            ("linkpath", _TARGETS),
            ("size", ("0", "1", "512", "01", "-1", "99")),
            ("mtime", ("1.5", "-1", "1e9", "")),
            ("uid", ("0", "x", "99999999999")),
            ("comment", ("hello", "a\nb")),
            ("GNU.sparse.major", ("1",)),
            ("GNU.sparse.name", ("evil",)),
            ("SCHILY.xattr.user.a", ("b",)),
            ("hdrcharset", ("BINARY", "ISO-IR 10646 2000 UTF-8")),
            ("uname", ("root", "")),
        )
    )
    said = record(keyword, random.choice(values))
    said = random.choice(
        (said, said, said, said * 2, said[:-1], b"0" + said, said + b"x", said + record("gname", "g"))
    )
    flag = random.choice((b"x", b"x", b"x", b"g", b"X", b"L", b"K"))
    if flag in b"LK":
        said = random.choice((*_NAMES, *_TARGETS)).encode() + random.choice((b"\0", b"", b"\0\0", b"\0x"))
        block = tar(("././@LongLink", {"data": said}))[: 512 + -(-len(said) // 512) * 512]
        return data[:at] + resummed(block[:156] + flag + block[157:512]) + block[512:] + data[at:]
    return data[:at] + pax(said, flag) + data[at:]


def _sum_field(data: bytes, random: Random) -> bytes:
    """A checksum spelled otherwise, of signed bytes, or wrong."""
    at = random.choice(_headers(data))
    rest = data[at : at + 148] + b" " * 8 + data[at + 156 : at + 512]
    total = sum(rest)
    signed = total - 256 * sum(byte > 127 for byte in rest)
    forms = (b"%06o\0 ", b"%o ", b"  %o\0", b"\0%o", b"%08o", b"%07o\0", b"%06o  ", b"%06o\0\0", b"%oz")
    value = (random.choice(forms) % max(0, random.choice((total, total, signed, total + 1)))).ljust(8, b"\0")[
        :8
    ]
    return data[: at + 148] + value + data[at + 156 :]


def _blocks(data: bytes, random: Random) -> bytes:
    """Blocks that are twice, missing, elsewhere, or of something else."""
    count = max(1, len(data) // 512)
    at, end = (512 * random.randrange(count) for _ in range(2))
    piece = data[at : at + 512 * random.randint(1, 3)]
    what = random.choice((piece, piece, b"garbage!" * 64, bytes(512), bytes(1024), plain_tar("q"), b""))
    cut = random.choice((0, 512, len(what)))
    return data[:end] + what + data[end + cut :]


_TAR_CHANGES: tuple[Callable[[bytes, Random], bytes], ...] = (
    _header_field,
    _header_field,
    _header_field,
    _record,
    _record,
    _sum_field,
    _blocks,
)


def _zip(random: Random) -> bytes:
    entries: list[tuple[str, Fields]] = []
    for name, fields in _entries(random):
        folder = fields.get("type") == tarfile.DIRTYPE or name.endswith("/")
        data = b"" if folder else fields.get("data", b"x")
        mode = fields.get("mode", 0o644) | (0o40000 if folder else 0o100000)
        method = random.choice((0, 8))
        said: dict[str, Any] = {"data": data, "method": method, "attributes": mode << 16}
        if random.random() < (0.4 if method == 8 else 0.03):
            packed = len(zlib.compress(data, wbits=-15)) if method == 8 else len(data)
            described = struct.pack("<4s3L", b"PK\7\x08", zlib.crc32(data), packed, len(data))
            said |= {
                "flags": 8 | (0 if name.isascii() else 0x800),
                "sizes": (0, 0, 0),
                "descriptor": described,
            }
        if random.random() < 0.2:
            said |= random.choice(_ZIP_CHANGES)(name, data, random)
        entries.append((name + "/" if folder and not name.endswith("/") else name, said))
    around: dict[str, bytes] = {}
    if random.random() < 0.15:
        around[random.choice(("before", "between", "behind"))] = random.choice(
            (b"x", b"comment", zip_parts([("evil", {})]), bytes(4), b"PK\3\4", plain_tar("q"))
        )
    return zip_parts(entries, **around)


def _any_extra(name: str, _data: bytes, random: Random) -> Fields:
    other = b"\1" + struct.pack("<L", zlib.crc32(name.encode())) + random.choice(_NAMES).encode()
    kinds = (
        extra(0x7075, other),
        extra(0x5455, b"\1" + bytes(4)),
        extra(0x5455, b"\7" + bytes(12)),
        extra(0x7875, b"\1\4" + bytes(4) + b"\4" + bytes(4)),
        extra(1, bytes(8)),
        extra(1, bytes(16)),
        extra(0x6C78, b"\4" + struct.pack("<L", 0o120777 << 16)),
        extra(0xCAFE, b""),
        extra(0x9901, bytes(7)),
        extra(0x000A, bytes(32)),
        extra(0x5855, bytes(8)),
        b"\0" * random.randint(1, 5),
    )
    return {
        random.choice(("extra", "local_extra")): b"".join(random.choices(kinds, k=random.choice((1, 1, 2))))
    }


_ZIP_CHANGES: tuple[Callable[[str, bytes, Random], Fields], ...] = (
    _any_extra,
    _any_extra,
    lambda _name, _data, random: {"local": random.choice(_NAMES)},
    lambda _name, _data, _random: {"hidden": True},
    lambda _name, _data, random: {"attributes": random.choice(_MODES) << 16 | random.choice((0, 0x10, 0x20))},
    lambda _name, _data, random: {"attributes": random.choice((0o120777, 0o10644, 0o40755, 0o140755)) << 16},
    lambda _name, _data, random: {"made": random.choice((0x14, 0x314, 0x714, 0xA14, 0xB3F, 0x1314))},
    lambda _name, _data, random: {"flags": random.choice((0, 1, 2, 4, 8, 32, 64, 0x800, 0x808, 0x2000))},
    lambda _name, data, random: {"crc": random.choice((0, zlib.crc32(data) ^ 1))},
    lambda _name, data, _random: {"sizes": (zlib.crc32(data), len(data), len(data) + 1)},
    lambda _name, _data, random: {"method": random.choice((1, 9, 12, 14, 95))},
    lambda _name, data, _random: {"descriptor": struct.pack("<3L", zlib.crc32(data), len(data), len(data))},
    lambda _name, _data, random: {"descriptor": random.choice((b"x", zip_parts([("evil", {})])[:36]))},
)


def _ar(random: Random) -> bytes:
    if random.random() < 0.25:
        return deb(random.choice((gzipped, bz2.compress, lzma.compress))(_tar(random)))
    names = (
        "a.o/",
        "b.o/",
        "a.o",
        "c",
        "/",
        "//",
        "/0",
        "/20",
        "/3",
        "#1/8",
        "#1/3",
        "../a/",
        "/SYM64/",
        "x y/",
        "nul/",
    )
    good = random.random() < 0.5
    members = {
        name: b"a-very-long-name.o/\n../evil-is-long.o/\n"
        if name == "//"
        else b"name.o\0\0" + _content(random)
        for name in random.sample(names[:4] if good else names, k=random.randint(1, 3))
    }
    return ar(members)


def _other(random: Random) -> bytes:
    garbage = random.choice((b"garbage!" * 64, b"x" * 1024, b"y" * 100, bytes(512), b"\x7fELF" + b"q" * 508))
    text = b"A text of words,\nwith lines.\n" * random.randint(1, 40)
    return random.choice(
        (
            lambda: text,
            lambda: bytes(random.choices(range(256), k=random.randint(1, 3000))),
            lambda: garbage + _tar(random),
            lambda: garbage + _zip(random),
            lambda: _zip(random) + garbage,
            lambda: _tar(random) + _tar(random),
            lambda: _zip(random) + _zip(random),
            lambda: text + b"begin 644 x\n" + random.choice((b"#0V%T\n`\nend\n", b"not so\n")),
            lambda: b"a type=dir\nb type=link link=../../evil\n",
            lambda: b"070701" + b"0" * 104 + b"a" + bytes(20),
            lambda: bz2.compress(_tar(random)) + bz2.compress(_tar(random)),
            lambda: _tar(random).rstrip(b"\0"),
        )
    )()


def _damaged(data: bytes, random: Random) -> bytes:
    """Bytes that are other ones, twice, missing, or too many."""
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(data) + 1)
        if random.random() < 0.5:  # where there is more to break
            at = min(len(data), random.choice(_headers(data)) + random.randrange(512))
        size = random.choice((1, 1, 2, 4, 8, 512))
        what = random.choice(("set", "set", "set", "insert", "delete", "twice", "end"))
        what = (
            "set" if data.startswith(b"PK") and random.random() < 0.8 else what
        )  # else nothing is in its place
        some = (
            bytes([random.choice(_BYTES)])
            if random.random() < 0.5
            else bytes(random.choices(range(256), k=size))
        )
        if what == "set":
            data = data[:at] + some + data[at + len(some) :]
        elif what == "insert":
            data = data[:at] + some + data[at:]
        elif what == "delete":
            data = data[:at] + data[at + size :]
        elif what == "twice":
            data = data[:at] + data[at : at + size] + data[at:]
        else:
            data = data[:at]
    return data


def _summed_again(data: bytes) -> bytes:
    """With right checksums in every header of tar."""
    for at in _headers(data):
        if len(data) >= at + 512 and data[at + 257 : at + 262] == b"ustar":
            data = data[:at] + resummed(data[at : at + 512]) + data[at + 512 :]
    return data


def case(number: int) -> bytes:
    """An archive, or something near to one; the same number gives the same bytes."""
    random = Random(number)
    make = random.choice((_tar, _tar, _tar, _zip, _zip, _zip, _ar, _other))
    data = make(random)
    if random.random() < 0.3:
        data = _damaged(data, random)
        if random.random() < 0.5:
            data = _summed_again(data)
    if random.random() < 0.2:
        data = random.choice((gzipped, bz2.compress, lzma.compress))(data)
        if random.random() < 0.2:
            data = _damaged(data, random)
    return data
