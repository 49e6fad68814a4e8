"""Where a microcontroller's linker puts a model's params and intermediate results: plain data."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ArenaBank", "ParamsPiece", "Placed"]


@dataclass(frozen=True)
class ParamsPiece:
    """A range of the params data that lies in one memory.

    Attributes:
        memory: the memory's name.
        section: the section that a linker script puts into it.
        offset: bytes from the start of the params data, a multiple of ALIGNMENT.
        nbytes: of the range.
        loaded_from: the memory from which start code copies it; "" where it is in the image itself.
    """

    memory: str
    section: str
    offset: int
    nbytes: int
    loaded_from: str = ""

    def holds(self, offset: int) -> bool:
        """Whether this byte of the params data is in it."""
        return self.offset <= offset < self.offset + self.nbytes


@dataclass(frozen=True)
class ArenaBank:
    """What of the arena lies in one memory.

    Attributes:
        memory: the memory's name.
        section: the section that a linker script puts into it.
        nbytes: of the arena.
    """

    memory: str
    section: str
    nbytes: int


@dataclass(frozen=True)
class Placed:
    """Where the parts of a model lie.

    Attributes:
        pieces: of the params, in the order of the data, which they cover; the first has the file's header.
        banks: of the arena, in the order of its offsets; the first is the caller's array. Others may be 0.
    """

    pieces: tuple[ParamsPiece, ...]
    banks: tuple[ArenaBank, ...]

    @property
    def arena_section(self) -> str:
        """The section of the caller's array."""
        return self.banks[0].section
