"""Rule ``contraction``: products summed over, by tiles in the memory that a group's work items share.

A work item computes a small tile of the matrix product (``matrix_product.py``) in registers; a group reads a
tile of both operands, ``DEPTH`` deep, for all of its work items, and the next ones while these are multiplied
(``tiles.py``). The rows and columns of a work item are groups of neighbours, which it reads of shared memory
at once. Padding is read as 0, and nothing is copied.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.gpu.contract import GpuStage
from edgepack.compiler.kernels.gpu.kernel import Kernel
from edgepack.compiler.kernels.gpu.limits import check_group, check_registers
from edgepack.compiler.kernels.gpu.loop_nests import LoopNest
from edgepack.compiler.kernels.gpu.matrix_product import MatrixProduct, matrix_product
from edgepack.compiler.kernels.gpu.rule import GpuRule
from edgepack.compiler.kernels.gpu.split_k import given_split
from edgepack.compiler.kernels.gpu.tiles import (
    GAP_BYTES,
    ProductSchedule,
    TilePath,
    TileShape,
    chosen_tile,
    tile_groups,
)
from edgepack.compiler.kernels.schedule import ScheduleError, by
from edgepack.plan.gpu_target import GpuTarget

__all__ = ["RULE", "ContractionSchedule"]

#: How deep the tiles are, unless another depth is given.
DEPTH, DEPTHS = 16, (8, 16, 32)

#: Tiles of a work item (rows, columns), largest first, in a group whose work items are a square.
TILES = ((8, 4), (4, 4), (2, 4), (2, 2))

#: In one that is as wide as few columns need: its tiles are so high that more numbers of a work item would
#: need too many registers for what is read of the next tile.
NARROW_TILES = ((4, 4), (2, 4), (2, 2))

#: Elements of a large tile of a work item: it multiplies at least twice for each number that it reads of
#: shared memory.
LARGE = 16


@dataclass(frozen=True)
class ContractionSchedule(ProductSchedule):
    """What is decided about a product by work items.

    Attributes:
        depth: terms of a tile.
    """

    depth: int | None = None


def contraction(kernel: Kernel, nest: LoopNest, target: GpuTarget, given: ContractionSchedule) -> GpuStage:
    """The kernel of a nest whose reduction is a sum of products. RuleError for another one."""
    if nest.reduction is None:
        raise RuleError("no reduction")
    product = matrix_product(nest.reduction, kernel.evaluator.inlined)
    return _TiledProduct(kernel, nest, product, target, given).build()


@dataclass(frozen=True)
class _Tile:
    """What a group computes: ``down`` x ``across`` work items, of ``rows`` x ``columns`` each, by ``depth``
    terms at a time."""

    rows: int
    columns: int
    down: int
    across: int
    depth: int = DEPTH

    @property
    def height(self) -> int:
        """Rows of the group."""
        return self.rows * self.down

    @property
    def width(self) -> int:
        """Columns of the group."""
        return self.columns * self.across

    @property
    def threads(self) -> int:
        """Work items."""
        return self.down * self.across

    @property
    def nbytes(self) -> int:
        """Bytes of both operands' tiles in shared memory."""
        return self.depth * (4 * (self.height + self.width) + 2 * GAP_BYTES)

    @property
    def numbers(self) -> int:
        """That a work item holds: its results, the operands of a term, and what is read of the next tile."""
        read = -(-self.depth * (self.height + self.width) // self.threads)
        return self.rows * self.columns + self.rows + self.columns + read


def _tiles(columns: int, group_size: int) -> list[_Tile]:
    """The tiles for products of so many columns, largest first: where the smallest square would be at most
    half full, as for a group of 8 or 16 channels, narrow ones before."""
    side = int(group_size**0.5)
    tiles = [_Tile(*tile, side, side) for tile in TILES]
    narrow = []
    if 2 * columns <= tiles[-1].width:
        for rows, each in NARROW_TILES:
            across = 1 << (-(-columns // each) - 1).bit_length()
            narrow.append(_Tile(rows, each, side * side // across, across))
    return narrow + tiles


class _TiledProduct:
    """Writes the kernel.

    Attributes:
        tile: of a group and of its work items.
        paths: of both operands, to shared memory with the rows (columns) of a term one after the other.
    """

    def __init__(
        self,
        kernel: Kernel,
        nest: LoopNest,
        product: MatrixProduct,
        target: GpuTarget,
        given: ContractionSchedule,
    ) -> None:
        self.kernel, self.nest, self.product, self.target = kernel, nest, product, target
        self.code = kernel.code
        self.m, self.n, self.b = (product.counts[name] for name in "mnb")
        tiles = _tiles(self.n, target.group_size)
        fitting = [tile for tile in tiles if tile.nbytes <= target.local_bytes]
        sizes = [(tile.height, tile.width) for tile in fitting]
        chosen, self.split_k = chosen_tile(sizes, LARGE * tiles[-1].threads, product, DEPTH, target)
        self.tile = tile = _given_tile(fitting[chosen], given, target)
        self.depth = tile.depth
        if given != ContractionSchedule():
            groups = tile_groups(tile.height, tile.width, product)
            self.split_k = given_split(given.split_k, groups, product, self.depth, target)
        self.rows, self.columns, self.height, self.width = tile.rows, tile.columns, tile.height, tile.width
        self.paths = [
            TilePath(kernel, product, i, TileShape(length, self.depth, tile.threads, "float"), along_k=False)
            for i, length in enumerate((self.height, self.width))
        ]

    def build(self) -> GpuStage:
        code = self.code
        for path in self.paths:
            path.declare()
        code.line(f"const int x = THREAD(0), y = THREAD(1), t = y * {self.tile.across} + x;")
        code.line(f"const int n0 = GROUP(0) * {self.width}, m0 = GROUP(1) * {self.height};")
        self.split_k.begin(code, self.product)
        code.line(f"float sum[{self.rows} * {self.columns}];")
        code.line("UNROLL")
        with code.block(f"for (int i = 0; i < {self.rows * self.columns}; ++i)"):
            code.line("sum[i] = 0.0f;")
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
        groups = (-(-self.n // self.width), -(-self.m // self.height), self.b * self.split_k.count)
        local = sum(path.nbytes for path in self.paths)
        stage = code.stage(groups, (self.tile.across, self.tile.down, 1), local_bytes=local)
        stage = self.split_k.ended(stage, self.kernel, self.nest, self.product, self.target)
        tile, grid = (self.height, self.width), (self.tile.down, self.tile.across)
        return replace(stage, schedule=ContractionSchedule(tile, grid, self.split_k.count, self.depth))

    def _fetch(self) -> None:
        for path in self.paths:
            path.fetch()

    def _multiply(self) -> None:
        code = self.code
        code.line("UNROLL")
        with code.block(f"for (int k = 0; k < {self.depth}; ++k)"):
            for path, (who, count, along) in zip(self.paths, self._sides(), strict=True):
                near = _neighbours(count)
                vector = f"float{near}"
                for i in range(count // near):
                    at = f"{path.name} + k * {path.pitch} + {who} * {near} + {i * near * along}"
                    code.line(f"const {vector} {path.name[0]}{i} = *(SHARED_POINTER(const {vector}))({at});")
            for number in range(self.rows * self.columns):
                i, j = divmod(number, self.columns)
                operands = _component("f", i, self.rows), _component("s", j, self.columns)
                code.line(f"sum[{number}] = fma({operands[0]}, {operands[1]}, sum[{number}]);")

    def _store(self) -> None:
        """Each number of the work item's tile, with what stands behind the product: columns that lie together
        at once."""
        code, near = self.code, _neighbours(self.columns)
        together = self.split_k.together(self.kernel, self.nest, self.product, near)
        code.line("UNROLL")
        with code.block(f"for (int i = 0; i < {self.rows}; ++i)"):
            code.line("UNROLL")
            with code.block(f"for (int j = 0; j < {self.columns}; j += {near if together else 1})"):
                code.line(f"const int m = m0 + {self._place('i', 0)};")
                code.line(f"const int n = n0 + {self._place('j', 1)};")
                whole = self.m % self.height == 0 and self.n % self.width == 0
                with code.block("" if whole else f"if (m < {self.m} && n < {self.n})"):
                    values = [f"sum[i * {self.columns} + j + {number}]" for number in range(near)]
                    if together:
                        self.split_k.store_columns(self.kernel, self.nest, self.product, values)
                    else:
                        value = f"sum[i * {self.columns} + j]"
                        self.split_k.store(self.kernel, self.nest, self.product, value)

    def _place(self, number: str, side: int) -> str:
        """The row (column) of the group's tile that is a work item's ``number``-th."""
        who, count, along = self._sides()[side]
        near = _neighbours(count)
        return f"{number} / {near} * {near * along} + {who} * {near} + {number} % {near}"

    def _sides(self) -> tuple[tuple[str, int, int], tuple[str, int, int]]:
        """For rows, then columns: the work item's place, how many it has, how many work items there are."""
        tile = self.tile
        return ("y", tile.rows, tile.down), ("x", tile.columns, tile.across)


def _given_tile(own: _Tile, given: ContractionSchedule, target: GpuTarget) -> _Tile:
    """The tile with what is given; ScheduleError where that is none."""
    down, across = given.grid or (own.down, own.across)
    height, width = given.tile or (own.height, own.width)
    if height % down or width % across or (height // down) % 2 or (width // across) % 2:
        raise ScheduleError(
            f"a tile of {by((height, width))} in even parts of {by((down, across))} work items"
        )
    tile = _Tile(height // down, width // across, down, across, given.depth or own.depth)
    if tile != own:
        if height % 4 or width % 4 or tile.depth not in DEPTHS:
            raise ScheduleError(f"a tile of {by((height, width))} and {tile.depth} terms")
        check_group(tile.threads, tile.nbytes, target)
        check_registers(tile.numbers, tile.threads, target)
    return tile


def _neighbours(count: int) -> int:
    """How many of a work item's rows (columns) lie next to each other."""
    return 4 if count % 4 == 0 else 2


def _component(name: str, number: int, count: int) -> str:
    """A number of those that were read at once."""
    near = _neighbours(count)
    return f"{name}{number // near}.{'xyzw'[number % near]}"


RULE = GpuRule("contraction", order=300, apply=contraction, schedule=ContractionSchedule)
