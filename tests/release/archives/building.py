"""Archives for tests, good and bad, byte for byte."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "FOLDER",
    "ar",
    "deb",
    "descriptor",
    "descriptors",
    "extra",
    "gzipped",
    "link",
    "oci",
    "pax",
    "plain_tar",
    "record",
    "resummed",
    "tar",
    "zip_of",
    "zip_parts",
]

Fields = Mapping[str, Any]
#: The fields of a folder's entry.
FOLDER: Fields = {"type": tarfile.DIRTYPE, "mode": 0o755}


def tar(*members: tuple[str, Fields], form: int = tarfile.GNU_FORMAT) -> bytes:
    """A tar archive of (name, fields of TarInfo) with content ``data``, or zeros of its size."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, fields in members:
            info = tarfile.TarInfo(name)
            data = fields.get("data", bytes(fields.get("size", 0)))
            for key, value in {**fields, "size": len(data)}.items():
                if key != "data":
                    setattr(info, key, value)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def plain_tar(*names: str) -> bytes:
    """Of files that have a few bytes each."""
    return tar(*((name, {"data": b"of " + name.encode()}) for name in names))


def link(target: str) -> Fields:
    """The fields of a symbolic link."""
    return {"type": tarfile.SYMTYPE, "linkname": target}


def resummed(block: bytes) -> bytes:
    """A header with the checksum that it should have."""
    rest = block[:148] + b" " * 8 + block[156:]
    return block[:148] + b"%06o\0 " % sum(rest) + block[156:]


def pax(data: bytes, flag: bytes = b"x", size: int | None = None) -> bytes:
    """A header of pax with its records, as blocks before an entry's."""
    block = tar(("PaxHeader/x", {}), form=tarfile.USTAR_FORMAT)[:512]
    block = (
        block[:124] + b"%011o\0" % (len(data) if size is None else size) + block[136:156] + flag + block[157:]
    )
    return resummed(block) + data + bytes(-len(data) % 512)


def record(keyword: str, value: str) -> bytes:
    """A record of pax, with its length."""
    text = f" {keyword}={value}\n".encode()
    size = len(text) + 1
    while len(str(size)) + len(text) != size:
        size = len(str(size)) + len(text)
    return str(size).encode() + text


def gzipped(data: bytes) -> bytes:
    """As gzip, without a time."""
    return gzip.compress(data, mtime=0)


def zip_of(
    *names: str, mode: int = 0o100644, content: bytes = b"x", method: int = zipfile.ZIP_DEFLATED
) -> bytes:
    """A zip archive of files that have the same mode and content; a folder's name ends with ``/``."""
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", method) as archive:
        warnings.simplefilter("ignore", UserWarning)  # two entries of one name
        for name in names:
            info = zipfile.ZipInfo("x", (2020, 1, 1, 0, 0, 0))
            info.filename, info.external_attr = name, mode << 16
            archive.writestr(info, b"" if name.endswith("/") else content, method)
    return out.getvalue()


def extra(kind: int, data: bytes) -> bytes:
    """An extra field of zip."""
    return struct.pack("<2H", kind, len(data)) + data


def zip_parts(
    entries: Sequence[tuple[str, Fields]], *, before: bytes = b"", between: bytes = b"", behind: bytes = b""
) -> bytes:
    """A zip archive whose headers say what ``entries`` says of each.

    Args:
        entries: name, and of: ``data``, ``method``, ``flags``, ``local`` (the name in the local header),
            ``extra``, ``local_extra``, ``attributes``, ``crc``, ``made``, ``hidden`` (not in the directory),
            ``descriptor`` (bytes behind the data), ``sizes`` (of the local header).
        before: stands before all entries; their offsets are right.
        between: stands between entries and directory.
        behind: the comment.
    """
    body, directory, count = before, b"", 0
    for name, said in entries:
        data, method = said.get("data", b"x"), said.get("method", 0)
        packed = zlib.compress(data, wbits=-15) if method == 8 else data
        flags = said.get("flags", 0 if name.isascii() else 0x800)
        crc, raw = said.get("crc", zlib.crc32(data)), name.encode()
        local = said.get("local", name).encode()
        local_extra, sizes = said.get("local_extra", b""), said.get("sizes", (crc, len(packed), len(data)))
        offset = len(body)
        head = struct.pack(
            "<4s5H3L2H", b"PK\3\4", 20, flags, method, 0, 33, *sizes, len(local), len(local_extra)
        )
        body += head + local + local_extra + packed + said.get("descriptor", b"")
        if said.get("hidden"):
            continue
        count += 1
        more = said.get("extra", b"")
        head = struct.pack("<4s6H", b"PK\1\2", said.get("made", 0x314), 20, flags, method, 0, 33)
        head += struct.pack("<3L5H", crc, len(packed), len(data), len(raw), len(more), 0, 0, 0)
        head += struct.pack("<2L", said.get("attributes", 0o100644 << 16), offset)
        directory += head + raw + more
    body += between
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(directory), len(body), len(behind))
    return body + directory + end + behind


def ar(members: Mapping[str, bytes]) -> bytes:
    """An archive of ar, of names as the header has them."""
    text = b"!<arch>\n"
    for name, content in members.items():
        text += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
        text += content + b"\n" * (len(content) % 2)
    return text


def deb(data: bytes) -> bytes:
    """A Debian package with this archive of data."""
    control = gzipped(tar(("./control", {})))
    return ar({"debian-binary": b"2.0\n", "control.tar.gz": control, "data.tar.gz": data})


def descriptor(content: bytes, kind: str = "text/plain", **more: Any) -> dict[str, Any]:
    """What OCI says of a blob."""
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return {"mediaType": kind, "digest": digest, "size": len(content), **more}


def descriptors(layer: bytes) -> tuple[dict[str, Any], dict[str, Any], dict[str, bytes]]:
    """An image layout's index and manifest, and its blobs without that of the manifest."""
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor(b"{}", "application/vnd.oci.empty.v1+json", data="e30="),
        "layers": [descriptor(layer, "application/x.tar+gzip")],
    }
    index = {"schemaVersion": 2, "manifests": []}
    blobs = {f"blobs/sha256/{hashlib.sha256(one).hexdigest()}": one for one in (b"{}", layer)}
    return index, manifest, blobs


def oci(
    index: Mapping[str, Any], manifest: Mapping[str, Any], blobs: Mapping[str, bytes], **more: bytes
) -> bytes:
    """The archive of an image layout; the index gets the manifest, which gets its blob."""
    raw = json.dumps(manifest).encode()
    manifests = [*index["manifests"], descriptor(raw, "application/vnd.oci.image.manifest.v1+json")]
    files = {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": json.dumps({**index, "manifests": manifests}).encode(),
        f"blobs/sha256/{hashlib.sha256(raw).hexdigest()}": raw,
        **blobs,
        **{name.replace("_", "-"): data for name, data in more.items()},
    }
    return tar(*((name, {"data": data}) for name, data in files.items()))
