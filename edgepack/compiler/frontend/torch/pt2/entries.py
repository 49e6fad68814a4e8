"""The entries of a ``.pt2`` archive: their names and sizes, and a copy of what was looked at.

Two readers of zip files may see two archives in one file, so PyTorch reads a copy that is written here.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from typing import IO

from edgepack.compiler.frontend.torch.pt2.forms import RefusedError
from edgepack.compiler.frontend.torch.pt2.payloads import Room
from edgepack.compiler.frontend.torch.pt2.pickles import rewritten_pickle

__all__ = ["Part", "check_entries", "inner_archive", "rewritten", "small_text"]

#: What torch.export.save writes, below a folder of any name.
_ENTRIES = re.compile(
    r"models/\w+\.json|data/(?:weights|constants)/\w+(?:\.\w+)?|data/sample_inputs/\w+\.pt|extra/.+"
    r"|archive_format|archive_version|byteorder|version|\.format_version|\.storage_alignment"
    r"|\.data/(?:version|serialization_id)"
)
#: Small ones, and what is in them.
_SMALL = {
    "archive_format": r"pt2",
    "byteorder": r"little",
    **dict.fromkeys(
        ("archive_version", "version", ".format_version", ".storage_alignment", ".data/version"), r"\d{1,4}"
    ),
}
_SMALL_BYTES = 64
_MOST_ENTRIES = 200_000
_PICKLE_BYTES = 64 << 20
#: Of an archive that ``torch.save`` wrote.
_INNER = re.compile(
    r"data\.pkl|data/\d{1,7}|" + "|".join(map(re.escape, _SMALL)) + r"|\.data/serialization_id"
)

#: What writes an entry of the copy.
_Writer = Callable[[IO[bytes]], object]
#: Of a copy: bytes, an entry of the archive that is copied, or what writes it.
Part = bytes | zipfile.ZipInfo | _Writer


def check_entries(
    archive: zipfile.ZipFile, nbytes: int, known: re.Pattern[str] = _ENTRIES
) -> dict[str, zipfile.ZipInfo]:
    """The entries of an archive by their names below its folder.

    Args:
        nbytes: of the file.

    Raises:
        RefusedError: an entry is not one that PyTorch writes.
    """
    listed = archive.infolist()
    if len(listed) > _MOST_ENTRIES:
        raise RefusedError(f"it has {len(listed)} entries; {_MOST_ENTRIES} are allowed")
    found = {one.filename.partition("/")[2]: one for one in listed}
    tops = {one.filename.partition("/")[0] for one in listed}
    if len({name.lower() for name in found}) < len(listed) or len(tops) > 1:
        raise RefusedError("two entries in it have one name, or it has two folders")
    if not all(re.fullmatch(r"[^\x00-\x1f\\:]{1,255}", top) and top != ".." for top in tops):
        raise RefusedError("its folder has no name")
    for name, one in found.items():
        if name.startswith("data/aotinductor/"):
            raise RefusedError("it holds libraries that AOTInductor compiled")
        if re.match(r"data/constants/(?:custom|opaque)_obj", name):
            raise RefusedError(f"{name!r:.80} in it is a pickled object")
        if not known.fullmatch(name):
            raise RefusedError(f"{name!r:.80} in it is nothing that torch.export.save writes")
        if one.compress_type != zipfile.ZIP_STORED:
            raise RefusedError(f"{name} is compressed, which torch.export.save never does")
        if one.file_size != one.compress_size or one.flag_bits & 0x1:
            raise RefusedError(f"{name} is encrypted, or has two sizes")
    if sum(one.file_size for one in listed) > nbytes:
        raise RefusedError("its entries are larger together than the file")
    return found


def small_text(archive: zipfile.ZipFile, name: str, entry: zipfile.ZipInfo) -> bytes | None:
    """What is in a small entry that says a version or an order of bytes; None for any other entry.

    Raises:
        RefusedError: it says something else.
    """
    if name not in _SMALL:
        return None
    text = archive.read(entry) if entry.file_size <= _SMALL_BYTES else b""
    if not re.fullmatch(_SMALL[name].encode("ascii"), text.strip()):
        raise RefusedError(f"{name} in it is {text[:40]!r}")
    return text.strip()


def inner_archive(stream: IO[bytes], nbytes: int, room: Room) -> _Writer:
    """Looks through what ``torch.save`` wrote. Returns what writes a copy of it.

    Args:
        stream: the archive, which can be sought in.
        nbytes: of it.
        room: is taken from.

    Raises:
        RefusedError: it holds more than tensors.
    """
    if nbytes == 0:  # PyTorch's form of "there are none"
        return lambda _: None
    with zipfile.ZipFile(stream) as archive:
        entries = check_entries(archive, nbytes, _INNER)
        pickled = entries.get("data.pkl")
        if pickled is None or pickled.file_size > _PICKLE_BYTES:
            raise RefusedError("holds no pickle, or one that is too large")
        files = {name[5:]: one.file_size for name, one in entries.items() if name.startswith("data/")}
        made, used = rewritten_pickle(archive.read(pickled), files, room)
        small = {name: small_text(archive, name, one) for name, one in entries.items()}

    def write(written: IO[bytes]) -> None:
        with zipfile.ZipFile(stream) as archive, tempfile.TemporaryFile() as whole:
            texts = {f"archive/{name}": text for name, text in small.items() if text is not None}
            numbers = {f"archive/data/{key}": entries[f"data/{key}"] for key in sorted(used)}
            with zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED) as copy:
                rewritten(archive, copy, {"archive/data.pkl": made, **texts, **numbers})
            whole.seek(0)
            shutil.copyfileobj(whole, written, 1 << 20)

    return write


def rewritten(archive: zipfile.ZipFile, copy: zipfile.ZipFile, parts: Mapping[str, Part]) -> None:
    """Write the entries of a copy.

    Args:
        archive: what entries among the parts are of.
        parts: contents by name.
    """
    for name, part in parts.items():
        with copy.open(zipfile.ZipInfo(name), "w", force_zip64=True) as written:
            if isinstance(part, bytes):
                written.write(part)
            elif isinstance(part, zipfile.ZipInfo):
                with archive.open(part) as read:
                    shutil.copyfileobj(read, written, 1 << 20)
            else:
                part(written)
