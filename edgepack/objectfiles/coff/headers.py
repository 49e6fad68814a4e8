"""The headers of a DLL, as Windows' loader reads them (Microsoft's PE Format)."""

from __future__ import annotations

from edgepack.objectfiles.layout import LibraryFile, Part

__all__ = ["parts"]

_MACHINES = {"x86_64": 0x8664, "aarch64": 0xAA64}
_DLL, _PE32_PLUS = 0x2000, 0x20B
_DIRECTORIES = 112  # offset in the optional header
_UNINITIALIZED, _WRITE = 0x80, 0x80000000
_MOST_SECTIONS = 96  # that Windows loads
#: Tables that the loader reads: exports, imports, exceptions, relocations, thread-local storage.
_TABLES = (0, 1, 3, 5, 9)


def parts(file: LibraryFile, arch: str) -> list[Part]:
    """The headers, and all sections.

    Raises:
        ValueError: it is no DLL for this architecture, or something in it does not hold together; the text
            says what.
    """
    if file.read("header", 0, 2) != b"MZ":
        raise ValueError("it is no PE file")
    (start,) = file.unpack("header", "<I", 0x3C)
    if file.read("header", start, 4) != b"PE\0\0":
        raise ValueError("it is no PE file")
    machine, sections, _, _, _, size, flags = file.unpack("header", "<HHIIIHH", start + 4)
    if machine != _MACHINES.get(arch):
        raise ValueError(f"it is for another machine ({machine:#x}), not for {arch}")
    optional = start + 24
    (magic,) = file.unpack("header", "<H", optional)
    if not flags & _DLL or magic != _PE32_PLUS or size < _DIRECTORIES:
        raise ValueError("its header is not that of a DLL")
    alignment, file_alignment = file.unpack("header", "<II", optional + 32)
    image, headers = file.unpack("header", "<II", optional + 56)
    table = Part("table of sections", optional + size, sections * 40)
    if not 0 < sections <= _MOST_SECTIONS or headers < table.offset + table.size:
        raise ValueError(f"it has {sections} sections in headers of {headers} bytes")
    if not _power_of_two(alignment) or not _power_of_two(file_alignment) or image > file.size + (1 << 31):
        raise ValueError("its header is not that of a DLL")
    found = [Part("headers", 0, headers)]
    file.check(found[0])
    end = headers
    for number in range(sections):
        in_memory, address, in_file, offset, *_, kind = file.unpack(
            table.what, "<IIIIIIHHI", table.offset + 40 * number + 8
        )
        if address < end or address % alignment or address + max(in_memory, 1) > image:
            raise ValueError(f"its section {number} has the address {address:#x}")
        end = address + in_memory
        if in_file and not kind & _UNINITIALIZED:
            found.append(Part(f"section {number}", offset, in_file, not kind & _WRITE))
            file.check(found[-1])
    (count,) = file.unpack("header", "<I", optional + _DIRECTORIES - 4)
    for number in _TABLES:
        if number < count and _DIRECTORIES + 8 * number + 8 <= size:
            address, length = file.unpack("header", "<II", optional + _DIRECTORIES + 8 * number)
            if address and address + length > image:
                raise ValueError(f"its table {number} lies outside of it")
    return found


def _power_of_two(value: int) -> bool:
    return value > 0 and not value & (value - 1)
