"""The params file: a header with a table of tensors, then their data, which a device maps instead of reading.

The layout is described in ``templates/runtime/core/params.c``, which reads it, and in
``docs/reference/bundle.md``.
"""

from __future__ import annotations

import hashlib
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgepack.errors import CheckFailedError, InternalError
from edgepack.plan.dtypes import DTYPE_BYTES, DTYPE_CODE, DTYPE_NAME
from edgepack.plan.types import ALIGNMENT, Constant, Plan

__all__ = [
    "FORMAT_VERSION",
    "SIGNATURE_BYTES",
    "ParamsFile",
    "params_data_offset",
    "params_file_bytes",
    "read_params",
    "signed_message",
    "write_params",
    "write_signed",
]

FORMAT_VERSION = 1

MAGIC = b"EPPARAMS"
#: Fixed part of the header, little-endian; ``templates/runtime/core/params.c`` names the fields.
HEADER = struct.Struct("<8sIIQQQII32s32sI4xQ")
#: An entry of the table of tensors.
ENTRY = struct.Struct("<IIIII4xQQ32s")
#: Where the header's own SHA-256 lies in it; it is computed with these 32 bytes as zeros.
DIGEST_OFFSET = 80
#: Of what is signed; then the layout and the id.
_PURPOSE = b"edgepack params".ljust(16, b"\0")
#: The data starts at a multiple of this many bytes, a page of memory, so that what is mapped is aligned.
PAGE = 4096
#: Of a signature, which makes the header so much longer.
SIGNATURE_BYTES = 64
#: Bytes that are copied at once.
CHUNK = 1 << 20


@dataclass(frozen=True)
class ParamsFile:
    """What the header of a params file says; all sizes and offsets in bytes.

    Attributes:
        params_id: SHA-256 of the data: what ties the file to its library.
        data_offset: where the data starts in the file.
        data_bytes: size of the data.
        constants: the tensors, with offsets from the start of the data.
        version: that its signature is over; 0: none.
    """

    params_id: bytes
    data_offset: int
    data_bytes: int
    constants: tuple[Constant, ...]
    version: int = 0


def write_params(plan: Plan, data: Path, output: Path, *, listed: bool = True) -> bytes:
    """Write the params file of ``plan``: header, table of its constants, and their data.

    Args:
        plan: says where each constant lies in the data.
        data: a file with the bytes of all constants, each at its offset: the worker's ``params.bin``.
        output: the file to write.
        listed: whether it has the table, and its data begin with a page; firmware has no room for either.

    Returns:
        The params id, 32 bytes: SHA-256 of the data.

    Raises:
        InternalError: ``data`` does not have ``plan.params_bytes`` bytes, or a constant lies outside of it.
    """
    size = data.stat().st_size
    if size != plan.params_bytes:
        raise InternalError(
            f"The params of {plan.name!r} have {size} bytes, but its plan says {plan.params_bytes}."
        )
    for constant in plan.constants:
        if constant.offset % DTYPE_BYTES[constant.dtype] or constant.offset + constant.nbytes > size:
            raise InternalError(f"Constant {constant.name!r} of {plan.name!r} is misplaced in the params.")
    digest = hashlib.sha256()
    for chunk in _chunks(data):
        digest.update(chunk)
    params_id = digest.digest()
    header = _header(plan, params_id, listed=listed)
    with output.open("wb") as out:
        out.write(header)
        out.write(bytes(_data_offset(len(header), listed=listed) - len(header)))
        for chunk in _chunks(data):
            out.write(chunk)
    return params_id


def params_file_bytes(plan: Plan, *, listed: bool = True) -> int:
    """Size in bytes of the file that :func:`write_params` writes."""
    return params_data_offset(plan, listed=listed) + plan.params_bytes


def params_data_offset(plan: Plan, *, listed: bool = True) -> int:
    """Bytes from the start of the file that :func:`write_params` writes to its data."""
    return _data_offset(len(_header(plan, bytes(32), listed=listed)), listed=listed)


def signed_message(layout: bytes, params_id: bytes, version: int = 0) -> bytes:
    """What a signature of params is over, for a library with this layout: 80 bytes, and 8 more for a version
    that is not 0, which libraries that know no versions refuse."""
    return _PURPOSE + layout + params_id + (version.to_bytes(8, "little") if version else b"")


