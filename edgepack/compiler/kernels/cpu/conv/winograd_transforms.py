"""The matrices of Winograd's F(2, 3), F(4, 3) and F(3, 4), which are named by their first number: of weights
in numpy, of inputs and outputs as vector TIR.

Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016. F(4) and F(3) interpolate at 0,
+-1/sqrt(2), +-sqrt(2) and infinity, so their transforms of inputs are the same. The error is a fifth of that
of the usual points 0, +-1, +-2, because the powers that are summed are closer to 1, at one more operation per
line of an output tile (Barabasz et al., Error Analysis and Improving the Accuracy of Winograd Convolution for
Deep Neural Networks, 2020, on the choice of points).

A transform in two dimensions is one of the columns, then one of the rows of what that gave. All rows at once
need more registers than there are, so they are computed in groups, each of which reads the tile anew. Where
LLVM spills in the groups too, the transform is staged: loops over the columns store what they compute, loops
over the lines read it, and no more than one line is in registers at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from tvm import tirx

from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.plan.target import CpuTarget

__all__ = [
    "POINTERS",
    "RowGroups",
    "Transform",
    "input_row_groups",
    "input_rows",
    "ordered",
    "output_lines",
    "output_row_groups",
    "output_rows",
    "staged_input",
    "staged_output",
    "tile_side",
    "transformed",
]

Expr = Any

ROOT = sqrt(2)

#: The finite points p of F(4) and F(3), each with 1 / N_p, where N_p is the product of its differences from
#: the others; less a factor of 2 for +-1/sqrt(2), which the transform of outputs has.
POINTS = ((0.0, 1.0), (1 / ROOT, -1 / 3), (-1 / ROOT, -1 / 3), (ROOT, 1 / 6), (-ROOT, 1 / 6))


#: Registers for pointers that six rows and six places need, and the loops around them.
POINTERS = 15


def _six_points(taps: int) -> Array:
    """G of ``7 - taps`` outputs."""
    finite = [[scale * p**i for i in range(taps)] for p, scale in POINTS]
    return np.array([*finite, [0.0] * (taps - 1) + [1.0]])


#: G of F(m, r), (m + r - 1, r), by m.
G = {
    2: np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]),
    3: _six_points(4),
    4: _six_points(3),
}


def tile_side(m: int) -> int:
    """a = m + r - 1, the side of an input tile."""
    return len(G[m])


def transformed(weights: Array, m: int) -> Array:
    """HWIO (r, r, IC, OC) to U = G g G^T (a, a, IC, OC) for tiles of m x m, computed in float64."""
    u: Array = np.einsum("ik,klco,jl->ijco", G[m], weights.astype(np.float64), G[m]).astype(np.float32)
    return u


def ordered(u: Array, columns: tuple[int, int], zeros: int, groups: int) -> Array:
    """Transformed weights (positions, IC of a group, OC) to [group][stripe][positions][panel][IC][columns],
    then zeros.

    Args:
        columns: of a stripe, and of a panel of it; the last ones of a group have what is left. A stripe of
            one panel is a block of columns.
    """

    def cut(matrix: Array, width: int) -> list[Array]:
        return [matrix[..., at : at + width] for at in range(0, matrix.shape[-1], width)]

    stripes = [stripe for group in np.split(u, groups, axis=2) for stripe in cut(group, columns[0])]
    panels = [panel for stripe in stripes for position in stripe for panel in cut(position, columns[1])]
    return np.concatenate(
        [*(np.ascontiguousarray(one).reshape(-1) for one in panels), np.zeros(zeros, u.dtype)]
    )


@dataclass(frozen=True)
class RowGroups:
    """Which rows of a tile are computed together.

    Attributes:
        at_once: the groups, each of which reads the tile anew.
        staged: whether the columns are stored first, then read row by row, and ``stages`` the rows of the
            columns that are computed together then.
    """

    at_once: tuple[tuple[int, ...], ...]
    staged: bool
    stages: tuple[tuple[int, ...], ...]


def input_row_groups(m: int, target: CpuTarget, *, staged: bool) -> RowGroups:
    """The row groups of a transform of inputs, staged or not."""
    return RowGroups(_input_row_sets(m, target), staged, _input_stages(m, target))


def output_row_groups(m: int, target: CpuTarget, *, staged: bool) -> RowGroups:
    """The row groups of a transform of outputs, staged or not."""
    return RowGroups(_output_row_sets(m, target), staged, (tuple(range(m)),))


def _input_row_sets(m: int, target: CpuTarget) -> tuple[tuple[int, ...], ...]:
    """The rows of a transformed input tile that are computed together.

    Their first halves are kept in registers, and so are the constants, where arithmetic does not read them
    from memory.
    """
    large = target.vector_registers >= 32
    if m == 2:
        return ((0, 1, 2, 3),) if large else ((0, 1), (2, 3))
    if large and target.arithmetic_reads_memory:
        return ((1, 2, 3), (4, 0, 5))
    if large:
        return ((1, 2), (3, 4), (0, 5))
    return ((1,), (2,), (3,), (4,), (0,), (5,))


def _output_row_sets(m: int, target: CpuTarget) -> tuple[tuple[int, ...], ...]:
    """The rows of an output tile that are computed together."""
    if m == 2:
        return ((0, 1),)
    if target.vector_registers >= 32 and target.arithmetic_reads_memory:
        return (tuple(range(m)),)
    return ((0, 2), (1, 3)) if m == 4 else ((0,), (1,), (2,))


def staged_output(target: CpuTarget) -> bool:
    """Whether the transform of outputs is staged: where LLVM runs out of registers or pointers.

    On x86 it is not: there groups do not spill, and storing the columns took 2 to 6 % of a convolution. Nor
    is it in WebAssembly, whose registers LLVM does not give out.
    """
    if target.arithmetic_reads_memory or target.virtual_registers:
        return False
    return target.vector_registers < 32 or not target.loads_have_displacement


def staged_input(target: CpuTarget) -> bool:
    """Whether the transform of inputs is staged: also where products need registers of their own (SSE2)."""
    return staged_output(target) or target.separate_multiply_add


def _input_stages(m: int, target: CpuTarget) -> tuple[tuple[int, ...], ...]:
    """The rows that are computed together in the first stage of a transform of inputs.

    32-bit ARM has 14 registers for pointers: six rows and six places do not fit. Rows 1 to 4 need four rows.
    """
    if m != 2 and target.pointer_registers < POINTERS:
        return (1, 2, 3, 4), (0, 5)
    return (tuple(range(tile_side(m))),)


class Transform:
    """Vector arithmetic in which None is a vector of zeros, and costs nothing: that of float32. Integers have
    their own (``winograd_integers.py``), and other matrices."""

    def __init__(self, e: Emitter, lanes: int) -> None:
        self.e, self.lanes = e, lanes

    # Vectors and matrices ---------------------------------------------------------------------------------

    def loaded(self, vector: Expr) -> Expr:
        """What is computed with, of a vector as it lies in memory, transformed or not."""
        return vector

    def read(self, vector: Expr) -> Expr:
        """What is computed with, of a vector as it lies in the image."""
        return self.loaded(vector)

    def beside(self, outside: int) -> Expr:
        """A vector of what a window reads outside of the image."""
        return None

    def kept(self, value: Expr) -> Expr:
        """What is stored of a value."""
        return self.e.f32(0, self.lanes) if value is None else value

    def finished(self, m: int, value: Expr) -> Expr:
        """The convolution's sums, of what the transform of outputs gives."""
        return value

    def input_rows(self, m: int, rows: Sequence[int], d: Sequence[Expr]) -> list[Expr]:
        """See :func:`input_rows`."""
        return input_rows(self, m, rows, d)

    def output_rows(self, m: int, rows: Sequence[int], x: Sequence[Expr]) -> list[Expr]:
        """See :func:`output_rows`."""
        return output_rows(self, m, rows, x)

    def output_lines(self, m: int, count: int, column: Callable[[int], Sequence[Expr]]) -> list[list[Expr]]:
        """See :func:`output_lines`."""
        return output_lines(self, m, count, column)

    # Arithmetic -------------------------------------------------------------------------------------------

    def add(self, x: Expr, y: Expr) -> Expr:
        """x + y."""
        if x is None or y is None:
            return y if x is None else x
        return self.e.let(x + y)

    def sub(self, x: Expr, y: Expr) -> Expr:
        """x - y."""
        if y is None:
            return x
        return self.e.let(x - y) if x is not None else self.times(-1.0, y)

    def times(self, factor: float, x: Expr) -> Expr:
        """factor * x."""
        return None if x is None else self.e.let(x * self.e.f32(factor, self.lanes))

    def mad(self, factor: float, x: Expr, y: Expr) -> Expr:
        """factor * x + y: one instruction where there is one, also if the product is needed twice."""
        if x is None or y is None:
            return y if x is None else self.times(factor, x)
        if self.lanes == 1:
            return self.e.let(y + x * self.e.f32(factor, 1))
        product = (x, self.e.f32(factor, self.lanes), y)
        return self.e.let(tirx.call_llvm_intrin(f"float32x{self.lanes}", "llvm.fmuladd", *product))


