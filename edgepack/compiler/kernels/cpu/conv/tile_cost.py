"""Cycles of a product of bytes by vectors and by tiles of matrices, on one core.

The numbers are measurements of kernels on one Sapphire Rapids core with operands in its caches, with an
epilogue that rounds to bytes (notes/2026-11-25-matrix-tiles.md): they decide which of the two is taken, and
say nothing of other CPUs.
"""

from __future__ import annotations

from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.phase_lines import PhaseLines

__all__ = ["matrix_cycles", "vector_cycles"]

#: Cycles of a tile of 32 by 32 sums: storing them and the epilogue, and each 64 elements of the reduction.
TILE, STEP = 200, 115
#: Cycles of an output by vectors of 512 bits: the epilogue, and each element of the reduction.
OUTPUT, ELEMENT = 0.177, 0.00875
#: Bytes that are copied in a cycle, and cycles of a run of them beside.
COPIED, RUN = 32, 6
#: Cycles of a stage more, before the product: threads meet behind it, and fetch what others copied.
STAGE = 1250
#: Rows and columns of a tile, elements of a step, columns of a vector.
SIDE, DEPTH, VECTOR = 32, 64, 16


def vector_cycles(conv: Conv2d) -> float:
    """Of a convolution of bytes by VNNI's instructions; a vector that is not full counts as a whole one."""
    columns = conv.groups * -(-conv.group_out // VECTOR) * VECTOR
    return conv.pixels * columns * (OUTPUT + ELEMENT * conv.depth)


def matrix_cycles(conv: Conv2d, lines: PhaseLines | None, threads: int = 1) -> float:
    """The same by tiles; those that are not full count as whole ones, but for products of up to
    16 columns, whose tiles have half of the registers.

    Args:
        lines: that the image is copied to; None where it is read as it lies.
        threads: that share the product, and the copying before it.
    """
    walked = conv if lines is None else lines.walked
    joined = lines is not None and lines.joined
    runs, run = (
        (conv.rows, conv.depth // conv.rows) if joined else (conv.rows * conv.kernel[1], conv.group_in)
    )
    tiles = -(-walked.pixels // SIDE) * conv.groups * -(-conv.group_out // SIDE)
    part = 0.5 if conv.group_out <= VECTOR else 1.0
    copied = 0.0
    if lines is not None:
        pixels = lines.elements / conv.in_channels
        copied = lines.elements / COPIED + RUN * (pixels if lines.apart else pixels / lines.size[1])
        copied += STAGE * min(threads, 2)
    return part * tiles * (TILE + STEP * runs * -(-run // DEPTH)) + copied
