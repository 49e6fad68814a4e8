"""The register-tiled inner product that convolutions and matrix products share.

A tile has ``rows`` rows (pixels, or rows of the left matrix) and ``columns`` columns (output channels). Its
accumulators stay in vector registers for the whole reduction; each step of it loads the columns' weights
once and broadcasts one element of each row. The tile is chosen so that accumulators, one row of weights and
one broadcast fit the register file: see :func:`tile_for`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index, div
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CACHE_LINE_BYTES, CpuTarget

__all__ = [
    "Accumulators",
    "LeftOperand",
    "Matrix",
    "Steps",
    "Tile",
    "column_chunks",
    "half_width_vectors",
    "power_of_two_chunks",
    "stream_prefetch",
    "tile_for",
]


#: Unit ``k`` of row ``r`` of the left operand of a product; given a third argument, that many from there on.
LeftOperand = Callable[..., Any]


@dataclass(frozen=True)
class Tile:
    """Register tile: at most ``rows`` rows by ``columns`` columns of accumulators."""

    rows: int
    columns: int


def tile_for(target: CpuTarget, rows: int, columns: int, dtype: str) -> Tile:
    """The register tile for a product of ``rows`` by ``columns`` with accumulators of ``dtype``.

    AVX2 has 16 registers, and multiply-adds that read memory: 6 rows by 2 vectors are 12 accumulators, 2
    weights and 1 broadcast. SSE2 needs registers for products, ARMv7 runs out of pointers for rows: 4 by 2.
    AVX-512 has 32: about 24 accumulators, as wide as the columns fill: 8 by 3, 6 by 4, or 12 by 2 (measured,
    6 by 4 is 7 to 15 % faster than 8 by 2). With half vectors (:func:`half_width_vectors`) also 5 by 5, which
    is 40 channels at once: 16 % faster than 12 by 2 with 8 channels left over. AArch64 and RISC-V load
    weights and broadcasts into registers: 6 by 3 or 8 by 2 are the largest that do not spill
    (benchmarks/assembly.py).

    Cortex-M has 32 registers of one number: 4 by 6 are 24 sums, 6 weights and 1 row, and one pointer reaches
    four rows. A Cortex-M4 runs 30 % fewer instructions than with 8 by 2 (qemu's -icount: ds_cnn 5.99 M
    instead of 8.61 M; 5 by 5 5.79 M, but of 16 columns it leaves one over). ARMv6 and RISC-V spill with it.

    Without vectors integers are summed in the general registers: 3 by 3 sums of 30, 2 by 2 of 14.

    Helium has 8: 3 by 2 are 6 sums and 2 weights, for it multiplies by a number in a general register.

    Few rows take more vectors instead, and a single one (a fully connected layer) as many as hide the latency
    of the multiply-add.
    """
    lanes, registers = target.lanes(dtype), target.usable_registers
    few = registers < 16 and target.vector_bits > 0
    if rows == 1:
        return Tile(1, min(columns, (6 if few else 8) * lanes))
    vectors = -(-columns // lanes)
    if vectors == 1:
        most = 12 if registers >= 32 or target.fma_reads_memory else 6 if few else 8
        return Tile(min(rows, most), columns)
    if not target.vector_bits and dtype == "int32":
        most = per_row = 3 if target.pointer_registers > 16 else 2
    elif target.scalar_accumulators == 24:
        most, per_row = 4, 6
    elif few:
        most, per_row = 3, 2
    elif registers < 32:
        most, per_row = 6 if target.fma_reads_memory else 4, 2
    elif target.arithmetic_reads_memory:
        most, per_row = (8, 3) if vectors % 3 == 0 else (6, 4) if vectors % 4 == 0 else (12, 2)
        if lanes < 16 and vectors % 5 == 0:
            most, per_row = 5, 5
    else:
        most, per_row = (6, 3) if vectors % 3 == 0 else (8, 2)
    if rows <= most // 2:
        per_row = min(vectors, max(1, (registers - 1) // (rows + 1)), 4)
    return Tile(min(rows, most), min(columns, per_row * lanes))


def half_width_vectors(target: CpuTarget, columns: int, dtype: str) -> CpuTarget:
    """The target, with half the vector's width where half vectors take half the time and waste less.

    A convolution to 24 channels takes a quarter less time on Zen 4 with three vectors of 256 bits than with
    two of 512.
    """
    lanes = target.lanes(dtype)
    if not 0 < target.datapath_bits < target.vector_bits:
        return target
    waste = -columns % lanes
    if waste < lanes // 2 or 10 * waste < columns:
        return target
    return replace(target, vector_bits=target.vector_bits // 2)


def stream_prefetch(
    e: Emitter, buffer: Any, start: Index, lines: int, depth: int, unroll: int, locality: int = 3
) -> Callable[[Index], None]:
    """A ``prefetch`` for :class:`Steps` that asks for ``lines`` cache lines, evenly over ``depth`` steps.

    A product reads from a few places at once, each for so short a time that hardware prefetchers start late
    or not at all. What is asked for is needed by the next tile, or the tiles of the next columns.

    Args:
        start: where the first line begins, in elements of ``buffer``; it may lie behind its end.
        unroll: steps of one iteration, as in :class:`Steps`.
        locality: as for :meth:`Emitter.prefetch`.
    """
    length = CACHE_LINE_BYTES // DTYPE_BYTES[str(buffer.dtype)]
    iterations = max(1, depth // unroll)
    each = -(-lines // iterations)
    shift = max(0, (iterations // max(lines, 1)).bit_length() - 1)

    def prefetch(step: Index) -> None:
        line = div(step, unroll << shift) * each
        for i in range(each):
            e.prefetch(buffer, start + (line + i) * length, locality)

    return prefetch


def column_chunks(columns: int, lanes: int) -> list[tuple[int, int]]:
    """Cuts columns into vectors: [(first column, lanes), ...]; the last may be narrower, never padded."""
    return [(at, min(lanes, columns - at)) for at in range(0, columns, lanes)]


def power_of_two_chunks(count: int, lanes: int) -> list[tuple[int, int]]:
    """Cuts elements into vectors of powers of two, at most ``lanes``: [(first element, lanes), ...]."""
    found, at = [], 0
    while at < count:
        while lanes > count - at:
            lanes //= 2
        found.append((at, lanes))
        at += lanes
    return found


@dataclass(frozen=True)
class Matrix:
    """The right operand of a product: step ``k`` has its columns at ``at + k * stride`` of ``buffer``.

    Attributes:
        columns: where the vectors of a tile's columns lie in a step; empty where that is their place in the
            tile.
        strides: from one step to the next of each of these vectors; empty where that is ``stride``.
    """

    buffer: Any
    at: Index
    stride: int
    columns: tuple[Index, ...] = ()
    strides: tuple[int, ...] = ()


@dataclass(frozen=True)
class Steps:
    """How the steps of a reduction are emitted.

    Attributes:
        depth: how many there are.
        unroll: steps of one iteration of the loop; lowered until it divides ``depth``.
        remainder: keep ``unroll`` in any case; the steps that are left over follow the loop.
        prefetch: emits the prefetches of an iteration, given its first step; see :func:`stream_prefetch`.
    """

    depth: int
    unroll: int = 2
    remainder: bool = False
    prefetch: Callable[[Index], None] | None = None


class Accumulators:
    """The sums of one register tile, a local buffer that LLVM keeps in vector registers.

    Args:
        rows: how many the tile has.
        chunks: its columns as vectors, see :func:`column_chunks`.
        dtype: of the sums; that of the kernel unless given.

    Attributes:
        start: what they begin with, a number or a scalar.
    """

    start: Any = 0

    def __init__(self, e: Emitter, rows: int, chunks: Sequence[tuple[int, int]], dtype: str = "") -> None:
        self.e, self.rows, self.chunks, self.dtype = e, rows, chunks, dtype or e.dtype
        self.columns = sum(lanes for _, lanes in chunks)
        self.buffer = e.local(rows * self.columns, self.dtype)

    def clear(self) -> None:
        """All of them to what they begin with."""
        start = tirx.const(self.start, self.dtype) if isinstance(self.start, int) else self.start
        for row in range(self.rows):
            for column, lanes in self.chunks:
                self.set(row, column, self.e.splat(start, lanes), lanes)

    def get(self, row: int, column: int, lanes: int) -> Any:
        """``lanes`` of the sums of a row, from ``column`` on."""
        return self.e.vload(self.buffer, row * self.columns + column, lanes)

    def set(self, row: int, column: int, value: Any, lanes: int) -> None:
        """Replaces what :meth:`get` returns."""
        self.e.vstore(self.buffer, row * self.columns + column, value, lanes)

    def load(self, source: Any, at: Index) -> None:
        """All of them from where :meth:`save` put them."""
        for row in range(self.rows):
            for column, lanes in self.chunks:
                place = at + (row * self.columns + column)
                self.set(row, column, self.e.vload(source, place, lanes), lanes)

    def save(self, destination: Any, at: Index) -> None:
        """All of them to ``destination``, row after row from element ``at`` on."""
        for row in range(self.rows):
            for column, lanes in self.chunks:
                place = at + (row * self.columns + column)
                self.e.vstore(destination, place, self.get(row, column, lanes), lanes)
