"""The memories of a microcontroller, the nearest first: which sections a linker script puts into which, and
how much of each a model may take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from edgepack.config.models import Frozen, Size

__all__ = ["FLASH", "PIECE_BYTES", "RAM", "STACK_RESERVE", "MemoryRegion", "arena_room", "mistake_in"]

#: The memories that every microcontroller has: of code, and of variables and the stack.
FLASH, RAM = "flash", "ram"
#: Room that is kept in RAM for the stack and variables, and in each memory for the header of a piece of
#: params and its alignment: bytes.
STACK_RESERVE, PIECE_BYTES = 4 << 10, 192
_UNLIMITED = 1 << 50
_SECTION = r"\.[A-Za-z0-9_.$]{1,100}"
_NAME = r"[a-z][a-z0-9_]{0,30}"
#: Sections that linker scripts fill with what has none of its own.
_COMMON = {".text", ".rodata", ".data", ".bss"}
#: Names of regions that the boards' linker scripts have for something else.
_TAKEN = {"vectors", "test"}


def _section(value: str) -> str:
    if value and (not re.fullmatch(_SECTION, value) or value in _COMMON):
        raise ValueError(f"{value[:80]!r} is not the name of a section for this alone, such as .dtcm_bss")
    return value


def _region(value: str) -> str:
    if not re.fullmatch(_NAME, value) or value in _TAKEN:
        raise ValueError(f"{value[:80]!r} is not a memory's name: write lower case, such as dtcm or qspi")
    return value


Section = Annotated[
    str, AfterValidator(_section), WithJsonSchema({"type": "string", "pattern": f"^({_SECTION})?$"})
]


class MemoryRegion(Frozen):
    """A memory of a microcontroller. `flash` and `ram` are those of code and of variables."""

    name: Annotated[
        str, AfterValidator(_region), WithJsonSchema({"type": "string", "pattern": f"^{_NAME}$"})
    ] = Field(
        description="Lower case (`dtcm`, `qspi`); `flash` is the memory of code, `ram` that of variables and "
        "the stack."
    )
    size: Size = Field(
        default=0, description="What a model may take of it. Of `flash` and `ram`, `budget` says that."
    )
    arena: Section = Field(
        default="",
        description='Section of intermediate results, which are not initialised; "": none are put here.',
    )
    params: Section = Field(default="", description='Section of params; "": none are put here.')
    loaded_from: str = Field(
        default="",
        description="Of RAM that holds params: the memory from which start code copies them, by its name.",
    )

    @property
    def volatile(self) -> bool:
        """Whether it is RAM."""
        return self.name == RAM or bool(self.arena or self.loaded_from)


def arena_room(memories: Sequence[MemoryRegion], ram: int) -> tuple[int, ...]:
    """What each memory for intermediate results has room for, the nearest first, in bytes.

    Args:
        ram: what a model may take of ``ram``, inputs, outputs and stack too; 0 is not limited.
    """

    def room(one: MemoryRegion) -> int:
        most = one.size if one.name != RAM else ram - STACK_RESERVE if ram else _UNLIMITED
        return max(0, most - (PIECE_BYTES if one.params else 0))

    return tuple(room(one) for one in memories if one.arena)


def mistake_in(memories: Sequence[MemoryRegion]) -> str:
    """What is wrong with a list of memories, after the name of the field and a colon; "" if nothing is."""
    known = {one.name: one for one in memories}
    sections: dict[str, str] = {}
    for index, one in enumerate(memories):
        at = f"memories.{index}"
        if known[one.name] is not one:
            return f"{at}.name: there are two memories {one.name!r}"
        if wrong := _mistake(one, known):
            return f"{at}.{wrong}"
        for field, section in (("arena", one.arena), ("params", one.params)):
            if section and section in sections:
                return f"{at}.{field}: {section!r} is {sections[section]} already; each needs its own section"
            sections[section] = f"that of {field} in {one.name}"
    for field, what in (("arena", "intermediate results"), ("params", "params")):
        if memories and not any(getattr(one, field) for one in memories):
            return f"memories: none of them holds {what}; give one of them `{field}: <section>`"
    return ""


def _mistake(one: MemoryRegion, known: dict[str, MemoryRegion]) -> str:
    if not one.arena and not one.params:
        return "name: it holds nothing; give it `arena: <section>`, `params: <section>`, or both"
    if one.name in {FLASH, RAM} and one.size:
        return f"size: how much of {one.name} a model may take is said by budget.{one.name}"
    if one.name not in {FLASH, RAM} and not one.size:
        return "size: is missing; write what a model may take of it, such as 128 KiB"
    if one.name == FLASH and one.volatile:
        return "name: flash holds params only, and is loaded from nowhere"
    if one.volatile and one.params and not one.loaded_from:
        return "loaded_from: RAM forgets params; name the memory from which they are copied, such as flash"
    if one.loaded_from and not one.params:
        return "loaded_from: it holds no params; drop it, or give `params: <section>`"
    source = known.get(one.loaded_from)
    if one.loaded_from and one.loaded_from != FLASH and (source is None or source.volatile):
        return f"loaded_from: {one.loaded_from[:80]!r} is not a memory that keeps params without power"
    return ""