def write_signed(source: Path, signature: bytes, output: Path, version: int = 0) -> None:
    """Copy a params file, with a signature in its header.

    Args:
        source: a params file without one.
        signature: 64 bytes: of Ed25519, over :func:`signed_message`.
        output: the file to write.
        version: that the signature is over.

    Raises:
        CheckFailedError: ``source`` is no params file, or damaged.
    """
    found = read_params(source)
    with source.open("rb") as file, output.open("wb") as out:
        fixed = list(HEADER.unpack(file.read(HEADER.size)))
        rest = file.read(fixed[2] - HEADER.size)
        at = fixed[2]
        rest += signature
        data_offset = _data_offset(at + len(signature), listed=found.data_offset % PAGE == 0)
        fixed[2:5] = at + len(signature), data_offset + found.data_bytes, data_offset
        fixed[9:12] = bytes(32), at, version
        fixed[9] = hashlib.sha256(HEADER.pack(*fixed) + rest).digest()
        header = HEADER.pack(*fixed) + rest
        out.write(header + bytes(data_offset - len(header)))
        file.seek(found.data_offset)
        shutil.copyfileobj(file, out, CHUNK)


def read_params(path: Path) -> ParamsFile:
    """Read and check the header and table of a params file, but not the tensors' data.

    Raises:
        CheckFailedError: it is not a params file, or damaged.
    """
    with path.open("rb") as file:
        fixed = file.read(HEADER.size)
        if fixed[: len(MAGIC)] != MAGIC or len(fixed) < HEADER.size:
            raise CheckFailedError(f"{path} is not a params file.")
        _, version, header_bytes, file_bytes, data_offset, data_bytes, count, entry = HEADER.unpack(fixed)[:8]
        params_id, digest, _, release = HEADER.unpack(fixed)[8:]
        if version != FORMAT_VERSION:
            raise CheckFailedError(
                f"{path} has format version {version}; this edgepack reads {FORMAT_VERSION}."
            )
        if path.stat().st_size != file_bytes:
            raise CheckFailedError(
                f"{path} has {path.stat().st_size} bytes, but its header says {file_bytes}."
            )
        header = fixed + file.read(min(header_bytes, file_bytes) - HEADER.size)
    zeroed = header[:DIGEST_OFFSET] + bytes(32) + header[DIGEST_OFFSET + 32 :]
    consistent = (
        hashlib.sha256(zeroed).digest() == digest
        and file_bytes == data_offset + data_bytes
        and entry == ENTRY.size
        and HEADER.size + count * ENTRY.size <= len(header)
    )
    if not consistent:
        raise CheckFailedError(f"{path} has a damaged header.", hint="Copy or pack it again.")
    return ParamsFile(params_id, data_offset, data_bytes, tuple(_entries(header, count)), release)


def _header(plan: Plan, params_id: bytes, *, listed: bool) -> bytes:
    """The fixed header, the table and the pool of shapes and names, without the padding before the data."""
    pool = bytearray()
    table = bytearray()
    constants = plan.constants if listed else ()
    pool_offset = HEADER.size + len(constants) * ENTRY.size
    for c in constants:
        shape_offset = pool_offset + len(pool)
        pool += struct.pack(f"<{len(c.shape)}q", *c.shape)
        name = c.name.encode()
        name_offset = pool_offset + len(pool)
        pool += name + bytes(-len(name) % 8)
        table += ENTRY.pack(
            name_offset,
            len(name),
            DTYPE_CODE[c.dtype],
            len(c.shape),
            shape_offset,
            c.offset,
            c.nbytes,
            bytes.fromhex(c.sha256),
        )
    header_bytes = pool_offset + len(pool)
    data_offset = _data_offset(header_bytes, listed=listed)
    file_bytes = data_offset + plan.params_bytes

    def fixed(digest: bytes) -> bytes:
        return HEADER.pack(
            MAGIC,
            FORMAT_VERSION,
            header_bytes,
            file_bytes,
            data_offset,
            plan.params_bytes,
            len(constants),
            ENTRY.size,
            params_id,
            digest,
            0,
            0,
        )

    rest = bytes(table + pool)
    return fixed(hashlib.sha256(fixed(bytes(32)) + rest).digest()) + rest


def _entries(header: bytes, count: int) -> Iterator[Constant]:
    """The tensors of the table that follows the fixed part of the header."""
    for index in range(count):
        name_offset, name_bytes, dtype, rank, shape_offset, offset, nbytes, sha256 = ENTRY.unpack_from(
            header, HEADER.size + index * ENTRY.size
        )
        yield Constant(
            name=header[name_offset : name_offset + name_bytes].decode(),
            dtype=DTYPE_NAME[dtype],
            shape=struct.unpack_from(f"<{rank}q", header, shape_offset),
            nbytes=nbytes,
            sha256=sha256.hex(),
            offset=offset,
        )


def _data_offset(header_bytes: int, *, listed: bool = True) -> int:
    """Where the tensors' data starts in a file whose header and table have this many bytes."""
    step = PAGE if listed else ALIGNMENT
    return -(-header_bytes // step) * step


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk
