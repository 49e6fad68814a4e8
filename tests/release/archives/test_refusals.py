"""Archives that would do harm, or that two tools unpack to different files."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import struct
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgepack.errors import CheckFailedError
from edgepack.release.archives import check_archive
from tests.release.archives.building import (
    FOLDER,
    ar,
    deb,
    descriptors,
    extra,
    gzipped,
    link,
    oci,
    pax,
    plain_tar,
    record,
    resummed,
    tar,
    zip_of,
    zip_parts,
)


def check(content: bytes, folder: Path) -> int:
    (folder / "x.bin").write_bytes(content)
    return check_archive(folder / "x.bin")


def refused(content: bytes, why: str, folder: Path) -> None:
    with pytest.raises(CheckFailedError, match=f"x.bin is not safe to unpack: .*{why}"):
        check(content, folder)


def _of_1980(archive: bytes) -> bytes:
    """One entry as the first tar wrote it: no magic, and the checksum of that."""
    return resummed(archive[:257] + bytes(255)) + archive[512:]


def _flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :]


_BIG = tar(("a", {"size": 5000}))
_DAMAGED = zip_of("a", content=bytes(99))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (tar(("../evil", {})), "leads out"),
        (tar(("/etc/passwd", {})), "leads out"),
        (tar(("a/../../evil", {})), "leads out"),
        (tar(("c:/evil", {})), "leads out"),
        (tar(("a\\..\\evil", {})), "is no plain path"),
        (tar(("a\x1b[31m", {})), "is no plain path"),
        (tar(("a", link("/etc"))), "leads out"),
        (tar(("a/b", link("../../etc"))), "leads out"),
        (tar(("a", link("b")), ("a/evil", {})), "which is no folder"),
        (tar(("a/evil", {}), ("a", link("b"))), "take the place"),
        (tar(("a", {"type": tarfile.LNKTYPE, "linkname": "b"})), "neither file, folder nor"),
        (tar(("a", {"type": tarfile.CHRTYPE, "devmajor": 1})), "a device's numbers|neither file, folder nor"),
        (tar(("a", {"type": tarfile.FIFOTYPE})), "neither file, folder nor"),
        (tar(("a", {"type": b"S"})), "neither file, folder nor"),
        (tar(("a", {"mode": 0o4755})), "another user"),
        (tar(("a", {"mode": 0o666})), "anybody's to write"),
        (tar(("a", {**FOLDER, "mode": 0o777}), ("a/b", {})), "anybody's to write"),
        (tar(("a", {}), ("A", {})), "take the place"),
        (tar(("a/x", {}), ("A/y", {})), "take the place"),
        (tar(("\N{LATIN SMALL LETTER LONG S}", {}), ("s", {})), "take the place"),
        (tar(("a", {}), ("a/b", {})), "which is no folder"),
        (gzipped(tar(("a", {"size": 90 << 20}))), "unpacks to more than"),
        (gzipped(_BIG)[:-30], "cannot be read"),
        (_BIG[:3000], "cannot be read"),
        (_flipped(lzma.compress(_BIG)), "cannot be read"),
        (_flipped(bz2.compress(_BIG)), "cannot be read"),
        (_flipped(gzip.compress(_BIG, 0)), "cannot be read|another checksum"),
        (_flipped(gzip.compress(b"a manual page" * 99)), "cannot be read"),
        (gzipped(plain_tar("a") + plain_tar("../evil")), "behind the archive's end"),
        (gzipped(plain_tar("a")) + gzipped(plain_tar("../evil")), "behind a compressed stream's end"),
        (plain_tar("a")[:1536], "does not end with two blocks"),
        (_of_1980(plain_tar("../evil")), "the magic"),
        (zip_of("../evil"), "leads out"),
        (zip_of("a", mode=0o120777), "neither file nor folder"),
        (zip_of("a", "a"), "take the place"),
        (zip_of("é", "e\u0301"), "form NFC"),
        (_DAMAGED[:33] + b"?" + _DAMAGED[34:], "cannot be read"),
        (b"#!/bin/sh\n" + zip_of("a"), "something else before it"),
        (zip_of("classes.jar", content=zip_of("../evil")), "leads out"),
        (deb(gzipped(tar(("./usr/../../evil", {})))), "leads out"),
        (deb(gzipped(tar(("./a", {}))))[:-40], "no archive of ar"),
        (tar(("a", FOLDER), ("b", link("a"))), "there is no file in it"),
        (gzipped(zip_of()), "there is no file in it"),
        (ar({"debian-binary": b"2.0\n", "data.tar.zst": b""}), "no Debian package"),
    ],
    ids=lambda value: "archive" if isinstance(value, bytes) else value,
)
def test_an_archive_that_would_do_harm_is_refused(content: bytes, why: str, tmp_path: Path) -> None:
    refused(content, why, tmp_path)


def test_links_are_followed_through_the_archives_own_links(tmp_path: Path) -> None:
    """Finding 8: each leads out only where the others are followed, as a system does."""
    chain = [("d", link(".")), ("up", link("d/.."))]
    refused(tar(*chain), "leads out", tmp_path)
    deep = [("a/b/c/d/e/f/x", {}), ("down", link("a/b/c/d/e/f")), ("r", link("down/../../../../../../.."))]
    refused(tar(*deep), "leads out", tmp_path)
    more = [
        ("d", link(".")),
        ("up0", link("a/..")),
        ("a", link("b/..")),
        ("b", link("d")),
        ("s", link("up0/etc")),
    ]
    refused(tar(*more), "leads out", tmp_path)
    refused(tar(("a", link("b")), ("b", link("a"))), "in a circle", tmp_path)
    refused(tar(("a", link("b/../c"))), "leads through 'b', which is not in it", tmp_path)
    refused(tar(("f", {}), ("a", link("f/b"))), "a file", tmp_path)
    refused(tar(("up", link("sub/D/..")), ("sub/d", link("..")), ("s", {})), "leads out", tmp_path)
    for name in (".", "./"):
        refused(tar((name, link("/etc"))), "leads out", tmp_path)
        refused(tar((name, link("a")), ("a/b", {})), "the place of its folder", tmp_path)
        refused(tar((name, {})), "the place of its folder", tmp_path)


def test_links_that_stay_inside_are_good(tmp_path: Path) -> None:
    """A framework of Apple, and a Debian package whose library is in another one."""
    framework = [
        ("X.framework/Versions/A/Headers/x.h", {}),
        ("X.framework/Versions/Current", link("A")),
        ("X.framework/Headers", link("Versions/Current/Headers")),
        ("X.framework/up", link("Versions/Current/../../Versions/A")),
        ("usr/lib/libx.so", link("libx.so.0")),
    ]
    assert check(tar(*framework), tmp_path) == 1


_MEASURED = """
import re, sys
from pathlib import Path
from edgepack.errors import CheckFailedError
from edgepack.release.archives import check_archive
try:
    check_archive(Path(sys.argv[1]))
