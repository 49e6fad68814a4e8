"""Implicit matrix products by instructions that multiply whole matrices (AMX's tiles).

A tile register takes rows that are equally far apart. Those of a plain product are; the pixels of windows are
where a stage has copied the image to lines of phases (:mod:`.phase_lines`), padding included, which so costs
nothing in the product. Blocks, tasks, packed weights and epilogues are those of :class:`ImplicitGemm`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tvm.tirx import IntImm

from edgepack.compiler.kernels.contract import Stage
from edgepack.compiler.kernels.cpu.analysis.anchored_group import AnchoredGroup
from edgepack.compiler.kernels.cpu.conv.byte_patches import BytePatches
from edgepack.compiler.kernels.cpu.conv.gemm_schedule import GemmSchedule
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.implicit_gemm import OPEN, ImplicitGemm, Pixels
from edgepack.compiler.kernels.cpu.conv.phase_lines import PhaseLines
from edgepack.compiler.kernels.cpu.conv.tile_cost import matrix_cycles, vector_cycles
from edgepack.compiler.kernels.cpu.conv.tile_product import GemmOperands, TileAt
from edgepack.compiler.kernels.cpu.conv.vector_patches import VectorPatches
from edgepack.compiler.kernels.cpu.conv.widened_patches import WidenedPatches
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.register_tile import Matrix
from edgepack.compiler.kernels.cpu.micro.matrix_tiles import MatrixTiles, TileRegisters, TileSums
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel
from edgepack.compiler.kernels.cpu.micro.reduced_vectors import ReducedVectors
from edgepack.compiler.kernels.cpu.micro.single_bytes import SingleBytes
from edgepack.compiler.kernels.cpu.micro.word_pairs import WordPairs
from edgepack.compiler.kernels.errors import RuleError
from edgepack.compiler.kernels.schedule import ScheduleError
from edgepack.plan.dtypes import DTYPE_BYTES

__all__ = ["TileGemm", "by_matrices", "implicit_product"]

#: How many times as long as tiles vectors must take by the cost model, whose numbers are of one machine: at
#: 32 elements of the reduction they were as fast in a network (notes/2026-11-25-matrix-tiles.md).
ADVANTAGE = 1.5


def implicit_product(
    rule: str,
    layout: str,
    conv: Conv2d,
    fused: AnchoredGroup,
    vectors: MicroKernel,
    given: GemmSchedule = OPEN,
) -> ImplicitGemm:
    """The builder of a product by constant weights: by matrices where the CPU multiplies them and that is
    faster, else by vectors.

    Args:
        vectors: computes it with registers that every kernel has.

    Raises:
        RuleError: the product is one of patches, and the convolution has groups.
        ScheduleError: matrices are asked for, and there is no such kernel.
    """
    if conv.groups > 1 and isinstance(vectors, ReducedVectors | SingleBytes | WordPairs):
        raise RuleError("patches of groups")  # a patch has all channels of the image
    if isinstance(vectors, ReducedVectors):
        return VectorPatches(rule, layout, conv, fused, vectors, given)
    if isinstance(vectors, SingleBytes):
        return BytePatches(rule, layout, conv, fused, vectors, given)
    if isinstance(vectors, WordPairs):
        return WidenedPatches(rule, layout, conv, fused, vectors, given)
    tiles = _tiles(conv, vectors)
    if tiles is None and given.matrix:
        raise ScheduleError("matrices that no instruction multiplies")
    wanted = by_matrices(conv, vectors) if given.matrix is None else given.matrix
    # Lines of phases are of the whole image, which is not there where rows are computed as they are needed.
    if tiles is not None and fused.by_rows and _lines(conv, tiles) is not None:
        tiles = None
    if tiles is not None and wanted:
        return TileGemm(rule, layout, conv, fused, tiles, given)
    return ImplicitGemm(rule, layout, conv, fused, vectors, given)


def by_matrices(conv: Conv2d, vectors: MicroKernel) -> bool:
    """Whether the CPU multiplies matrices of what ``vectors`` multiplies, and is faster so, by estimate."""
    tiles = _tiles(conv, vectors)
    if tiles is None:
        return False
    cycles = matrix_cycles(conv, _lines(conv, tiles), vectors.target.threads)
    return ADVANTAGE * cycles < vector_cycles(conv)


def _tiles(conv: Conv2d, vectors: MicroKernel) -> MatrixTiles | None:
    """The micro-kernel of matrices, where there is one for a product."""
    tiles = None if conv.depth_window else MatrixTiles.of(vectors.types, vectors.target)
    return tiles if tiles is not None and tiles.suits(*conv.group_sizes) else None


def _lines(conv: Conv2d, micro: MatrixTiles) -> PhaseLines | None:
    """What the image is copied to; None where it is read as it lies."""
    return None if conv.pointwise else PhaseLines.of(conv, micro.step * micro.group)


@dataclass(frozen=True)
class _Row:
    """A row of a tile's sums, as a tile of its own."""

    sums: TileSums
    number: Any

    def get(self, row: int, column: int, lanes: int) -> Any:
        return self.sums.get(self.number, column, lanes)


