"""The micro-kernel of quads of bytes, multiplied by instructions that take whole matrices (AMX's tiles).

A tile register holds 16 rows of 64 bytes. One instruction adds the product of 16 rows by 64 bytes of the
reduction and 64 bytes by 16 columns to 16 by 16 sums. A product's tile is up to two by two of these, so that
each operand that is loaded is used twice; its sums go to memory of the thread's own before an epilogue reads
them. Operands lie as they do for vectors, in quads.

Recipe and speeds: the Intel 64 and IA-32 Architectures Optimization Reference Manual, chapter 20, and
measurements on Sapphire Rapids (notes/2026-11-25-matrix-tiles.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from tvm import tirx
from tvm.tirx import IntImm

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index
from edgepack.compiler.kernels.cpu.emit.register_tile import Matrix, Tile
from edgepack.compiler.kernels.cpu.micro.dot4_bytes import Dot4Bytes
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.compiler.kernels.schedule import ScheduleError, by
from edgepack.compiler.tvm_target import has_feature
from edgepack.plan.target import CpuTarget

__all__ = ["MatrixTiles", "TileRegisters", "TileSums"]

#: Rows of a tile register, its columns of sums, and quads of the reduction in a row.
SIDE = 16
UNIT_BYTES = 4
#: Rows and columns of a product's tile: two by two registers of sums.
LARGEST = 2 * SIDE
#: Bytes of the left operand's rows that go through all columns before the next ones: half of an L1 cache.
ROWS_BYTES = 24 * 1024
#: Tiles of such a block of rows, at most.
MOST_TILES = 12


@dataclass(frozen=True)
class TileRegisters:
    """How a kernel sets up the eight tile registers.

    The first four hold sums. Of the others two are for each operand where all steps of the reduction are
    whole; else one, and one for the last step.

    Attributes:
        rows: of the registers of sums, and of those of the left operand.
        rest: quads of the last step of a run of the reduction; 0 where all steps are whole.
    """

    rows: int
    rest: int

    @property
    def left(self) -> tuple[int, int]:
        """Registers of a whole step's upper and lower rows."""
        return (4, 4) if self.rest else (4, 5)

    @property
    def right(self) -> tuple[int, int]:
        """Registers of a whole step's first and last columns."""
        return (5, 5) if self.rest else (6, 7)

    @property
    def words(self) -> list[int]:
        """The 64 bytes that LDTILECFG reads, as int32: palette 1, bytes of a row and rows by register."""
        found = np.zeros(64, np.uint8)
        widths, heights = found[16:32].view("<u2"), found[48:56]
        found[0] = 1
        widths[:] = SIDE * UNIT_BYTES
        heights[:] = SIDE
        heights[[0, 1, 2, 3, *self.left]] = self.rows
        if self.rest:
            widths[6], heights[6] = self.rest * UNIT_BYTES, self.rows
            heights[7] = self.rest
        return [int(word) for word in found.view("<i4")]

    def set_up(self, e: Emitter, memory: Any) -> None:
        """Emits what makes tiles usable, at a kernel's start; ``memory``: see :meth:`MatrixTiles.memory`."""
        for place, word in enumerate(self.words):
            e.vstore(memory, LARGEST * LARGEST + place, IntImm("int32", word), 1)
        _emit(e, "ldtilecfg", e.address(memory, LARGEST * LARGEST))

    def release(self, e: Emitter) -> None:
        """Emits what ends the use of tiles, before the kernel returns."""
        _emit(e, "tilerelease")


