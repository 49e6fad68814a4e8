"""The headers of a shared library in ELF, as the loaders of Linux and Android read them (System V gABI,
chapters 4 and 5)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from edgepack.objectfiles.layout import LibraryFile, Part

__all__ = ["parts"]

#: By architecture: bits, and the number that a file says.
_MACHINES = {"x86_64": (64, 62), "aarch64": (64, 183), "arm": (32, 40), "riscv64": (64, 243)}
_ET_DYN = 3
_PT_LOAD, _PT_DYNAMIC = 1, 2
_SHT_PROGBITS, _SHT_NOBITS = 1, 8
_SHF_WRITE = 1
#: Tags of the dynamic section that hold an address, by the tag of the size of what lies there (0: unknown).
_ADDRESSES = {
    **{5: 10, 7: 8, 17: 18, 23: 2, 25: 27, 26: 28, 32: 33, 36: 35},  # STRTAB, RELA, REL, JMPREL, arrays, RELR
    **dict.fromkeys((4, 6, 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFE), 0),  # HASH, SYMTAB, versions
}
_REQUIRED = (5, 6)  # DT_STRTAB, DT_SYMTAB
_MOST_HEADERS = 4096


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    in_file: int
    in_memory: int
    alignment: int


def parts(file: LibraryFile, arch: str) -> list[Part]:
    """The headers, and all sections.

    Raises:
        ValueError: it is no shared library for this architecture, or something in it does not hold together;
            the text says what.
    """
    bits, machine = _MACHINES.get(arch, (64, -1))
    order, word = ("<", "Q" if bits == 64 else "I")
    ident = file.read("header", 0, 16)
    if ident[:4] != b"\x7fELF":
        raise ValueError("it is no ELF file")
    form = f"{order}HHI{word * 3}IHHHHHH"
    kind, said, _, _, segments_at, sections_at, _, size, each, count, each_section, sections, _ = file.unpack(
        "header", form, 16
    )
    if (ident[4], ident[5], said) != (bits // 32, 1, machine):
        raise ValueError(f"it is for another machine (ELF class {ident[4]}, machine {said}), not for {arch}")
    if kind != _ET_DYN or size != 16 + struct.calcsize(form) or each != (56 if bits == 64 else 32):
        raise ValueError("its header is not that of a shared library")
    if not 0 < count <= _MOST_HEADERS or sections > _MOST_HEADERS:
        raise ValueError(f"it has {count} segments and {sections} sections")
    table = Part("table of segments", segments_at, count * each)
    segments = list(_segments(file, table, order, bits))
    _check_segments(file, segments)
    _check_dynamic(file, segments, order + word)
    found = [Part("header", 0, size), table]
    if sections:
        if each_section != (64 if bits == 64 else 40):
            raise ValueError("its header is not that of a shared library")
        section_table = Part("table of sections", sections_at, sections * each_section)
        found += [section_table, *_sections(file, section_table, order, bits)]
    return found


def _segments(file: LibraryFile, table: Part, order: str, bits: int) -> Iterator[_Segment]:
    data = file.read(*table[:3])
    if bits == 64:
        for kind, _, offset, address, _, in_file, in_memory, alignment in struct.iter_unpack(
            f"{order}IIQQQQQQ", data
        ):
            yield _Segment(kind, offset, address, in_file, in_memory, alignment)
    else:
        for kind, offset, address, _, in_file, in_memory, _, alignment in struct.iter_unpack(
            f"{order}IIIIIIII", data
        ):
            yield _Segment(kind, offset, address, in_file, in_memory, alignment)


def _check_segments(file: LibraryFile, segments: Sequence[_Segment]) -> None:
    """Raise ValueError for segments that cannot be mapped."""
    end = 0
    for number, segment in enumerate(segments):
        if segment.in_file:
            file.check(Part(f"segment {number}", segment.offset, segment.in_file))
        if segment.alignment & (segment.alignment - 1):
            raise ValueError(f"its segment {number} is aligned to {segment.alignment} bytes")
        if segment.kind != _PT_LOAD:
            continue
        page = max(segment.alignment, 1)
        if segment.in_memory < segment.in_file or (segment.address - segment.offset) % page:
            raise ValueError(f"its segment {number} does not fit into its place in memory")
        if segment.address < end or segment.address + segment.in_memory > file.size + (1 << 31):
            raise ValueError(f"its segment {number} has the address {segment.address:#x}")
        end = segment.address + segment.in_memory
    if end == 0:
        raise ValueError("it has nothing to be loaded")


def _check_dynamic(file: LibraryFile, segments: Sequence[_Segment], form: str) -> None:
    """Raise ValueError unless there is one dynamic section, whose tables lie in what is loaded."""
    dynamic = [segment for segment in segments if segment.kind == _PT_DYNAMIC]
    if len(dynamic) != 1:
        raise ValueError(f"it has {len(dynamic)} dynamic sections")
    data = file.read("dynamic section", dynamic[0].offset, dynamic[0].in_file)
    step = struct.calcsize(form) * 2
    tags: dict[int, int] = {}
    for tag, value in struct.iter_unpack(f"{form[0]}{form[1:] * 2}", data[: len(data) // step * step]):
        if tag == 0:
            break
        tags[tag] = value
    else:
        raise ValueError("its dynamic section has no end")
    loaded = [segment for segment in segments if segment.kind == _PT_LOAD]
    if not any(_holds(segment, dynamic[0].address, dynamic[0].in_file) for segment in loaded):
        raise ValueError("its dynamic section is not loaded")
    missing = [tag for tag in _REQUIRED if tag not in tags]
    if missing:
        raise ValueError(f"its dynamic section lacks tag {missing[0]}")
    for tag, size_tag in _ADDRESSES.items():
        if tag in tags and not any(_holds(s, tags[tag], tags.get(size_tag, 0)) for s in loaded):
            raise ValueError(f"its dynamic section (tag {tag:#x}) names what is not loaded")


def _holds(segment: _Segment, address: int, size: int) -> bool:
    return segment.address <= address and address + size <= segment.address + segment.in_file


def _sections(file: LibraryFile, table: Part, order: str, bits: int) -> Iterator[Part]:
    form = f"{order}IIQQQQIIQQ" if bits == 64 else f"{order}IIIIIIIIII"
    for number, (_, kind, flags, _, offset, size, *_) in enumerate(
        struct.iter_unpack(form, file.read(*table[:3]))
    ):
        if kind in {0, _SHT_NOBITS}:
            continue
        part = Part(f"section {number}", offset, size, kind == _SHT_PROGBITS and not flags & _SHF_WRITE)
        file.check(part)
        yield part
