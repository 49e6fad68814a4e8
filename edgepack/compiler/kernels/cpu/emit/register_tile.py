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

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter, Index, div
from edgepack.compiler.kernels.cpu.emit.half import STORAGE, as_float16, widened
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CACHE_LINE_BYTES, CpuTarget

__all__ = [
    "HALF_BLOCK",
    "Accumulators",
    "Matrix",
    "Steps",
    "Tile",
    "column_chunks",
    "loaded_weights",
    "narrow_vectors",
    "power_of_two_chunks",
    "stream_prefetch",
    "tile_for",
]


#: Terms of a sum in float16, at most: conv/half_gemm.py says why.
HALF_BLOCK = 16

#: Operands whose products are summed in int32.
NARROW = "int16"


@dataclass(frozen=True)
class Tile:
    """Register tile: at most ``rows`` rows by ``columns`` columns of accumulators."""

    rows: int
    columns: int


def tile_for(target: CpuTarget, rows: int, columns: int, dtype: str = "float32") -> Tile:
    """The register tile for a product of ``rows`` by ``columns`` with accumulators of ``dtype``.

    AVX2 has 16 registers, and multiply-adds that read memory: 6 rows by 2 vectors are 12 accumulators, 2
    weights and 1 broadcast. SSE2 needs registers for products, ARMv7 runs out of pointers for rows: 4 by 2.
    AVX-512 has 32: about 24 accumulators, as wide as the columns fill: 8 by 3, 6 by 4, or 12 by 2 (measured,
    6 by 4 is 7 to 15 % faster than 8 by 2). With half vectors (see :func:`narrow_vectors`) also 5 by 5, which
    is 40 channels at once: 16 % faster than 12 by 2 with 8 channels left over. AArch64 and RISC-V load
    weights and broadcasts into registers: 6 by 3 or 8 by 2 are the largest that do not spill
    (benchmarks/assembly.py).

    Cortex-M has 32 registers of one number: 4 by 6 are 24 sums, 6 weights and 1 row, and one pointer reaches
    four rows. A Cortex-M4 runs 30 % fewer instructions than with 8 by 2 (qemu's -icount: ds_cnn 5.99 M
    instead of 8.61 M; 5 by 5 5.79 M, but of 16 columns it leaves one over). ARMv6 and RISC-V spill with it.

    Without vectors integers are summed in the general registers: 3 by 3 sums of 30, 2 by 2 of 14.

    Few rows take more vectors instead, and a single one (a fully connected layer) as many as hide the latency
    of the multiply-add.
    """
    lanes, registers = target.lanes(dtype), target.usable_registers
    if rows == 1:
        return Tile(1, min(columns, 8 * lanes))
    vectors = -(-columns // lanes)
    if vectors == 1:
        return Tile(min(rows, 12 if registers >= 32 or target.fma_reads_memory else 8), columns)
    if not target.vector_bits and dtype == "int32":
        most = per_row = 3 if target.pointer_registers > 16 else 2
    elif target.scalar_accumulators == 24:
        most, per_row = 4, 6
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


def narrow_vectors(target: CpuTarget, columns: int, dtype: str = "float32") -> CpuTarget:
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
    """The right operand of a product: step ``k`` has its columns at ``at + k * stride`` of ``buffer``, whose
    elements may be float16 as they lie in memory."""

    buffer: Any
    at: Index
    stride: int


@dataclass(frozen=True)
class Steps:
    """How the steps of a reduction are emitted.

    Attributes:
        depth: how many there are.
        unroll: steps of one iteration of the loop; lowered until it divides ``depth``.
        remainder: keep ``unroll`` in any case; the steps that are left over follow the loop.
        prefetch: emits the prefetches of an iteration, given its first step; see :func:`stream_prefetch`.
        block: of operands that are float16, as they lie in memory: how many products are summed in float16,
            at most, before that is added to the sums; 0 for others.
    """

    depth: int
    unroll: int = 2
    remainder: bool = False
    prefetch: Callable[[Index], None] | None = None
    block: int = 0


def loaded_weights(e: Emitter, buffer: Any, at: Index, lanes: int) -> Any:
    """A vector of weights in the kernel's dtype, from element ``at`` of ``buffer`` on."""
    vector = e.let(e.vload(buffer, at, lanes))
    if str(buffer.dtype) == NARROW:
        return e.let(_wide(vector, lanes))
    return widened(e, vector, lanes, "float16") if str(buffer.dtype) == STORAGE else vector


def _wide(vector: Any, lanes: int) -> Any:
    """int16 as int32. LLVM makes one instruction of that and the multiplication, where there is one."""
    return tirx.Cast("int32" if lanes == 1 else f"int32x{lanes}", vector)


class Accumulators:
    """The sums of one register tile, a local buffer that LLVM keeps in vector registers.

    Args:
        rows: how many the tile has.
        chunks: its columns as vectors, see :func:`column_chunks`.
        dtype: of the sums; that of the kernel unless given.
    """

    def __init__(self, e: Emitter, rows: int, chunks: Sequence[tuple[int, int]], dtype: str = "") -> None:
        self.e, self.rows, self.chunks, self.dtype = e, rows, chunks, dtype or e.dtype
        self.columns = sum(lanes for _, lanes in chunks)
        self.buffer = e.local(rows * self.columns, self.dtype)

    def clear(self) -> None:
        """All of them to 0."""
        for row in range(self.rows):
            for column, lanes in self.chunks:
                self.set(row, column, self.e.splat(tirx.const(0, self.dtype), lanes), lanes)

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

    def add_product(self, left: Callable[..., Any], right: Matrix, steps: Steps) -> None:
        """sums[r, c] += sum over k < depth of left(r, k) * right[k, c].

        An iteration is one step in WebAssembly: V8 keeps fewer values in registers than a longer body has,
        and ResNet-18 and MobileNetV2 took 8 % longer with two (benchmarks/web.py).

        Args:
            left: element ``k`` of row ``r`` as a scalar; given a third argument, that many from there on.
        """
        if steps.block:
            self._add_blocks(left, right, steps)
            return
        self._add_steps(left, right, steps)

    def _add_blocks(self, left: Callable[..., Any], right: Matrix, steps: Steps) -> None:
        """The same, with sums in float16 of at most ``steps.block`` products."""
        e, whole, rest = self.e, steps.depth // steps.block, steps.depth % steps.block
        assert e.target is not None
        chunks = column_chunks(self.columns, e.target.lanes("float16"))

        def block(begin: Index, size: int) -> None:
            sums = Accumulators(e, self.rows, chunks, "float16")
            sums.clear()
            sums._add_half_steps(left, right, begin, replace(steps, depth=size))
            self._add_wider(sums)

        e.loop(0, whole, lambda i: block(e.let(i * steps.block), steps.block))
        if rest:
            block(whole * steps.block, rest)

    def _add_half_steps(self, left: Callable[..., Any], right: Matrix, begin: Index, steps: Steps) -> None:
        """``steps.depth`` steps of the reduction, from ``begin`` on, of operands that are float16.

        Where multiply-adds do not read memory, a load serves as many steps as it has elements of a row: the
        instruction takes one of them.
        """
        e = self.e
        assert e.target is not None
        lanes = 1 if e.target.arithmetic_reads_memory else e.target.lanes("float16")

        def iteration(at: Index, count: int) -> None:
            if steps.prefetch is not None:
                for i in range(0, count, steps.unroll):
                    steps.prefetch(at + i)
            together = count == lanes > 1
            rows = [as_float16(e, left(r, at, lanes), lanes) for r in range(self.rows if together else 0)]
            for u in range(count):
                start = right.at + (at + u) * right.stride
                weights = [
                    as_float16(e, e.vload(right.buffer, start + column, n), n) for column, n in self.chunks
                ]
                for r in range(self.rows):
                    scalar = None if together else as_float16(e, left(r, at + u), 1)
                    for (column, n), weight in zip(self.chunks, weights, strict=True):
                        value = e.splat(scalar, n) if scalar is not None else tirx.Shuffle([rows[r]], [u] * n)
                        old = self.get(r, column, n)
                        self.set(r, column, e.multiply_add(value, weight, old), n)

        count = lanes if lanes > 1 else steps.unroll
        e.loop(0, steps.depth // count, lambda i: iteration(e.let(begin + i * count), count))
        done = steps.depth // count * count
        e.loop(0, steps.depth - done, lambda i: iteration(e.let(i + (begin + done)), 1))

    def _add_wider(self, sums: Accumulators) -> None:
        """Adds sums in float16."""
        for row in range(self.rows):
            for column, lanes in self.chunks:
                wide = tirx.Cast(f"float32x{lanes}" if lanes > 1 else "float32", sums.get(row, column, lanes))
                self.set(row, column, self.get(row, column, lanes) + wide, lanes)

    def _add_steps(self, left: Callable[[int, Index], Any], right: Matrix, steps: Steps) -> None:
        e, depth = self.e, steps.depth
        unroll = 1 if e.target is not None and e.target.virtual_registers else steps.unroll
        while depth % unroll and not steps.remainder:
            unroll -= 1

        def iteration(k: Index) -> None:
            if steps.prefetch is not None:
                steps.prefetch(k * unroll)
            self._steps(k * unroll, unroll, left, right)

        count = depth // unroll
        # LLVM unrolls a short loop and mixes its steps, for which few registers do not suffice.
        e.loop(0, e.opaque_bound(count) if e.few_registers and 1 < count <= 8 else count, iteration)
        self._steps(depth - depth % unroll, depth % unroll, left, right)

    def _steps(self, first: Index, count: int, left: Callable[[int, Index], Any], right: Matrix) -> None:
        """``count`` steps of the reduction, from ``first`` on."""
        e = self.e
        for u in range(count):
            step = first + u
            start = right.at + step * right.stride
            loaded = [loaded_weights(e, right.buffer, start + column, lanes) for column, lanes in self.chunks]
            for row in range(self.rows):
                scalar = e.let(left(row, step))
                for (column, lanes), weight in zip(self.chunks, loaded, strict=True):
                    old, value = self.get(row, column, lanes), e.splat(scalar, lanes)
                    value = _wide(value, lanes) if str(scalar.ty) == NARROW else value
                    self.set(row, column, e.multiply_add(value, weight, old), lanes)
