"""Reads the files of NumPy's that a user gives: ``.npy`` with one array, ``.npz`` with several by name.

``numpy.load`` believes a header before it looks at the file: it allocates what a shape asks for, or reads a
gigabyte of header. Here a file is read where it is regular, its arrays hold numbers, and take the room that
it has for them; what comes out of an archive is bounded before it is unpacked. Nothing is unpickled.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from edgepack.system.files import open_regular

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["ArrayFile", "ArrayFileError", "open_arrays"]

#: Bytes of a header; NumPy's own writes 64 to some hundreds.
_LONGEST_HEADER = 10_000
#: Dimensions of an array, as NumPy 1 has them.
_MOST_DIMENSIONS = 32
#: Bytes that all arrays of an archive may take: so many, or so many times its own where that is more. What
#: DEFLATE makes of numbers is seldom a tenth; of nothing but zeros it is a thousandth.
_UNPACKED, _TIMES = 1 << 30, 16
#: Bytes that are unpacked at once.
_PIECE = 1 << 20


class ArrayFileError(Exception):
    """A file is none of NumPy's, or what it says of itself is wrong; the text says how."""


@dataclass(frozen=True)
class ArrayFile:
    """An open file.

    Attributes:
        names: of an archive's arrays, in its order; None where the file is one array.
    """

    names: tuple[str, ...] | None
    _file: IO[bytes]
    _archive: zipfile.ZipFile | None = None
    _nbytes: int = 0

    def read(self, name: str = "") -> NDArray[Any]:
        """An array, of an archive by its name.

        Raises:
            ArrayFileError: it is damaged, holds no numbers, or says that it is larger than its file.
        """
        with _damage():
            if self._archive is None:
                return _array(self._file, self._nbytes)
            entry = next(one for one in self._archive.infolist() if _name_of(one) == name)
            with self._archive.open(entry) as file:
                return _array(file, entry.file_size)


@contextmanager
def open_arrays(path: Path) -> Iterator[ArrayFile]:
    """A user's file, until the block is left.

    Raises:
        ArrayFileError: it cannot be read, is no regular file, or is none of NumPy's.
    """
    with _damage():
        file = open_regular(path)
    with file:
        nbytes = os.fstat(file.fileno()).st_size
        with _damage():
            zipped = file.read(2) == b"PK"
            file.seek(0)
            archive = zipfile.ZipFile(file) if zipped else None
        if archive is None:
            yield ArrayFile(None, file, _nbytes=nbytes)
            return
        with archive:
            yield ArrayFile(_names(archive, nbytes), file, archive)


def _names(archive: zipfile.ZipFile, nbytes: int) -> tuple[str, ...]:
    """The names of an archive's arrays. ArrayFileError where NumPy wrote none such."""
    names = tuple(map(_name_of, archive.infolist()))
    if len(set(names)) < len(names):
        raise ArrayFileError("two arrays in it have one name")
    for one in archive.infolist():
        if one.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ArrayFileError(f"{one.filename!r:.80} is compressed as NumPy compresses nothing")
    unpacked, most = sum(one.file_size for one in archive.infolist()), max(_UNPACKED, _TIMES * nbytes)
    if unpacked > most:
        raise ArrayFileError(f"its {nbytes} bytes are {unpacked} when they are unpacked, of at most {most}")
    return names


def _name_of(entry: zipfile.ZipInfo) -> str:
    return entry.filename.removesuffix(".npy")


def _array(file: IO[bytes], room: int) -> NDArray[Any]:
    """The array that begins where a file stands.

    Args:
        room: bytes of the file, header and all.
    """
    import numpy as np

    shape, transposed, dtype, header = _header(file)
    count, there = prod(shape), room - header
    if (needed := count * dtype.itemsize) > there:
        raise ArrayFileError(f"its header says {dtype} {list(shape)}, {needed} bytes; {there} are there")
    array = np.empty(count, dtype)
    left = array.view(np.uint8).data if count else memoryview(b"")
    while left:
        piece = file.read(min(len(left), _PIECE))
        if not piece:
            raise ArrayFileError(f"{len(left)} bytes of its numbers are missing")
        left[: len(piece)] = piece
        left = left[len(piece) :]
    return array.reshape(shape[::-1]).transpose() if transposed else array.reshape(shape)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """What a header says: the shape, whether the first axis is the innermost one, the type; and its bytes."""
    from numpy.lib import format as npy

    version = npy.read_magic(file)
    readers = {(1, 0): ("<H", npy.read_array_header_1_0), (2, 0): ("<I", npy.read_array_header_2_0)}
    if version not in readers:  # (3, 0) has names of fields that are not Latin-1
        raise ArrayFileError(f"form {'.'.join(map(str, version))} of it is not that of an array of numbers")
    form, read = readers[version]
    field = file.read(struct.calcsize(form))
    (length,) = struct.unpack(form, field)
    if length > _LONGEST_HEADER:
        raise ArrayFileError(f"its header has {length} bytes, of at most {_LONGEST_HEADER}")
    try:
        shape, transposed, dtype = read(io.BytesIO(field + file.read(length)))
    except MemoryError as error:  # Python's parser says so of expressions that are nested too deep
        raise ArrayFileError("its header is nested too deep") from error
    sizes = all(type(size) is int and 0 <= size < 1 << 63 for size in shape)
    if not sizes or len(shape) > _MOST_DIMENSIONS:
        raise ArrayFileError(f"its header says a shape that none has: {shape!s:.80}")
    if dtype.kind not in "biufcV" or dtype.names is not None or not 0 < dtype.itemsize <= 32:
        raise ArrayFileError(f"it holds {dtype!s:.80}, which is no number")
    return shape, transposed, dtype, npy.MAGIC_LEN + len(field) + length


@contextmanager
def _damage() -> Iterator[None]:
    """Whatever a damaged file raises in zipfile, zlib and NumPy, which share no base class, is an
    ArrayFileError; but not a want of memory."""
    try:
        yield
    except (ArrayFileError, MemoryError):
        raise
    except Exception as error:
        raise ArrayFileError(str(error) or type(error).__name__) from error