class TileGemm(ImplicitGemm):
    """Builds the kernel of one convolution, whose tiles are up to 32 pixels by 32 channels.

    Args:
        micro: computes the tiles.
    """

    micro: MatrixTiles

    def _walked(self) -> Conv2d:
        """Its output may have pixels that are computed and not stored, see :class:`PhaseLines`."""
        lines = _lines(self.elements, self.micro)
        self.lines = None if lines is None else lines.in_units(self.micro.group)
        return self.elements if lines is None else lines.walked

    def _declare(self) -> GemmOperands:
        operands = super()._declare()
        self.memory = self.micro.memory(self.e)
        smallest = min(rows for rows, _ in self.blocking.tiles)
        self.registers = TileRegisters(min(smallest, self.micro.register_rows), self._run % self.micro.step)
        return operands

    def _declare_image(self, unit: str) -> Any:
        if self.lines is None:
            return super()._declare_image(unit)
        return self.e.temp(0, self.lines.elements, unit)

    @property
    def joined(self) -> bool:
        """Whether a row of the window is one run of the reduction."""
        return self.lines is not None and self.lines.joined

    @property
    def _run(self) -> int:
        """Units of the reduction that are neighbours in memory, in the image and in the weights."""
        if self.joined:
            return self.conv.kernel[1] * self.conv.in_channels
        return self.conv.group_in // (self.blocking.k_blocks if self.conv.pointwise else 1)

    @property
    def rate(self) -> float:
        cycles = matrix_cycles(self.elements, _lines(self.elements, self.micro))
        return self.elements.multiply_adds / cycles / self.target.operations_per_cycle

    def _before(self) -> tuple[tuple[Stage, ...], tuple[int, ...]]:
        if self.lines is None:
            return (), ()
        unit = self.micro.left_unit
        e = Emitter(self.lanes, self.target, unit)
        outside = int.from_bytes(bytes([self.elements.outside] * self.micro.group), "little", signed=True)
        stage = self.lines.stage(e, self.fused.operand(0), IntImm(unit, outside))
        return (stage,), (self.lines.elements * DTYPE_BYTES[unit],)

    def _tasks(self) -> None:
        lo, hi = self.e.task_range()
        self.registers.set_up(self.e, self.memory)
        self.e.loop(lo, hi, self._task)
        self.registers.release(self.e)

    # One tile ---------------------------------------------------------------------------------------------

    def _sums(self, tile: TileAt) -> TileSums:
        return TileSums(self.e, self.memory, self.registers, tile.rows, tile.columns.width)

    def _add(self, sums: TileSums, tile: TileAt) -> None:
        e, c, lines, run = self.e, self.conv, self.lines, self._run
        row_stride = c.in_channels * (1 if lines is None else lines.between)
        first = e.let(tile.pixel * row_stride + tile.columns.group * c.group_in)

        def add(part: Any, offset: Any) -> None:
            pixels = e.rebased(self.operands.x, first + offset, (tile.rows - 1) * row_stride + run)
            left = Matrix(pixels, 0, row_stride)
            weights = self.operands.weights, tile.columns.weights
            right = tile.columns.panels.matrix(e, weights, (part, run), tile.columns.first, sums.vectors)
            prefetch = self.product.later(tile, part, run, self.micro.step) if self.prefetch_bytes else None
            sums.add(left, right, run, prefetch)

        def row(i: Any) -> None:
            assert lines is not None
            if self.joined:
                add(i, lines.tap(i, 0))
            else:
                e.loop(0, c.kernel[1], lambda j: add(i * c.kernel[1] + j, lines.tap(i, j)))

        if lines is None or c.pointwise:
            add(tile.k_block, tile.k_block * run)
        elif self.blocking.k_blocks > 1:
            row(tile.k_block)
        else:
            e.loop(0, c.rows, row)

    def _residuals(self, tile: TileAt) -> dict[int, Any]:
        """None of all of a tile: its pixels need not be neighbours in the output."""
        return {}

    def _store(self, sums: TileSums, tile: TileAt, residuals: dict[int, Any], pixels: Pixels) -> None:
        """Applies the epilogue row by row, from the thread's memory."""
        sums.save(self.memory, 0)
        e, lines = self.e, self.lines

        def row(r: Any) -> None:
            def stored(pixel: Any) -> None:
                at = replace(tile, pixel=e.let(pixel), rows=1)
                here = super(TileGemm, self)._residuals(at)
                super(TileGemm, self)._store(_Row(sums, r), at, here, pixels)

            if lines is None:
                stored(tile.pixel + r)
            else:
                pixel, inside = lines.pixel(e.let(tile.pixel + r))
                e.branch(inside, lambda: stored(pixel))

        e.loop(0, tile.rows, row)