@dataclass(frozen=True)
class MatrixTiles(Dot4Bytes):
    """Multiplies up to 32 rows by 32 columns, 64 elements of the reduction at a time."""

    order = 135
    matrix = True
    #: Rows of a register, and units of the reduction that an instruction takes.
    register_rows: ClassVar[int] = SIDE
    step: ClassVar[int] = SIDE

    @classmethod
    def of(cls, types: ProductTypes, target: CpuTarget) -> MatrixTiles | None:
        quads = Dot4Bytes.of(types, target)
        if quads is None or types.left != "uint8" or quads.lanes != SIDE:
            return None
        return cls(types, quads.target) if has_feature(target, "amx-int8") else None

    @property
    def overhang(self) -> int:
        """A register of columns is loaded whole."""
        return SIDE - 1

    def tile(self, rows: int, columns: int) -> Tile:
        return Tile(min(rows, LARGEST), min(columns, LARGEST))

    def check_tile(self, tile: tuple[int, int], columns: int) -> None:
        high, wide = tile
        fits = 1 <= high <= LARGEST and 1 <= wide <= min(columns, LARGEST)
        if not fits or (wide % SIDE and wide != columns):
            raise ScheduleError(f"a tile of {by(tile)}, of {columns} columns in registers of {SIDE}")

    def block_tiles(self, units: int) -> int:
        return max(1, min(MOST_TILES, ROWS_BYTES // (LARGEST * units * UNIT_BYTES)))

    def memory(self, e: Emitter) -> Any:
        """Declares what a thread needs: a tile's sums, and how registers are set up."""
        return e.scratch(LARGEST * LARGEST + SIDE, "int32")

    def parameters(self) -> dict[str, Any]:
        return {"operands": "tiles of bytes"}


class TileSums:
    """The sums of one tile in tile registers, and in memory when they are complete.

    Two registers that do not fill a tile's rows share some of them, which are computed twice: nothing is read
    beyond the rows.

    Args:
        memory: see :meth:`MatrixTiles.memory`.
        rows: of the tile, at most twice as many as a register's, and at least as many as one's.
        columns: of the tile, at most 32.
    """

    def __init__(self, e: Emitter, memory: Any, registers: TileRegisters, rows: int, columns: int) -> None:
        self.e, self.memory, self.registers = e, memory, registers
        self.rows = [0] if rows <= registers.rows else [0, rows - registers.rows]
        self.places = list(range(0, columns, SIDE))
        #: Sums between two rows in memory.
        self.columns = SIDE * len(self.places)

    @property
    def vectors(self) -> list[tuple[int, int]]:
        """The registers' columns in the tile: the first one, and how many."""
        return [(place, SIDE) for place in self.places]

    def _tiles(self) -> list[tuple[int, int, int]]:
        """The registers of sums: number, which of the rows and which of the columns it has; neighbours in
        this list share an operand."""
        found = [(0, 0, 0), (1, 0, 1), (3, 1, 1), (2, 1, 0)]
        return [one for one in found if one[1] < len(self.rows) and one[2] < len(self.places)]

    def clear(self) -> None:
        """All of them to 0."""
        for number, _, _ in self._tiles():
            _emit(self.e, "tilezero", _number(number))

    def load(self, source: Any, at: Index) -> None:
        """All of them from where :meth:`save` put them."""
        for number, row, column in self._tiles():
            _move(self.e, "tileloadd64", number, (source, self._place(at, row, column)), self.columns)

    def save(self, destination: Any, at: Index) -> None:
        """All of them to ``destination``, row after row of whole registers from element ``at`` on."""
        for number, row, column in self._tiles():
            _move(self.e, "tilestored64", number, (destination, self._place(at, row, column)), self.columns)

    def _place(self, at: Index, row: int, column: int) -> Index:
        return at + (self.rows[row] * self.columns + self.places[column])

    def get(self, row: Index, column: int, lanes: int) -> Any:
        """``lanes`` sums of a row that was saved to the tile's own memory."""
        return self.e.vload(self.memory, row * self.columns + column, lanes)

    def add(self, left: Matrix, right: Matrix, units: int, prefetch: Callable[[Index], None] | None) -> None:
        """Adds the product of a run of the reduction.

        Args:
            left: row ``r`` begins at ``at + r * stride``, and its quads are neighbours.
            right: the columns of quad ``k`` begin at ``at + k * stride``, or those of each register where its
                :attr:`Matrix.columns` say.
            units: quads; those beyond whole steps as the registers are set up for.
            prefetch: emits the prefetches of a step, given its first quad.
        """
        whole, rest = divmod(units, SIDE)
        assert rest == self.registers.rest, "the registers are set up for another run"

        def step(k: Index) -> None:
            if prefetch is not None:
                prefetch(k * SIDE)
            self._step(left, right, k * SIDE, (self.registers.left, self.registers.right))

        self.e.loop(0, whole, step)
        if rest:
            if prefetch is not None and not whole:
                prefetch(0)
            self._step(left, right, whole * SIDE, ((6, 6), (7, 7)))

    def _step(
        self, left: Matrix, right: Matrix, k: Index, registers: tuple[tuple[int, int], tuple[int, int]]
    ) -> None:
        """One instruction for each register of sums; an operand is loaded where it is not there yet."""
        e = self.e
        held: dict[int, tuple[str, int]] = {}
        for number, row, column in self._tiles():
            a, b = registers[0][row], registers[1][column]
            if held.get(a) != ("left", row):
                place = left.at + (self.rows[row] * left.stride + k)
                _move(e, "tileloadd64", a, (left.buffer, place), left.stride)
                held[a] = ("left", row)
            if held.get(b) != ("right", column):
                stride = right.strides[column] if right.strides else right.stride
                first = right.columns[column] if right.columns else self.places[column]
                _move(e, "tileloadd64", b, (right.buffer, right.at + (k * stride + first)), stride)
                held[b] = ("right", column)
            _emit(e, "tdpbusd", *(_number(n) for n in (number, a, b)))


def _number(register: int) -> Any:
    return IntImm("int8", register)


def _move(e: Emitter, name: str, register: int, place: tuple[Any, Index], stride: int) -> None:
    """A load or a store of a register, whose rows are ``stride`` quads or sums apart."""
    rows = IntImm("int64", stride * UNIT_BYTES)
    _emit(e, name, _number(register), e.address(*place), rows)


def _emit(e: Emitter, name: str, *operands: Any) -> None:
    e.add(tirx.Evaluate(tirx.call_llvm_intrin("void", f"llvm.x86.{name}", *operands)))
