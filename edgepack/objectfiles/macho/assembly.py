"""An ARM64 Mach-O object as a text for an assembler of Linux: the same machine code for another linker.

Layouts and relocations: Apple's ``mach-o/reloc.h`` and ``mach-o/arm64/reloc.h``; *ELF for the Arm 64-bit
Architecture*. Symbols lose their underscore. Functions whose last two arguments are int32 are called by the
rules of Linux: *Apple's* pass those on the stack in 4 bytes each, Linux' in 8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from edgepack.errors import ToolchainError
from edgepack.objectfiles.macho.relocatable import Relocation, Section, Symbol, read_object

__all__ = ["as_assembly"]

_UNSIGNED, _SUBTRACTOR, _BRANCH26, _PAGE21, _PAGEOFF12, _GOT_PAGE21, _GOT_PAGEOFF12 = range(7)
_ADDEND = 10
_ZERO_FILL = (0x1, 0xC, 0x12)
_INSTRUCTIONS = 0x80000000
#: Arguments that registers hold.
_REGISTERS = 8


@dataclass(frozen=True)
class _Object:
    """The object's parts, and what its functions are renamed to."""

    name: str
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    renamed: Mapping[str, str]

    def label(self, symbol: Symbol) -> str:
        """A symbol as the text names it."""
        name = symbol.name.removeprefix("_")
        return f'"{self.renamed.get(name, name)}"'


def as_assembly(data: bytes, name: str, pointers: Mapping[str, int]) -> str:
    """The text, for clang's assembler and aarch64.

    Args:
        data: the object.
        name: of the file, for messages.
        pointers: of each function with pointers and then two int32 as arguments, how many pointers.

    Raises:
        ToolchainError: it is no 64-bit Mach-O object, or has relocations that kernels have no use for.
    """
    sections, symbols = read_object(data, name)
    defined = {symbol.name.removeprefix("_") for symbol in symbols if symbol.section}
    over = {n: count for n, count in pointers.items() if count >= _REGISTERS and n in defined}
    whole = _Object(name, sections, symbols, {n: f"{n}.apple" for n in over})
    lines: list[str] = []
    for number, section in enumerate(sections, 1):
        if section.segment != "__LD" and section.name != "__eh_frame":
            lines += _section(whole, number, section)
    for function, count in over.items():
        lines += _thunk(function, 8 * (count - _REGISTERS))
    return "\n".join([*lines, '.section .note.GNU-stack,"",@progbits', ""])


def _thunk(name: str, at: int) -> list[str]:
    """Moves the last argument to where Apple's code looks for it: the space is the called function's."""
    return [
        ".text",
        f'.globl "{name}"',
        f'"{name}":',
        f"ldr w16, [sp, #{at + 8}]",
        f"str w16, [sp, #{at + 4}]",
        f'b "{name}.apple"',
    ]


def _section(whole: _Object, number: int, section: Section) -> list[str]:
    if section.flags & _INSTRUCTIONS:
        kind = '"ax",@progbits'
    elif section.flags & 0xFF in _ZERO_FILL:
        kind = '"aw",@nobits'
    else:
        kind = '"aw",@progbits'  # constants may hold addresses, which the loader writes
    lines = [f".section .macho{number},{kind}", f".p2align {section.align}", f".Lmacho{number}:"]
    here = [symbol for symbol in whole.symbols if symbol.section == number]
    stops: dict[int, list[str]] = {}
    for symbol in here:
        label = whole.label(symbol)
        stops.setdefault(symbol.value - section.address, []).extend(
            [f".globl {label}"] * symbol.external + [f"{label}:"]
        )
    words: dict[int, tuple[int, str]] = {}
    for at, nbytes, text in _relocations(whole, section):
        if nbytes:
            words[at] = (nbytes, text)
        else:
            stops.setdefault(at, []).append(text)
    at = 0
    for end in sorted({*stops, *words, section.size}):
        lines += _bytes(section, at, end)
        at = end
        lines += stops.get(end, [])
        if end in words:
            nbytes, text = words[end]
            lines.append(text)
            at += nbytes
    return lines


def _bytes(section: Section, start: int, end: int) -> list[str]:
    if start >= end:
        return []
    if section.flags & 0xFF in _ZERO_FILL:
        return [f".zero {end - start}"]
    content = section.content[start:end]
    return [".byte " + ",".join(map(str, content[i : i + 32])) for i in range(0, len(content), 32)]


def _relocations(whole: _Object, section: Section) -> Iterator[tuple[int, int, str]]:
    """Each relocation's place, the bytes that its text stands for (0: it is beside them), and its text."""
    addend, less = 0, ""
    for relocation in section.relocations:
        if relocation.kind == _ADDEND:
            addend = (relocation.target ^ 0x800000) - 0x800000  # 24 bits with a sign
            continue
        if relocation.kind == _SUBTRACTOR:
            less = f" - {_target(whole, relocation, 0)}"
            continue
        if relocation.kind == _UNSIGNED:
            nbytes = 1 << relocation.length
            (held,) = struct.unpack_from({4: "<i", 8: "<q"}[nbytes], section.content, relocation.at)
            word = {4: ".long", 8: ".xword"}[nbytes]
            yield relocation.at, nbytes, f"{word} {_target(whole, relocation, held)}{less}"
        else:
            (instruction,) = struct.unpack_from("<I", section.content, relocation.at)
            kind = _elf_kind(whole.name, relocation, instruction)
            yield relocation.at, 0, f".reloc ., {kind}, {_target(whole, relocation, addend)}"
        addend, less = 0, ""


def _target(whole: _Object, relocation: Relocation, addend: int) -> str:
    if relocation.external:
        return f"{whole.label(whole.symbols[relocation.target])} + {addend}"
    base = whole.sections[relocation.target - 1].address
    return f".Lmacho{relocation.target} + {addend - base}"


def _elf_kind(name: str, relocation: Relocation, instruction: int) -> str:
    kinds = {
        _BRANCH26: "CALL26" if instruction >> 31 else "JUMP26",
        _PAGE21: "ADR_PREL_PG_HI21",
        _PAGEOFF12: _page_offset(instruction),
        _GOT_PAGE21: "ADR_GOT_PAGE",
        _GOT_PAGEOFF12: "LD64_GOT_LO12_NC",
    }
    if relocation.kind not in kinds:
        raise ToolchainError(f"{name}: a relocation of kind {relocation.kind} cannot be made one of Linux")
    return f"R_AARCH64_{kinds[relocation.kind]}"


def _page_offset(instruction: int) -> str:
    """ELF tells apart what the offset is scaled by: an addition, or the bytes that are loaded or stored."""
    if instruction & 0x3B000000 != 0x39000000:
        return "ADD_ABS_LO12_NC"
    wide = instruction & 0x04800000 == 0x04800000  # of a vector register, all of it
    return f"LDST{128 if wide else 8 << (instruction >> 30)}_ABS_LO12_NC"
