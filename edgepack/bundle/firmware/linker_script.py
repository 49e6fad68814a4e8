"""The linker script for a board of the emulator: its memories, and which section goes into which."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from edgepack.bundle.firmware.boards import BOARDS, Places, board_script, machine
from edgepack.config.device import Device
from edgepack.config.memories import FLASH, RAM
from edgepack.plan.memories import ParamsPiece, Placed
from edgepack.plan.types import ALIGNMENT
from edgepack.render.templates import render

__all__ = ["ARENA_SECTION", "copied_memories", "linker_script"]

#: The section of the example's array, and of params, where a device names no memories.
ARENA_SECTION, PARAMS_SECTION = ".bss.edgepack.session", ".rodata.edgepack"
#: What a session takes beside its arena, at most; and the params' header or id: bytes.
_SESSION_BYTES, _HEADER_BYTES = 8 << 10, 128
_REGION = re.compile(r"^ *([A-Z][A-Z0-9_]*) *\(", re.MULTILINE)
#: Where the board's memory for test data ends, from whose top those memories are taken that the board lacks.
_TEST = re.compile(r"^ *TEST *\(.*ORIGIN = (0x[0-9a-fA-F]+), *LENGTH = ([0-9]+)M", re.MULTILINE)


def copied_memories(placed: Placed | None) -> list[str]:
    """The memories whose params start code copies."""
    return [] if placed is None else [piece.memory for piece in placed.pieces if piece.loaded_from]


def linker_script(device: Device, placed: Placed | None = None, places: Places | None = None) -> str:
    """The script for a device's board, for a model whose parts lie as ``placed`` says; with ``places`` its
    params are not in the image."""
    if places is not None and placed is not None:
        placed = replace(placed, pieces=())
    board = board_script(device).read_text(encoding="utf-8")
    regions = ""
    values: dict[str, Any] = {
        "params_section": PARAMS_SECTION,
        "arena_section": ARENA_SECTION,
        "arena_region": RAM.upper(),
        "far_banks": [],
        "pieces": [],
        "copied": copied_memories(placed),
        "places": places,
    }
    if placed is not None:
        regions = _regions(device, board, placed)
        flash = [one.section for one in placed.pieces if one.memory == FLASH]
        values |= {
            "params_section": flash[0] if flash else PARAMS_SECTION,
            "arena_section": placed.arena_section,
            "arena_region": placed.banks[0].memory.upper(),
            "far_banks": [
                {"memory": one.memory, "section": one.section, "region": one.memory.upper()}
                for one in placed.banks[1:]
                if one.nbytes
            ],
            "pieces": [_piece(one) for one in placed.pieces if one.memory != FLASH],
        }
    return board + regions + render("firmware/sections.ld.j2", values)


def _piece(piece: ParamsPiece) -> dict[str, str]:
    return {
        "memory": piece.memory,
        "section": piece.section,
        "region": piece.memory.upper(),
        "source": piece.loaded_from.upper(),
    }


def _regions(device: Device, board: str, placed: Placed) -> str:
    """The regions of the memories that are used, but for flash and ram: the board's own of that name, or a
    part of its memory for test data."""
    own = BOARDS / "memories" / f"{machine(device)}.ld"
    text = own.read_text(encoding="utf-8") if own.is_file() else ""
    there = {*_REGION.findall(board), *_REGION.findall(text)}
    used: dict[str, int] = {}
    for piece in placed.pieces:
        used[piece.memory] = piece.nbytes + _HEADER_BYTES + ALIGNMENT
    for bank in (one for one in placed.banks if one.nbytes or one is placed.banks[0]):
        used[bank.memory] = used.get(bank.memory, 0) + bank.nbytes + _SESSION_BYTES
    for piece in placed.pieces:  # where what is copied is stored
        if piece.loaded_from:
            stored = used.get(piece.loaded_from, 0)
            used[piece.loaded_from] = stored + piece.nbytes + _HEADER_BYTES + ALIGNMENT
    test = _TEST.search(board)
    if test is None:
        raise AssertionError(f"{machine(device)}.ld has no memory TEST")
    end = int(test[1], 16) + (int(test[2]) << 20)
    lines = []
    for name, nbytes in used.items():
        if name.upper() not in there:
            end = (end - nbytes) & -4096
            length = -(-nbytes // 1024)
            lines.append(f"  {name.upper()} (rwx) : ORIGIN = {end:#010x}, LENGTH = {length}K\n")
    if lines:
        text += "\n/* Memories that this board lacks, at the end of its memory for test data. */\n"
        text += f"MEMORY\n{{\n{''.join(lines)}}}\n"
    return text
