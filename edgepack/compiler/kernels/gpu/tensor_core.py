"""Rule ``tensor_core``: products of float16 tensors, or of float32 ones whose operands are rounded to TF32,
by the matrix units of NVIDIA's GPUs, with float32 sums.

A matrix product as in rule ``contraction``. A group's tiles of both operands are in shared memory in several
stages (``staged_tiles.py``), each row (column) with its terms one after the other: while one is multiplied,
the next ones are on their way. A warp reads fragments by ``ldmatrix`` and computes ``mma.sync.m16n8k16`` of
float16, ``m16n8k8`` of TF32: 8 words of 32 bits of a row, which hold two numbers or one, in the same
fragments.

Where a operand is a tensor whose last dimension is the innermost of the depth, 16 bytes are copied at once.
Constant second operands are stored so: column after column, for TF32 rounded. Others are rounded to TF32 on
their way to shared memory, or, where they are copied as they are, when a fragment is read.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np

from edgepack.compiler.kernels.contract import Array, Packing, RuleError
from edgepack.compiler.kernels.gpu.contract import GpuStage
from edgepack.compiler.kernels.gpu.kernel import Kernel
from edgepack.compiler.kernels.gpu.limits import check_group, check_power, check_registers
from edgepack.compiler.kernels.gpu.loop_nests import LoopNest
from edgepack.compiler.kernels.gpu.matrix_product import MatrixProduct, matrix_product
from edgepack.compiler.kernels.gpu.operands import packed_columns
from edgepack.compiler.kernels.gpu.rule import GpuRule
from edgepack.compiler.kernels.gpu.split_k import given_split
from edgepack.compiler.kernels.gpu.staged_tiles import (
    LEAST_STAGES,
    MOST_STAGES,
    WORDS,
    Format,
    StagedTiles,
    stages_of,
)
from edgepack.compiler.kernels.gpu.tiles import ProductSchedule, chosen_tile, is_half, tile_groups
from edgepack.compiler.kernels.schedule import ScheduleError, by
from edgepack.plan.gpu_target import GpuTarget

__all__ = ["RULE", "TensorCoreSchedule"]

#: Rows and columns of the instruction, and words of its terms.
ROWS, COLUMNS, TERMS = 16, 8, 8

#: Elements of a large tile: what is read of memory for it is multiplied often enough.
LARGE = 64 * 32

#: Threads of a warp.
WARP = 32


HALF = Format("float16", "ep_half", 2, "ep_mma")
TF32 = Format("float32", "float", 1, "ep_mma_tf32", rounded=True)


@dataclass(frozen=True)
class _Tile:
    """What a group computes: ``height`` x ``width``, by a grid of ``down`` x ``across`` warps."""

    height: int
    width: int
    down: int
    across: int

    @property
    def threads(self) -> int:
        return self.down * self.across * WARP

    @property
    def fragments(self) -> tuple[int, int]:
        """The results of a warp, along rows and along columns."""
        return self.height // self.down // ROWS, self.width // self.across // COLUMNS

    @property
    def stage_bytes(self) -> int:
        """Shared memory of a stage of both operands."""
        return 4 * (self.height + self.width) * WORDS


#: Largest first.
TILES = (
    *(_Tile(128, 128, 2, 4), _Tile(128, 64, 4, 2), _Tile(64, 128, 2, 4), _Tile(64, 64, 2, 2)),
    *(_Tile(128, 32, 4, 1), _Tile(32, 64, 1, 4), _Tile(64, 32, 4, 1), _Tile(32, 32, 2, 2)),
    *(_Tile(16, 64, 1, 4), _Tile(64, 16, 4, 1), _Tile(16, 32, 1, 4)),
)


@dataclass(frozen=True)
class TensorCoreSchedule(ProductSchedule):
    """What is decided about a product by tensor cores.

    Attributes:
        stages: tiles of each operand in shared memory, where both are copied as they are: the more there are,
            the earlier they are on their way. 2 where an operand goes by registers.
    """

    stages: int | None = None


def tensor_core(kernel: Kernel, nest: LoopNest, target: GpuTarget, given: TensorCoreSchedule) -> GpuStage:
    """The kernel of a nest whose reduction is a sum of products of float16 tensors, or of ones that may be
    rounded to TF32. RuleError for another one, and where the GPU has no such units."""
    if nest.reduction is None or not target.tensor_cores:
        raise RuleError("no reduction, or no tensor cores")
    product = matrix_product(nest.reduction, kernel.evaluator.inlined)
    form = TF32 if kernel.tf32 else HALF
    if product.counts["m"] < ROWS or product.counts["k"] < TERMS * form.in_word:
        raise RuleError("a product that is smaller than the instruction")
    if form is HALF and not all(is_half(x, kernel) for x in product.operands):
        raise RuleError("a operand is float32 in memory")
    return _TensorCoreProduct(kernel, nest, product, target, form, given).build()


def _rounded(packing: Packing) -> Packing:
    """The same with numbers rounded to TF32 as ``cvt.rna.tf32.f32`` does it: to the nearest, ties away
    from 0. What is not finite stays."""

    def transform(array: Array) -> Array:
        made = packing.transform(array)
        bits = made.view(np.uint32)
        rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
        return np.where(np.isfinite(made), rounded, made)

    return replace(packing, key=f"{packing.key} as TF32", transform=transform)


class _TensorCoreProduct:
    """Writes the kernel.

    Attributes:
        packed: the second operand, where it is a constant.
        count: tiles of each operand in shared memory, and ``stages`` the same as text: where both operands
            are copied, it is 1 for GPUs that do not copy by themselves.
    """

    def __init__(
        self,
        kernel: Kernel,
        nest: LoopNest,
        product: MatrixProduct,
        target: GpuTarget,
        form: Format,
        given: TensorCoreSchedule,
    ) -> None:
        self.kernel, self.nest, self.product, self.target = kernel, nest, product, target
        self.code, self.form = kernel.code, form
        self.m, self.n, self.k, self.b = (product.counts[name] for name in "mnkb")
        fitting = [
            t for t in TILES if t.threads <= target.group_size and 2 * t.stage_bytes <= target.local_bytes
        ]
        sizes = [(t.height, t.width) for t in fitting]
        chosen, self.split_k = chosen_tile(sizes, LARGE, product, form.depth, target)
        self.tile = tile = _given_tile(fitting[chosen], given, target)
        if given != TensorCoreSchedule():
            groups = tile_groups(tile.height, tile.width, product)
            self.split_k = given_split(given.split_k, groups, product, form.depth, target)
        packed = packed_columns(product, kernel, form.dtype)
        self.packed = _rounded(packed) if packed is not None and form.rounded else packed
        first = StagedTiles(kernel, product, form, 0, length=tile.height, threads=tile.threads)
        second = StagedTiles(
            kernel, product, form, 1, length=tile.width, threads=tile.threads, packed=self.packed
        )
        self.paths = (first, second)
        self.parts = max(first.parts, second.parts)
        if self.parts * TERMS > WORDS:
            raise ScheduleError("tiles of more than each thread reads in the course of a product")
        tiles = -(-(self.split_k.terms or self.k) // form.depth)
        count = stages_of(tile.stage_bytes, tile.threads, tiles, target.local_bytes)
        all_copied = first.copied and second.copied
        count = self._given_stages(count if all_copied else 2, given, all_copied)
        #: What waits in registers is written to the second stage on every GPU.
        self.count = count
        self.stages = f"STAGES({count})" if all_copied else "2"

    def _given_stages(self, own: int, given: TensorCoreSchedule, all_copied: bool) -> int:
        """Tiles in shared memory, as given; ScheduleError where there cannot be so many."""
        count = given.stages or own
        most = MOST_STAGES if all_copied else LEAST_STAGES
        if not LEAST_STAGES <= count <= most:
            raise ScheduleError(f"{count} stages of tiles of at most {most}")
        if count != own:
            check_group(self.tile.threads, count * self.tile.stage_bytes, self.target)
        return count

    def build(self) -> GpuStage:
        code, tile = self.code, self.tile
        for path in self.paths:
            path.declare(self.stages)
        code.line(f"const int t = THREAD(0), warp = t / {WARP}, lane = t % {WARP};")
        code.line(f"const int n0 = GROUP(0) * {tile.width}, m0 = GROUP(1) * {tile.height};")
        self.split_k.begin(code, self.product)
        down, across = tile.fragments
        code.line(f"const int row0 = warp / {tile.across} * {down * ROWS};")
        code.line(f"const int column0 = warp % {tile.across} * {across * COLUMNS};")
        self._fragment_places()
        code.line(f"float sum[{down * across}][4];")
        with code.block(f"for (int i = 0; i < {down * across}; ++i)"):
            code.line("sum[i][0] = sum[i][1] = sum[i][2] = sum[i][3] = 0.0f;")
        self._pipeline()
        self._store()
        groups = (-(-self.n // tile.width), -(-self.m // tile.height), self.b * self.split_k.count)
        stage = code.stage(groups, (tile.threads, 1, 1), local_bytes=self.count * tile.stage_bytes)
        stage = self.split_k.ended(stage, self.kernel, self.nest, self.product, self.target)
        tile_and_grid = (tile.height, tile.width), (tile.down, tile.across)
        schedule = TensorCoreSchedule(*tile_and_grid, self.split_k.count, self.count)
        packed = () if self.packed is None else (self.packed,)
        return replace(stage, packed=packed, schedule=schedule)

    def _pipeline(self) -> None:
        """All tiles: ``k0`` is the first term of the next one to be read, which goes ``to`` a stage, ``from``
        the stage of the one that is multiplied."""
        code, depth = self.code, self.form.depth
        code.line("int k0 = k_first, to = 0, from = 0;")
        with code.block(f"for (int i = 0; i < AHEAD({self.count}); ++i)"):
            with self._by_parts(), code.block("if (k0 < k_end)"):
                self._fetch()
                self._keep()
            self._next()
        with code.block(f"for (int k = k_first; k < k_end; k += {depth})"):
            # All but those of the tiles behind this one.
            code.line(f"COPIES_ARRIVED({self.count - 2});")
            code.line("BARRIER;")
            self._step()
            self._next()
            code.line(f"from = from + 1 == {self.stages} ? 0 : from + 1;")

    def _by_parts(self) -> AbstractContextManager[None]:
        """A loop over the parts of a tile, each of which the compiler is to finish before the next."""
        if self.parts == 1:
            return nullcontext()
        self.code.line("ROLLED")
        return self.code.block(f"for (int part = 0; part < {self.parts}; ++part)")

    def _step(self) -> None:
        """Multiplies a tile, while another one is read; that by parts, each beside a part of the product."""
        code = self.code
        with self._by_parts():
            with code.block("if (k0 < k_end)"):
                self._fetch()
            self._multiply()
            if self.stages.startswith("STAGES"):
                with code.block(f"if ({self.stages} == 1)"):
                    code.line("BARRIER;")
            with code.block("if (k0 < k_end)"):
                self._keep()

    def _next(self) -> None:
        """Ends the copies of a tile, and turns to the next one."""
        self.code.line("COPIES_END;")
        self.code.line(f"to = to + 1 == {self.stages} ? 0 : to + 1;")
        self.code.line(f"k0 += {self.form.depth};")

    def _fetch(self) -> None:
        for path in self.paths:
            with self._in_parts_of(path):
                path.fetch()

    def _keep(self) -> None:
        for path in self.paths:
            with self._in_parts_of(path):
                path.keep()

    def _in_parts_of(self, path: StagedTiles) -> AbstractContextManager[None]:
        fewer = path.parts < self.parts
        return self.code.block(f"if (part < {path.parts})") if fewer else nullcontext()

    # The product -------------------------------------------------------------------------------------------

    def _fragment_places(self) -> None:
        """Where a thread's row of the matrices of ``ldmatrix`` lies: of four of the first operand, rows 0 to
        7 and 8 to 15 of the first four words, then of the next four; of the second, both chunks of columns 0
        to 7, then of 8 to 15."""
        code, form = self.code, self.form
        across = self.tile.fragments[1]
        column = "lane % 8 + lane / 16 * 8" if across > 1 else "lane % 8"
        code.line("const int turn = lane / 2 % 4;")
        code.line(f"const int a_row = (row0 + lane % 16) * {form.depth};")
        code.line(f"const int a_depth = (lane / 16 ^ turn) * {form.vector};")
        code.line(f"const int b_row = (column0 + {column}) * {form.depth};")
        code.line(f"const int b_depth = (lane / 8 % 2 ^ turn) * {form.vector};")

    def _multiply(self) -> None:
        """The products of a part of a tile's terms."""
        code, kind = self.code, self.form.c_type
        down, across = self.tile.fragments
        first, second = self.paths
        code.line(f"const {kind} *rows = {first.name} + from * {first.numbers} + a_row;")
        code.line(f"const {kind} *columns = {second.name} + from * {second.numbers} + b_row;")
        code.line("UNROLL")
        step = TERMS * self.form.in_word
        count = self.form.depth // self.parts
        begin = "0" if self.parts == 1 else f"part * {count}"
        with code.block(f"for (int at = {begin}; at < {begin} + {count}; at += {step})"):
            code.line(f"uint a[{down}][4], b[{across}][2];")
            code.line("UNROLL")
            with code.block(f"for (int i = 0; i < {down}; ++i)"):
                code.line(f"LDMATRIX_4(a[i], rows + i * {ROWS * self.form.depth} + (a_depth ^ at));")
            self._second_fragments(across)
            for path, array, shape in ((first, "a", (down, 4)), (second, "b", (across, 2))):
                if path.rounds_late:
                    code.line("UNROLL")
                    with code.block(f"for (int i = 0; i < {shape[0] * shape[1]}; ++i)"):
                        one = f"{array}[i / {shape[1]}][i % {shape[1]}]"
                        code.line(f"{one} = ep_tf32_bits(__uint_as_float({one}));")
            code.line("UNROLL")
            with code.block(f"for (int i = 0; i < {down}; ++i)"):
                code.line("UNROLL")
                with code.block(f"for (int j = 0; j < {across}; ++j)"):
                    code.line(f"{self.form.product}(sum[i * {across} + j], a[i], b[j]);")

    def _second_fragments(self, across: int) -> None:
        """Two columns of fragments at once, where there are two."""
        code = self.code
        if across == 1:
            code.line("LDMATRIX_2(b[0], columns + (b_depth ^ at));")
            return
        assert across % 2 == 0
        code.line("UNROLL")
        with code.block(f"for (int j = 0; j < {across}; j += 2)"):
            at = f"columns + j * {COLUMNS * self.form.depth} + (b_depth ^ at)"
            code.line(f"LDMATRIX_4(b[j], {at});")

    def _store(self) -> None:
        """Each number of the thread's fragments, with what stands behind the product."""
        code, tile = self.code, self.tile
        down, across = tile.fragments
        whole = self.m % tile.height == 0 and self.n % tile.width == 0
        code.line("UNROLL")
        with code.block(f"for (int i = 0; i < {down * across}; ++i)"):
            code.line("UNROLL")
            with code.block("for (int j = 0; j < 4; ++j)"):
                code.line(f"const int m = m0 + row0 + lane / 4 + i / {across} * {ROWS} + j / 2 * 8;")
                code.line(f"const int n = n0 + column0 + i % {across} * {COLUMNS} + lane % 4 * 2 + j % 2;")
                with code.block("" if whole else f"if (m < {self.m} && n < {self.n})"):
                    self.split_k.store(self.kernel, self.nest, self.product, "sum[i][j]")


def _given_tile(own: _Tile, given: TensorCoreSchedule, target: GpuTarget) -> _Tile:
    """The tile with what is given; ScheduleError where that is none."""
    tile = _Tile(*(given.tile or (own.height, own.width)), *(given.grid or (own.down, own.across)))
    if tile == own:
        return tile
    check_power("tiles of", tile.height, tile.width, tile.down, tile.across)
    down, across = tile.fragments
    if not down or not across:
        grid = by((tile.down, tile.across))
        raise ScheduleError(f"a tile of {by((tile.height, tile.width))} by {grid} warps")
    check_group(tile.threads, LEAST_STAGES * tile.stage_bytes, target)
    # Results and both operands' fragments, in words of 32 bits, and what waits of the next tile.
    waiting = tile.stage_bytes // 4 // tile.threads
    check_registers(4 * down * across + 4 * down + 2 * across + waiting, tile.threads, target)
    return tile


RULE = GpuRule("tensor_core", order=100, apply=tensor_core, schedule=TensorCoreSchedule)
