"""What is read from a function's machine code to know the stack of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["MachineFunction", "signed"]


@dataclass
class MachineFunction:
    """A function of a linked image.

    Attributes:
        start, end: its addresses.
        frame: bytes that it takes of the stack.
        calls: addresses of the functions that it calls or goes on in.
    """

    start: int
    end: int
    frame: int = 0
    calls: set[int] = field(default_factory=set)


def signed(value: int, bits: int) -> int:
    """The number that the lowest ``bits`` of ``value`` are in two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value
