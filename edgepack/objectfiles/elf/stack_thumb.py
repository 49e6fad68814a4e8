"""Frames and calls of functions in Thumb machine code.

Source of the encodings: Arm, ARMv7-M Architecture Reference Manual (DDI 0403), A7.7.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgepack.objectfiles.elf.machine_function import MachineFunction, signed

if TYPE_CHECKING:
    import lief

__all__ = ["read"]

#: Bytes that aligning SP to a cache line may cost.
_LINE = 64


def read(function: MachineFunction, binary: lief.ELF.Binary) -> None:
    """Fill in a function's frame and calls from its instructions."""
    constants: dict[int, int] = {}  # what movw, mov and ldr put into registers
    aligned = moved = False
    for at, first, second in _instructions(function, binary):
        if second is None:
            _note_literal(constants, at, first, binary)
            function.frame += _narrow_push(first, constants)
            moved |= first & 0xFF87 == 0x4685  # mov sp, rm
            aligned |= first & 0xFFC0 == 0x0980  # lsrs rd, rm, #6
            target = at + 4 + signed(first << 1, 12) if first & 0xF800 == 0xE000 else None
        else:
            _note_constant(constants, first, second)
            function.frame += _wide_push(first, second, constants)
            aligned |= first == 0xF36F  # bfc
            target = _wide_branch(at, first, second)
        # A branch inside of the function is a loop; a call of itself is none.
        call = second is not None and second & 0xD000 == 0xD000
        if target is not None and (call or not function.start <= target < function.end):
            function.calls.add(target)
    if aligned and moved:
        function.frame += _LINE


def _instructions(
    function: MachineFunction, binary: lief.ELF.Binary
) -> Iterator[tuple[int, int, int | None]]:
    """A function's instructions: (address, first halfword, second halfword or None), without literals."""
    data = bytes(binary.get_content_from_virtual_address(function.start, function.end - function.start))
    literals = _literals(binary, function)
    at = 0
    while at + 1 < len(data):
        if any(begin <= function.start + at < end for begin, end in literals):
            at += 2
            continue
        first = int.from_bytes(data[at : at + 2], "little")
        wide = first >> 11 in {0b11101, 0b11110, 0b11111}
        second = int.from_bytes(data[at + 2 : at + 4], "little") if wide else None
        yield function.start + at, first, second
        at += 4 if wide else 2


def _literals(binary: lief.ELF.Binary, function: MachineFunction) -> list[tuple[int, int]]:
    """Ranges of the function that the mapping symbols ($d, $t) call data; one without any is code alone."""
    marks = sorted(
        (int(symbol.value) & ~1, str(symbol.name)[:2])
        for symbol in binary.symtab_symbols
        if str(symbol.name)[:2] in {"$d", "$t"} and function.start <= int(symbol.value) & ~1 < function.end
    )
    ends = [*(at for at, _ in marks), function.end][1:]
    return [(at, end) for (at, kind), end in zip(marks, ends, strict=True) if kind == "$d"]


def _narrow_push(code: int, constants: dict[int, int]) -> int:
    """Bytes that a 16-bit instruction takes from SP; ``constants`` are what is known of registers."""
    if code & 0xFE00 == 0xB400:  # push {..., lr}
        return 4 * (code & 0x1FF).bit_count()
    if code & 0xFF80 == 0xB080:  # sub sp, #imm7
        return 4 * (code & 0x7F)
    if code & 0xFF87 == 0x4485:  # add sp, rm, of a negative number
        return max(0, -signed(constants.get(code >> 3 & 0xF, 0), 32))
    return 0


def _note_literal(constants: dict[int, int], at: int, code: int, binary: lief.ELF.Binary) -> None:
    """Remember what a load from behind the function's code puts into a register, where ARMv6-M has its
    constants."""
    if code & 0xF800 == 0x4800:  # ldr rt, [pc, #imm8]
        place = (at + 4 & ~3) + 4 * (code & 0xFF)
        word = bytes(binary.get_content_from_virtual_address(place, 4))
        constants[code >> 8 & 7] = int.from_bytes(word, "little")


def _wide_push(first: int, second: int, constants: dict[int, int]) -> int:
    """Bytes that a 32-bit instruction takes from SP; ``constants`` are what is known of registers."""
    if first == 0xE92D:  # push.w
        return 4 * second.bit_count()
    if first & 0xFFBF == 0xED2D and second & 0x0E00 == 0x0A00:  # vpush
        return 4 * (second & 0xFF)
    if first == 0xF84D and second & 0x0F00 == 0x0D00:  # str rt, [sp, #-imm8]!
        return second & 0xFF
    if first == 0xE96D:  # strd rt, rt2, [sp, #-imm8]!
        return 4 * (second & 0xFF)
    if second & 0x8F00 == 0x0D00:  # rd is sp
        if first & 0xFBEF == 0xF1AD:  # sub.w sp, sp, #const
            return _expand(first, second)
        if first & 0xFBFF == 0xF2AD:  # subw sp, sp, #imm12
            return _imm12(first, second)
        if first == 0xEBAD:  # sub.w sp, sp, rm
            return constants.get(second & 0xF, 0)
    return 0


def _note_constant(constants: dict[int, int], first: int, second: int) -> None:
    """Remember what movw, movt and mov.w put into a register."""
    register = second >> 8 & 0xF
    if first & 0xFBF0 == 0xF240:  # movw
        constants[register] = (first & 0xF) << 12 | _imm12(first, second)
    elif first & 0xFBF0 == 0xF2C0:  # movt
        constants[register] = (
            constants.get(register, 0) & 0xFFFF | ((first & 0xF) << 12 | _imm12(first, second)) << 16
        )
    elif first & 0xFBEF == 0xF04F:  # mov.w
        constants[register] = _expand(first, second)


def _imm12(first: int, second: int) -> int:
    return (first >> 10 & 1) << 11 | (second >> 12 & 7) << 8 | second & 0xFF


def _expand(first: int, second: int) -> int:
    """The constant that an instruction's 12 bits encode (ThumbExpandImm, DDI 0403, A5.3.2)."""
    value = _imm12(first, second)
    low = value & 0xFF
    if value >> 10 == 0:
        return (low, low << 16 | low, low << 24 | low << 8, low * 0x01010101)[value >> 8]
    rotation, word = value >> 7, 0x80 | value & 0x7F
    return (word >> rotation | word << 32 - rotation) & 0xFFFFFFFF


def _wide_branch(at: int, first: int, second: int) -> int | None:
    """Address to which bl, b.w or a conditional b.w goes; None for another instruction."""
    if first & 0xF800 != 0xF000 or not second & 0x8000:
        return None
    sign, j1, j2 = first >> 10 & 1, second >> 13 & 1, second >> 11 & 1
    if second & 0x1000:  # bl, b.w
        i1, i2 = 1 - (j1 ^ sign), 1 - (j2 ^ sign)
        offset = sign << 24 | i1 << 23 | i2 << 22 | (first & 0x3FF) << 12 | (second & 0x7FF) << 1
        return at + 4 + signed(offset, 25)
    if first >> 7 & 7 == 7 or second & 0x4000:  # not a branch: msr, hints, blx
        return None
    offset = sign << 20 | j2 << 19 | j1 << 18 | (first & 0x3F) << 12 | (second & 0x7FF) << 1
    return at + 4 + signed(offset, 21)
