"""Frames and calls of functions in RISC-V machine code of 32 bits.

Source of the encodings: The RISC-V Instruction Set Manual, volume I: 2.2 (formats), 26 (compressed).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgepack.objectfiles.elf.machine_function import MachineFunction, signed

if TYPE_CHECKING:
    import lief

__all__ = ["read"]

_RA, _SP, _T0 = 1, 2, 5
_LUI, _AUIPC, _OP_IMM, _OP, _JAL, _JALR = 0x37, 0x17, 0x13, 0x33, 0x6F, 0x67
#: As compressed instructions are told apart: two lowest bits, then the three highest.
_C_ADDI, _C_JAL, _C_LI, _C_LUI, _C_J, _C_JR = (1, 0), (1, 1), (1, 2), (1, 3), (1, 5), (2, 4)


def read(function: MachineFunction, binary: lief.ELF.Binary) -> None:
    """Fill in a function's frame and calls from its instructions."""
    constants: dict[int, int] = {}  # what lui and addi put into registers
    page: tuple[int, int] | None = None  # register and value of the auipc before
    for at, code in _instructions(function, binary):
        if code & 3 != 3:
            _read_compressed(function, at, code, constants)
            page = None
            continue
        operation, rd, rs1 = code & 0x7F, code >> 7 & 31, code >> 15 & 31
        if operation == _JAL:
            _branch(function, at + _jump(code), call=rd != 0)
        elif operation == _JALR:
            if page is not None and page[0] == rs1:
                _branch(function, page[1] + signed(code >> 20, 12), call=rd != 0)
        else:
            _note(function, code, constants)
        page = (rd, at + (code & ~0xFFF) & 0xFFFFFFFF) if operation == _AUIPC else None


def _instructions(function: MachineFunction, binary: lief.ELF.Binary) -> Iterator[tuple[int, int]]:
    """A function's instructions of 2 or 4 bytes: (address, code). No data lie between them."""
    data = bytes(binary.get_content_from_virtual_address(function.start, function.end - function.start))
    at = 0
    while at + 1 < len(data):
        nbytes = 4 if data[at] & 3 == 3 else 2
        yield function.start + at, int.from_bytes(data[at : at + nbytes], "little")
        at += nbytes


def _branch(function: MachineFunction, target: int, *, call: bool) -> None:
    """A jump inside of the function is a loop; a call of itself is none."""
    target &= 0xFFFFFFFF
    if call or not function.start <= target < function.end:
        function.calls.add(target)


def _note(function: MachineFunction, code: int, constants: dict[int, int]) -> None:
    """What an instruction of 4 bytes does to SP, or to a register that is subtracted from it."""
    operation, rd, rs1, kind = code & 0x7F, code >> 7 & 31, code >> 15 & 31, code >> 12 & 7
    immediate = signed(code >> 20, 12)
    if operation == _LUI:
        constants[rd] = signed(code & ~0xFFF, 32)
    elif operation == _OP_IMM and kind == 0 and rd == rs1 == _SP:  # addi sp, sp, imm
        function.frame += max(0, -immediate)
    elif operation == _OP_IMM and kind == 0 and rd != _SP:  # addi rd, rs1, imm
        constants[rd] = (constants.get(rs1, 0) if rs1 else 0) + immediate
    elif operation == _OP_IMM and kind == 7 and rd == _SP:  # andi sp, sp, -alignment
        function.frame += -immediate
    elif operation == _OP and kind == 0 and rd == rs1 == _SP:  # add or sub sp, sp, rs2
        value = constants.get(code >> 20 & 31, 0)
        function.frame += max(0, value if code >> 30 & 1 else -value)


def _read_compressed(function: MachineFunction, at: int, code: int, constants: dict[int, int]) -> None:
    """The same of an instruction of 2 bytes."""
    what, rd, rs2 = (code & 3, code >> 13), code >> 7 & 31, code >> 2 & 31
    immediate = signed((code >> 12 & 1) << 5 | rs2, 6)
    if what in {_C_JAL, _C_J}:
        _branch(function, at + _compressed_jump(code), call=what == _C_JAL)
    elif what == _C_ADDI:
        if rd == _SP:
            function.frame += max(0, -immediate)
        else:
            constants[rd] = constants.get(rd, 0) + immediate
    elif what == _C_LI:
        constants[rd] = immediate
    elif what == _C_LUI:
        if rd == _SP:  # c.addi16sp
            function.frame += max(0, -_addi16sp(code))
        else:
            constants[rd] = immediate << 12
    elif what == _C_JR and rs2 and code >> 12 & 1 and rd == _SP:  # c.add sp, rs2
        function.frame += max(0, -constants.get(rs2, 0))


def _jump(code: int) -> int:
    """Offset of jal."""
    bits = (code >> 31) << 20 | (code >> 12 & 0xFF) << 12 | (code >> 20 & 1) << 11 | (code >> 21 & 0x3FF) << 1
    return signed(bits, 21)


#: Where the bits of c.j and c.addi16sp belong, from bit 12 on down.
_JUMP_BITS = (11, 4, 9, 8, 10, 6, 7, 3, 2, 1, 5)
_ADDI16SP_BITS = {12: 9, 6: 4, 5: 6, 4: 8, 3: 7, 2: 5}


def _compressed_jump(code: int) -> int:
    """Offset of c.j and c.jal."""
    return signed(sum((code >> 12 - i & 1) << bit for i, bit in enumerate(_JUMP_BITS)), 12)


def _addi16sp(code: int) -> int:
    return signed(sum((code >> at & 1) << bit for at, bit in _ADDI16SP_BITS.items()), 10)
