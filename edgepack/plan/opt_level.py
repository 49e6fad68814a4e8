"""Optimisation levels: how much is done for speed (``--opt-level``). Each level does what those below it do.

What decides which pass and which rule belongs to which level is in docs/internals/levels.md.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["ALL", "FUSED", "OPT_LEVELS", "PLAIN", "TILED", "OptLevel", "describe_level"]

OptLevel = Literal[0, 1, 2, 3]

#: Each operator is a kernel of its own, of plain loops.
PLAIN: OptLevel = 0
#: What is elementwise is computed in the loops of what it follows.
FUSED: OptLevel = 1
#: Tensors and weights lie as kernels of register tiles and vectors read them.
TILED: OptLevel = 2
#: Operators are replaced by cheaper ones, and what lies between them is not computed or not moved.
ALL: OptLevel = 3

OPT_LEVELS: tuple[OptLevel, ...] = (PLAIN, FUSED, TILED, ALL)

_DONE: dict[OptLevel, str] = {
    PLAIN: "each operator is a kernel of plain loops",
    FUSED: "operators are fused, in plain loops",
    TILED: "operators are fused, in kernels of register tiles",
}


def describe_level(level: OptLevel) -> str:
    """What the user of a level below the highest is told, in a line; "" for the highest."""
    return "" if level == ALL else f"--opt-level {level}: {_DONE[level]}; the model is slower than with 3."