except CheckFailedError as error:
    print(error.message)
print(int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1]) >> 10)
"""


class _Gzip:
    def __init__(self) -> None:
        self._stream = zlib.compressobj(1, wbits=31)
        self.compress, self.flush = self._stream.compress, self._stream.flush


@pytest.mark.parametrize(
    ("flag", "stream", "mebibytes"),
    [
        (b"x", bz2.BZ2Compressor, 192),
        pytest.param(b"g", _Gzip, 512, marks=pytest.mark.slow),
        (b"L", _Gzip, 512),
        pytest.param(b"K", _Gzip, 512, marks=pytest.mark.slow),
    ],
)
def test_what_leaves_a_decompressor_is_bounded_before_it_is_in_memory(
    flag: bytes, stream: Callable[[], Any], mebibytes: int, tmp_path: Path
) -> None:
    """Finding 9: a header of pax of 3 GiB, and one that is long enough, in a few kilobytes."""
    compressor, path = stream(), tmp_path / "x.tar.bz2"
    with path.open("wb") as file:
        file.write(compressor.compress(pax(b"", flag, 3 << 30)))
        for _ in range(mebibytes):
            file.write(compressor.compress(bytes(1 << 20)))
        file.write(compressor.compress(plain_tar("a")) + compressor.flush())
    command = [sys.executable, "-c", _MEASURED, path]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    message, megabytes = done.stdout.splitlines()
    assert "unpacks to more than 100 times its size" in message
    assert int(megabytes) < 200


def test_a_header_of_pax_is_short_and_says_what_tools_agree_about(tmp_path: Path) -> None:
    entry = tar(("a", {"data": b"x"}), form=tarfile.USTAR_FORMAT)
    assert check(pax(record("path", "bb/c")) + entry, tmp_path) == 1
    for data, why in (
        (b"x" * 70000, "bytes of the next one"),
        (record("path", "../b"), "leads out"),
        (record("path", "b") * 2, "no plain records"),
        (b"11 path=b\n", "no plain records"),
        (b"010 path=b\n", "no plain records"),
        (record("size", "0"), "said otherwise"),
        (record("GNU.sparse.major", "1"), "no plain records"),
        (record("hdrcharset", "BINARY"), "a record 'hdrcharset'"),
        (record("linkpath", "b"), "said otherwise"),
        (record("path", ""), "another 'path'"),
        (record("path", "b\n"), "another 'path'"),
        (b"10 path=\xff\n", "is no plain path"),
    ):
        refused(pax(data) + entry, why, tmp_path)
    said = pax(record("path", "b"))
    refused(pax(record("path", "b"), b"g") + entry, "a record 'path'", tmp_path)
    refused(said * 2 + entry, "speaks of the same entry", tmp_path)
    refused(said + tar(("a", {})), "another flavour", tmp_path)
    refused(said + bytes(1024), "speaks of the next one", tmp_path)
    refused(said + tar(("../evil", {}), form=tarfile.USTAR_FORMAT), "leads out", tmp_path)


def test_no_tool_gets_another_name_of_an_entry_of_a_zip(tmp_path: Path) -> None:
    """Finding 10: unzip believes the extra field 0x7075; jar believes the local header."""
    name = b"\1" + struct.pack("<L", zlib.crc32(b"good")) + b"../evil"
    said = extra(0x7075, name)
    refused(zip_parts([("good", {"extra": said})]), "extra field 0x7075", tmp_path)
    refused(zip_parts([("good", {"local_extra": said})]), "extra field 0x7075", tmp_path)
    refused(zip_parts([("good", {"local": "evil"})]), "another name", tmp_path)
    refused(zip_parts([("größe", {"flags": 0})]), "not in UTF-8", tmp_path)
    refused(zip_parts([("good", {"extra": said[:7]})]), "piece of an extra field", tmp_path)


def _signed(archive: bytes) -> bytes:
    """With the checksum of signed bytes, spelled as GNU tar alone reads it."""
    block = archive[:400] + b"\xff" * 100 + archive[500:512]
    rest = block[:148] + b" " * 8 + block[156:]
    total = sum(byte - 256 if byte > 127 else byte for byte in rest)
    return block[:148] + (b"\0 %o" % total).ljust(8, b"\0") + block[156:] + archive[512:]


@pytest.mark.parametrize("garbage", [b"garbage!" * 64, b"x" * 5120, b"\x7fELF" + b"y" * 508])
def test_a_tar_behind_something_else_is_refused(garbage: bytes, tmp_path: Path) -> None:
    """Finding 11: GNU tar passes over blocks that are no headers."""
    inner = plain_tar("../evil")
    for content in (garbage + inner, garbage + _of_1980(inner), gzipped(garbage + inner)):
        refused(content, "GNU tar finds a tar archive", tmp_path)
        refused(tar(("good", {"data": content})), "GNU tar finds a tar archive", tmp_path)
    zipped = zip_of("x", content=b"y" * (512 - 31) + inner, method=0)
    refused(zipped, "GNU tar finds a tar archive", tmp_path)


def test_a_tar_with_an_odd_checksum_is_seen(tmp_path: Path) -> None:
    for inner in (_signed(plain_tar("evil")), _signed(_of_1980(plain_tar("evil")))):
        refused(inner, "the magic|the checksum", tmp_path)
        refused(b"z" * 512 + inner, "GNU tar finds a tar archive", tmp_path)


def test_kinds_that_are_not_read_here_are_refused(tmp_path: Path) -> None:
    """Finding 11, its siblings: what some tool unpacks is no "no archive"."""
    lines = "begin 644 x\n" + "M" + "!" * 60 + "\n" + "M" + "!" * 60 + "\n"
    for content in (
        b"7z\xbc\xaf\x27\x1c\0\4" + bytes(24),
        b"Rar!\x1a\x07\0" + bytes(99),
        b"Rar!\x1a\x07\1\0" + bytes(99),
        b"070701" + b"0" * 104,
        b"070707" + b"0" * 70,
        b"\xc7\x71" + bytes(24),
        b"\x28\xb5\x2f\xfd" + bytes(9),
        b"\x04\x22\x4d\x18" + bytes(9),
        b"MSCF\0\0\0\0" + bytes(99),
        b"xar!\0\x1c\0\1" + bytes(99),
        bytes(32769) + b"CD001" + bytes(9999),
        b"!<thin>\n",
        b"\x1f\x9d\x90" + bytes(9),
        b"LZIP\1" + bytes(9),
        b"\x1c\0-lh5-" + bytes(40),
        b"#mtree\na type=link link=/etc\n",
        b"a type=dir\n./b type=link link=/etc\n",
        b"a type=dir\nb type=link link=../../evil\n\xd5g",
        b"a type=dir\rb type=link link=../../evil\r",
        b"# one\none\ntwo\nthree\nevil type=link link=/etc\n",
        lzma.compress(plain_tar("a"), lzma.FORMAT_ALONE),
        b"\x7fELF" + bytes(70000) + b"7z\xbc\xaf\x27\x1c" + bytes(99),
        ("A text.\n" + lines).encode(),
        ("begin-base64 644 x\n" + "A" * 60 + "\n====\n").encode(),
    ):
        for one in (content, gzipped(content), tar(("a", {"data": content})), zip_of("a", content=content)):
            refused(one, "not read here|uuencoded", tmp_path)


def test_members_of_static_libraries_are_looked_at(tmp_path: Path) -> None:
    """Finding 11, its siblings: bsdtar unpacks them by their names."""
    assert check(ar({"a.o/": b"\x7fELF", "b.o/": b"x"}), tmp_path) == 2
    names = b"a-very-long-name.o/\nb.o/\n"
    good = {"/": bytes(4), "//": names, "/0": b"x", "b.o/": b"y"}
    assert check(ar(good), tmp_path) == 2
    refused(ar({**good, "//": b"a-very-long-name.o/\n../evil-is-long.o/\n"}), "no plain one", tmp_path)
    refused(ar({"//": b"...../\n", "/3": b"x"}), "no name in the table", tmp_path)
    refused(ar({**good, "/3": b"x"}), "no name in the table", tmp_path)
    refused(ar({"#1/8": b"../evil\0x"}), "no plain name", tmp_path)
    refused(ar({"/etc/passwd": b"x"}), "is no file", tmp_path)
    refused(ar({"a.o/": b"x", "A.o/": b"y"}), "take the place", tmp_path)
    refused(deb(b"") + ar({"data.tar.gz": b""})[8:], "no Debian package", tmp_path)
    refused(ar({"a.tar/": plain_tar("../evil")}), "leads out", tmp_path)
    refused(ar({"a/": b"x"}).replace(b"100644", b"104755"), "another user", tmp_path)
    refused(ar({"a/": b"x"}) + b"tail", "no archive of ar", tmp_path)


@pytest.mark.parametrize("mode", [0o104755, 0o102755, 0o100666, 0o100646])
@pytest.mark.parametrize("made", [0x314, 0x014])
def test_an_entry_of_a_zip_has_the_mode_of_an_ordinary_file(mode: int, made: int, tmp_path: Path) -> None:
    """Finding 19: unzip sets modes of entries that say to be made under DOS, too."""
    refused(zip_parts([("a", {"attributes": mode << 16, "made": made})]), "another user", tmp_path)


def test_folders_of_a_zip_are_so_by_their_names(tmp_path: Path) -> None:
    refused(zip_parts([("a", {"attributes": 0x10})]), "folder by its attributes", tmp_path)
    refused(zip_parts([("a/", {"data": b"x", "attributes": 0})]), "has content", tmp_path)
    refused(zip_parts([("a", {"attributes": 0o40755 << 16})]), "neither file nor folder", tmp_path)
    refused(zip_parts([("a/", {"data": b"", "attributes": 0o40777 << 16})]), "anybody's", tmp_path)


def test_every_byte_of_a_zip_belongs_to_an_entry_of_its_directory(tmp_path: Path) -> None:
    """Finding 20: jar and bsdtar read the entries one after the other."""
    good, evil = ("good", {}), ("../evil", {"hidden": True})
    assert check(zip_parts([good]), tmp_path) == 1
    for entries in ([evil, good], [good, evil], [good, evil, ("b", {})]):
        refused(zip_parts(entries), "tools unpack it differently", tmp_path)
    refused(zip_parts([good], before=b"PK\3\4"), "does not begin where", tmp_path)
    refused(b"x" + zip_parts([good]), "something else before it", tmp_path)
    refused(zip_parts([good], between=b"x"), "between its entries", tmp_path)
    refused(zip_parts([good], behind=zip_parts([good])), "tools unpack it differently", tmp_path)
    refused(zip_parts([good]) + bytes(1), "does not end with a directory", tmp_path)
    refused(zip_parts([good]) + zip_parts([good]), "tools unpack it differently", tmp_path)
    described = struct.pack("<4s3L", b"PK\7\x08", zlib.crc32(b"x"), 3, 1)
    entry = {"method": 8, "flags": 8, "descriptor": described, "sizes": (0, 0, 0)}
    assert check(zip_parts([("a", entry)]), tmp_path) == 1
    refused(zip_parts([("a", {**entry, "descriptor": described[4:]})]), "described otherwise", tmp_path)
    refused(zip_parts([("a", {**entry, "sizes": (0, 0, 7)})]), "another size", tmp_path)
    stored = {"flags": 8, "descriptor": struct.pack("<4s3L", b"PK\7\x08", zlib.crc32(b"x"), 1, 1)}
    refused(zip_parts([("a", stored)]), "is stored", tmp_path)
    refused(zip_parts([("a", {"method": 12})]), "method 12", tmp_path)
    refused(zip_parts([("a", {"extra": extra(1, bytes(8))})]), "more than one size", tmp_path)
    refused(zip_parts([("a", {"flags": 1})]), "encrypted", tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        *("CON", "nul.txt", "COM1", "lib/aux.c", "LPT¹.x", "con .txt", "CONIN$", "Prn"),
        *("x.", "x ", "lib./a", "a:b", "a<b", "a>b", "a|b", "a?b", 'a"b', "a*b"),
        *("a;1", "a;", "LONGNA~1.TXT", "._a", "__MACOSX/a", "x" * 256, "a/" * 70 + "a"),
        *("\u202ea", "a\u200bb", "a\x7f", "a//b", "a/./b", "./../a", "././a"),
    ],
)
def test_a_name_means_the_same_file_everywhere(name: str, tmp_path: Path) -> None:
    """Finding 21."""
    for content in (tar((name, {})), zip_parts([(name, {})]), tar(("a", link(name)))):
        if name == "././a" and content == tar(("a", link(name))):
            continue
        refused(content, "", tmp_path)


def test_blobs_of_an_image_layout_are_compared(tmp_path: Path) -> None:
    """OCI: each blob has the digest that names it, and the size that its descriptor says."""
    layer = gzipped(plain_tar("a"))
    index, manifest, blobs = descriptors(layer)
    assert check(oci(index, manifest, blobs), tmp_path) == 6
    path = max(blobs, key=lambda one: len(blobs[one]))
    short = {**manifest, "layers": [{**manifest["layers"][0], "size": 1}]}
    other = {**manifest, "config": {**manifest["config"], "data": "e30K"}}
    image = "application/vnd.oci.image.manifest.v1+json"
    for content, why in (
        (oci(index, manifest, {**blobs, path: gzipped(plain_tar("b"))}), "another digest"),
        (oci(index, manifest, {name: data for name, data in blobs.items() if name != path}), "is missing"),
        (oci(index, manifest, {**blobs, f"blobs/sha256/{'0' * 64}": b""}), "another digest"),
        (oci(index, short, blobs), "and .* says 1"),
        (oci(index, other, blobs), "differs from what"),
        (oci(index, {**manifest, "layers": []}, blobs), "is in no manifest"),
        (oci(index, {**manifest, "manifests": []}, blobs), "a manifest and an index"),
        (oci(index, {**manifest, "schemaVersion": 1}, blobs), re.escape(f"not of the kind {image}")),
        (oci({**index, "manifests": [{}]}, manifest, blobs), "without digest"),
        (oci(index, manifest, blobs, evil=b"x"), "no part of an OCI image layout"),
        (oci(index, manifest, blobs, oci_layout=b'{"imageLayoutVersion": "1"}'), "not of version"),
        (oci(index, manifest, blobs, oci_layout=b'{"a": 1, "a": 2}'), "twice"),
    ):
        refused(content, why, tmp_path)
    evil = descriptors(gzipped(plain_tar("../evil")))
    refused(oci(*evil), "leads out", tmp_path)


def test_archives_in_archives_have_an_end(tmp_path: Path) -> None:
    content = b"x"
    for _ in range(9):
        content = gzipped(content)
    refused(content, "more than 8 deep", tmp_path)
    many = tar(*((f"{number}/a", {}) for number in range(100)))
    assert check(many, tmp_path) == 100
