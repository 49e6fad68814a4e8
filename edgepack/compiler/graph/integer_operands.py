"""What the passes over products of integers look for: operators, and what fits into which type."""

from __future__ import annotations

__all__ = ["BYTES", "CONVOLUTIONS", "INT16"]

CONVOLUTIONS = frozenset(f"relax.nn.conv{rank}d" for rank in (1, 2, 3))

#: Types of operands that are multiplied by quads.
BYTES = frozenset({"int8", "uint8"})

#: The least and the largest number of what is multiplied by pairs.
INT16 = (-(2**15), 2**15 - 1)
