"""The headers of a shared library in Mach-O, as dyld reads them (``mach-o/loader.h`` of Apple's SDKs)."""

from __future__ import annotations

from collections.abc import Iterator

from edgepack.objectfiles.layout import LibraryFile, Part

__all__ = ["parts"]

_MACHINES = {"x86_64": 0x01000007, "aarch64": 0x0100000C}
_MAGIC, _MH_DYLIB = 0xFEEDFACF, 6
_HEADER = 32
_LC_SEGMENT_64, _LC_SYMTAB, _LC_DYSYMTAB = 0x19, 0x2, 0xB
_LC_DYLD_INFO = (0x22, 0x80000022)
#: Commands that name one range of the file: signature, function starts, data in code, exports, fixups, ...
_LINKEDIT_DATA = (0x1D, 0x1E, 0x26, 0x29, 0x2B, 0x2E, 0x80000033, 0x80000034)
#: Types of sections that take no room in the file.
_ZERO_FILL = (0x1, 0xC, 0x12)
_VM_PROT_WRITE = 2


def parts(file: LibraryFile, arch: str) -> list[Part]:
    """The header with its commands, all sections, and the tables behind them.

    Raises:
        ValueError: it is no shared library for this architecture, or something in it does not hold together;
            the text says what.
    """
    magic, machine, _, kind, count, size = file.unpack("header", "<6I", 0)
    if magic != _MAGIC:
        raise ValueError("it is no Mach-O file of 64 bits")
    if machine != _MACHINES.get(arch):
        raise ValueError(f"it is for another machine (CPU type {machine:#x}), not for {arch}")
    if kind != _MH_DYLIB:
        raise ValueError("its header is not that of a shared library")
    commands = Part("load commands", _HEADER, size)
    file.check(commands)
    found = [Part("header", 0, _HEADER), commands]
    at = _HEADER
    for number in range(count):
        command, length = file.unpack(f"load command {number}", "<2I", at)
        if length < 8 or length % 8 or at + length > _HEADER + size:
            raise ValueError(f"its load command {number} has {length} bytes")
        found += _named(file, f"load command {number}", command, at, length)
        at += length
    if not any(part.what.startswith("segment") for part in found):
        raise ValueError("it has nothing to be loaded")
    for part in found:
        file.check(part)
    return [part for part in found if not part.what.startswith("segment")]


def _named(file: LibraryFile, what: str, command: int, at: int, length: int) -> Iterator[Part]:
    """What of the file one load command names."""

    def words(first: int, number: int) -> tuple[int, ...]:
        if 8 + 4 * (first + number) > length:
            raise ValueError(f"its {what} has {length} bytes")
        return file.unpack(what, f"<{number}I", at + 8 + 4 * first)

    if command == _LC_SEGMENT_64:
        yield from _segment(file, what, at, length)
    elif command == _LC_SYMTAB:
        symbols, count, strings, size = words(0, 4)
        yield Part("table of symbols", symbols, count * 16)
        yield Part("table of names", strings, size)
    elif command == _LC_DYSYMTAB:
        indirect, count = words(12, 2)
        yield Part("table of indirect symbols", indirect, count * 4)
    elif command in _LC_DYLD_INFO:
        pairs = words(0, 10)
        for offset, size in zip(pairs[::2], pairs[1::2], strict=True):
            yield Part("data for dyld", offset, size)
    elif command in _LINKEDIT_DATA:
        offset, size = words(0, 2)
        yield Part(f"data of {what}", offset, size)


def _segment(file: LibraryFile, what: str, at: int, length: int) -> Iterator[Part]:
    if length < 72:
        raise ValueError(f"its {what} has {length} bytes")
    in_memory, offset, in_file, _, protection, sections, _ = file.unpack(what, "<QQQIIII", at + 32)
    if in_file > in_memory or in_memory > file.size + (1 << 31):
        raise ValueError(f"its segment of {what} does not fit into its place in memory")
    if length < 72 + 80 * sections:
        raise ValueError(f"its {what} has {length} bytes for {sections} sections")
    yield Part(f"segment of {what}", offset, in_file)
    for number in range(sections):
        size, start, _, _, _, flags = file.unpack(what, "<QIIIII", at + 72 + 80 * number + 40)
        if flags & 0xFF not in _ZERO_FILL:
            passive = not protection & _VM_PROT_WRITE
            yield Part(f"section {number} of {what}", start, size, passive)