def input_rows(t: Transform, m: int, rows: Sequence[int], d: Sequence[Expr]) -> list[Expr]:
    """The elements ``rows`` of B^T d for one line ``d`` of a tile."""
    if m == 2:
        pairs = {0: (0, 2), 2: (2, 1), 3: (1, 3)}
        return [t.add(d[1], d[2]) if r == 1 else t.sub(d[pairs[r][0]], d[pairs[r][1]]) for r in rows]
    found: dict[int, Expr] = {}
    for first, square in ((1, 2.0), (3, 0.5)):
        if first in rows or first + 1 in rows:
            even, odd = t.mad(-square, d[2], d[4]), t.mad(-square, d[1], d[3])
            point = sqrt(1 / square)
            found[first], found[first + 1] = t.mad(point, odd, even), t.mad(-point, odd, even)
    for row, at in ((0, 0), (5, 1)):
        if row in rows:
            found[row] = t.mad(-2.5, d[at + 2], t.add(d[at], d[at + 4]))
    return [found[r] for r in rows]


def output_rows(t: Transform, m: int, rows: Sequence[int], x: Sequence[Expr]) -> list[Expr]:
    """The elements ``rows`` of A^T x for one line ``x`` of products."""
    if m == 2:
        return [t.add(t.add(x[0], x[1]), x[2]) if r == 0 else t.sub(t.sub(x[1], x[2]), x[3]) for r in rows]
    found: dict[int, Expr] = {}
    if 0 in rows or 2 in rows:
        near, far = t.add(x[1], x[2]), t.add(x[3], x[4])
        found[0], found[2] = t.mad(2.0, near, t.add(x[0], far)), t.mad(2.0, far, near)
        if m == 3:
            found[2] = t.add(found[2], x[5])
    if 1 in rows or 3 in rows:
        near, far = t.sub(x[1], x[2]), t.sub(x[3], x[4])
        found[1] = t.times(ROOT, t.add(near, far))
        found[3] = None if m == 3 else t.mad(ROOT / 2, t.mad(4.0, far, near), x[5])
    return [found[r] for r in rows]


def output_lines(
    t: Transform, m: int, count: int, column: Callable[[int], Sequence[Expr]]
) -> list[list[Expr]]:
    """The rows of A^T X A, given columns of A^T X, each of ``count`` elements.

    Columns of which only sums and differences are needed are asked for in pairs: that takes fewer registers
    than six columns.
    """
    if m == 2:
        columns = [column(j) for j in range(4)]
        return [output_rows(t, m, range(2), [c[n] for c in columns]) for n in range(count)]
    pairs = []
    for j in (1, 3):
        x, y = column(j), column(j + 1)
        pairs.append([(t.add(x[n], y[n]), t.sub(x[n], y[n])) for n in range(count)])
    near, far = pairs
    first = column(0)
    lines = []
    for n in range(count):
        second = t.times(ROOT, t.add(near[n][1], far[n][1]))
        third = t.mad(2.0, far[n][0], near[n][0])
        lines.append([t.mad(2.0, near[n][0], t.add(first[n], far[n][0])), second, third])
    last = column(5)
    for n in range(count):
        if m == 3:
            lines[n][2] = t.add(lines[n][2], last[n])
            continue
        lines[n].append(t.mad(ROOT / 2, t.mad(4.0, far[n][1], near[n][1]), last[n]))
    return lines
