"""Rule ``simdgroup_matrix``: products by the matrix units of Apple's GPUs, with float32 sums.

A matrix product as in rule ``contraction``. The tiles of both operands are in the memory that a threadgroup
shares, as float16 where both operands are float16 in memory, else as float32. A SIMD-group, 32 threads,
multiplies 8 x 8 parts of them (Metal Shading Language, section "SIMD-group matrix functions"). Which thread
holds which element of a part is not said there: results go by shared memory too, eight rows of each
SIMD-group at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.gpu.contract import GpuStage
from edgepack.compiler.kernels.gpu.kernel import Kernel
from edgepack.compiler.kernels.gpu.limits import check_group
from edgepack.compiler.kernels.gpu.loop_nests import LoopNest
from edgepack.compiler.kernels.gpu.matrix_product import MatrixProduct, matrix_product
from edgepack.compiler.kernels.gpu.rule import GpuRule
from edgepack.compiler.kernels.gpu.split_k import given_split
from edgepack.compiler.kernels.gpu.tiles import (
    GAP_BYTES,
    ElementType,
    ProductSchedule,
    TilePath,
    TileShape,
    chosen_tile,
    is_half,
    tile_groups,
)
from edgepack.compiler.kernels.schedule import ScheduleError, by
from edgepack.plan.gpu_target import GpuTarget

__all__ = ["RULE", "SimdgroupSchedule"]

#: Rows, columns and terms of the instruction, and threads that execute it together.
SIDE, SIMD = 8, 32

#: Terms of a tile, by what it is made of: 64 bytes of each row.
DEPTH: dict[ElementType, int] = {"ep_half": 32, "float": 16}

#: Results of a SIMD-group at most, in parts of 8 x 8: each thread has two numbers of a part.
MOST_PARTS = 32

#: Elements of a large tile: what is read of memory for it is multiplied often enough.
LARGE = 32 * 32


@dataclass(frozen=True)
class _Tile:
    """What a group computes: ``height`` x ``width``, by a grid of ``down`` x ``across`` SIMD-groups."""

    height: int
    width: int
    down: int
    across: int

    @property
    def simdgroups(self) -> int:
        return self.down * self.across

    @property
    def threads(self) -> int:
        return self.simdgroups * SIMD

    @property
    def parts(self) -> tuple[int, int]:
        """The results of a SIMD-group, along rows and along columns."""
        return self.height // self.down // SIDE, self.width // self.across // SIDE

    @property
    def result_elements(self) -> int:
        """Results that are in shared memory at once."""
        return self.down * SIDE * self.width

    def most_bytes(self, element: ElementType) -> int:
        """Bytes of shared memory, however the operands lie there."""
        wide = 2 if element == "ep_half" else 4
        depth = DEPTH[element]
        along_k = (self.height + self.width) * (depth * wide + GAP_BYTES)
        across_k = depth * ((self.height + self.width) * wide + 2 * GAP_BYTES)
        return max(along_k, across_k) + 4 * self.result_elements


#: Largest first.
TILES = (
    *(_Tile(64, 64, 2, 2), _Tile(64, 32, 2, 2), _Tile(32, 64, 2, 2), _Tile(32, 32, 2, 2)),
    *(_Tile(16, 64, 1, 4), _Tile(64, 16, 4, 1), _Tile(16, 32, 1, 2), _Tile(32, 16, 2, 1)),
    *(_Tile(16, 16, 2, 1),),
)


@dataclass(frozen=True)
class SimdgroupSchedule(ProductSchedule):
    """What is decided about a product by matrices of SIMD-groups."""


def simdgroup_matrix(kernel: Kernel, nest: LoopNest, target: GpuTarget, given: SimdgroupSchedule) -> GpuStage:
    """The kernel of a nest whose reduction is a sum of products. RuleError for another one, and where a GPU
    of the target may have no such units."""
    if nest.reduction is None or not target.simdgroup_matrices:
        raise RuleError("no reduction, or no matrices of SIMD-groups")
    product = matrix_product(nest.reduction, kernel.evaluator.inlined)
    return _SimdgroupProduct(kernel, nest, product, target, given).build()


class _SimdgroupProduct:
    """Writes the kernel.

    Attributes:
        element: what the tiles are made of.
    """

    def __init__(
        self,
        kernel: Kernel,
        nest: LoopNest,
        product: MatrixProduct,
        target: GpuTarget,
        given: SimdgroupSchedule,
    ) -> None:
        self.kernel, self.nest, self.product, self.target = kernel, nest, product, target
        self.code = kernel.code
        both = all(is_half(x, kernel) for x in product.operands)
        self.element: ElementType = "ep_half" if both else "float"
        self.depth = DEPTH[self.element]
        fitting = [
            tile
            for tile in TILES
            if tile.threads <= target.group_size and tile.most_bytes(self.element) <= target.local_bytes
        ]
        sizes = [(tile.height, tile.width) for tile in fitting]
        chosen, self.split_k = chosen_tile(sizes, LARGE, product, self.depth, target)
        self.tile = self._given_tile(fitting[chosen], given)
        if given != SimdgroupSchedule():
            groups = tile_groups(self.tile.height, self.tile.width, product)
            self.split_k = given_split(given.split_k, groups, product, self.depth, target)
        lengths = (self.tile.height, self.tile.width)
        self.paths = [
            TilePath(kernel, product, i, TileShape(length, self.depth, self.tile.threads, self.element))
            for i, length in enumerate(lengths)
        ]

    def _given_tile(self, own: _Tile, given: SimdgroupSchedule) -> _Tile:
        """The tile with what is given; ScheduleError where that is none."""
        tile = _Tile(*(given.tile or (own.height, own.width)), *(given.grid or (own.down, own.across)))
        if tile.height % (SIDE * tile.down) or tile.width % (SIDE * tile.across):
            grid = by((tile.down, tile.across))
            raise ScheduleError(f"a tile of {by((tile.height, tile.width))} by {grid} SIMD-groups")
        if tile != own:
            down, across = tile.parts
            if down * across > MOST_PARTS:
                raise ScheduleError(f"{down * across} parts of a SIMD-group of at most {MOST_PARTS}")
            check_group(tile.threads, tile.most_bytes(self.element), self.target)
        return tile

    def build(self) -> GpuStage:
        code, tile = self.code, self.tile
        code.in_simdgroups = True
        down, across = tile.parts
        code.line(f"SHARED ALIGNED(16) float results[{tile.result_elements}];")
        code.line("const int t = THREAD(0);")
        code.line(f"const int n0 = GROUP(0) * {tile.width}, m0 = GROUP(1) * {tile.height};")
        self.split_k.begin(code, self.product)
        code.line(f"const int row0 = SIMDGROUP / {tile.across} * {down * SIDE};")
        code.line(f"const int column0 = SIMDGROUP % {tile.across} * {across * SIDE};")
        code.line(f"simdgroup_float8x8 sum[{down * across}];")
        code.line("UNROLL")
        with code.block(f"for (int i = 0; i < {down * across}; ++i)"):
            code.line("sum[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);")
        for path in self.paths:
            path.declare()
        code.line("int k0 = k_first;")
        self._fetch()
        with code.block("for (; k0 < k_end;)"):
            for path in self.paths:
                path.keep()
            code.line("BARRIER;")
            code.line(f"k0 += {self.depth};")
            with code.block("if (k0 < k_end)"):
                self._fetch()
            self._multiply()
            code.line("BARRIER;")
        self._store()
        product = self.product
        members = product.counts["b"] * self.split_k.count
        groups = (-(-product.counts["n"] // tile.width), -(-product.counts["m"] // tile.height), members)
        local = sum(path.nbytes for path in self.paths) + 4 * tile.result_elements
        stage = code.stage(groups, (tile.threads, 1, 1), local_bytes=local)
        stage = self.split_k.ended(stage, self.kernel, self.nest, product, self.target)
        schedule = SimdgroupSchedule((tile.height, tile.width), (tile.down, tile.across), self.split_k.count)
        return replace(stage, schedule=schedule)

    def _fetch(self) -> None:
        for path in self.paths:
            path.fetch()

    def _multiply(self) -> None:
        code = self.code
        down, across = self.tile.parts
        matrix = f"simdgroup_{'half' if self.element == 'ep_half' else 'float'}8x8"
        code.line("UNROLL")
        with code.block(f"for (int k = 0; k < {self.depth}; k += {SIDE})"):
            code.line(f"{matrix} a[{down}], b[{across}];")
            for name, count, start, path in (
                ("a", down, "row0", self.paths[0]),
                ("b", across, "column0", self.paths[1]),
            ):
                line = f"({start} + i * {SIDE})"
                at = f"{line} * {path.pitch} + k" if path.along_k else f"k * {path.pitch} + {line}"
                # A part of the first operand has a row in each line, one of the second a term.
                turned = "true" if path.along_k == (name == "b") else "false"
                code.line("UNROLL")
                with code.block(f"for (int i = 0; i < {count}; ++i)"):
                    load = f"{name}[i], {path.name} + {at}, {path.pitch}, ulong2(0), {turned}"
                    code.line(f"simdgroup_load({load});")
            code.line("UNROLL")
            with code.block(f"for (int i = 0; i < {down * across}; ++i)"):
                code.line(f"simdgroup_multiply_accumulate(sum[i], a[i / {across}], b[i % {across}], sum[i]);")

    def _store(self) -> None:
        """Eight rows of each SIMD-group at a time, with what stands behind the product."""
        code, tile, counts = self.code, self.tile, self.product.counts
        down, across = tile.parts
        wide = across * SIDE
        own = SIDE * wide
        whole = counts["m"] % tile.height == 0 and counts["n"] % tile.width == 0
        code.line("UNROLL")
        with code.block(f"for (int i = 0; i < {down}; ++i)"):
            code.line("UNROLL")
            with code.block(f"for (int j = 0; j < {across}; ++j)"):
                to = f"results + SIMDGROUP * {own} + j * {SIDE}"
                code.line(f"simdgroup_store(sum[i * {across} + j], {to}, {wide});")
            code.line("BARRIER;")
            with code.block(f"for (int e = t; e < {tile.result_elements}; e += {tile.threads})"):
                code.line(f"const int of = e / {own}, line = e % {own} / {wide};")
                row = f"of / {tile.across} * {down * SIDE} + i * {SIDE} + line"
                code.line(f"const int m = m0 + {row};")
                code.line(f"const int n = n0 + of % {tile.across} * {wide} + e % {wide};")
                with code.block("" if whole else f"if (m < {counts['m']} && n < {counts['n']})"):
                    self.split_k.store(self.kernel, self.nest, self.product, "results[e]")
            code.line("BARRIER;")


RULE = GpuRule("simdgroup_matrix", order=200, apply=simdgroup_matrix, schedule=SimdgroupSchedule)
