"""Rule ``contraction``: products summed over, by tiles in the memory that a group's work items share.

A work item computes a small tile of the matrix product (``matrix_product.py``) in registers; a group reads a
tile of both factors, ``DEPTH`` deep, for all of its work items, and the next ones while these are multiplied
(``tiles.py``). The rows and columns of a work item are groups of neighbours, which it reads of shared memory
at once. Padding is read as 0, and nothing is copied.
"""

from __future__ import annotations

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.gpu.contract import GpuStage
from edgepack.compiler.kernels.gpu.kernel import Kernel
from edgepack.compiler.kernels.gpu.matrix_product import MatrixProduct, matrix_product
from edgepack.compiler.kernels.gpu.nests import Nest
from edgepack.compiler.kernels.gpu.slices import Slices
from edgepack.compiler.kernels.gpu.tiles import GAP_BYTES, TilePath, TileShape, chosen_tile
from edgepack.plan.gpu_target import GpuTarget

__all__ = ["contraction"]

#: How deep the tiles are.
DEPTH = 16

#: Tiles of a work item (rows, columns), largest first; the work items of a group are a square.
TILES = ((8, 4), (4, 4), (2, 4), (2, 2))

#: Elements of a large tile of a work item: it multiplies at least twice for each number that it reads of
#: shared memory.
LARGE = 16


def contraction(kernel: Kernel, nest: Nest, target: GpuTarget) -> GpuStage:
    """The kernel of a nest whose reduction is a sum of products. RuleError for another one."""
    if nest.reduction is None:
        raise RuleError("no reduction")
    return _Builder(kernel, nest, matrix_product(nest.reduction, kernel.evaluator.inlined), target).build()


def _tile_bytes(height: int, width: int) -> int:
    """Of both factors' tiles in shared memory."""
    return DEPTH * (4 * (height + width) + 2 * GAP_BYTES)


class _Builder:
    """Writes the kernel.

    Attributes:
        side: work items along rows, and along columns, of a group.
        rows, columns: of a work item's tile.
        paths: of both factors, to shared memory with the rows (columns) of a term one after the other.
    """

    def __init__(self, kernel: Kernel, nest: Nest, product: MatrixProduct, target: GpuTarget) -> None:
        self.kernel, self.nest, self.product, self.target = kernel, nest, product, target
        self.code = kernel.code
        self.m, self.n, self.b = (product.counts[name] for name in "mnb")
        self.side = int(target.group_size**0.5)
        (self.rows, self.columns), self.slices = self._tile()
        self.height, self.width = self._sides((self.rows, self.columns))
        self.threads = self.side * self.side
        self.paths = [
            TilePath(kernel, product, i, TileShape(length, DEPTH, self.threads, "float"), along_k=False)
            for i, length in enumerate((self.height, self.width))
        ]

    def _tile(self) -> tuple[tuple[int, int], Slices]:
        """The tile of a work item, and how groups share the terms."""
        fitting = [tile for tile in TILES if _tile_bytes(*self._sides(tile)) <= self.target.local_bytes]
        sizes = [self._sides(tile) for tile in fitting]
        large = LARGE * self.side * self.side
        chosen, shared = chosen_tile(sizes, large, self.product, DEPTH, self.target)
        return fitting[chosen], shared

    def _sides(self, tile: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of a group."""
        return self.side * tile[0], self.side * tile[1]

    def build(self) -> GpuStage:
        code = self.code
        for path in self.paths:
            path.declare()
        code.line(f"const int x = THREAD(0), y = THREAD(1), t = y * {self.side} + x;")
        code.line(f"const int n0 = GROUP(0) * {self.width}, m0 = GROUP(1) * {self.height};")
        self.slices.begin(code, self.product)
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
            code.line(f"k0 += {DEPTH};")
            with code.block("if (k0 < k_end)"):
                self._fetch()
            self._multiply()
            code.line("BARRIER;")
        self._store()
        groups = (-(-self.n // self.width), -(-self.m // self.height), self.b * self.slices.count)
        local = sum(path.nbytes for path in self.paths)
        stage = code.stage(groups, (self.side, self.side, 1), local_bytes=local)
        return self.slices.ended(stage, self.kernel, self.nest, self.product, self.target)

    def _fetch(self) -> None:
        for path in self.paths:
            path.fetch()

    def _multiply(self) -> None:
        code = self.code
        code.line("UNROLL")
        with code.block(f"for (int k = 0; k < {DEPTH}; ++k)"):
            for path, count, who in zip(self.paths, (self.rows, self.columns), "yx", strict=True):
                near = _neighbours(count)
                vector = f"float{near}"
                for i in range(count // near):
                    at = f"{path.name} + k * {path.pitch} + {who} * {near} + {i * near * self.side}"
                    code.line(f"const {vector} {path.name[0]}{i} = *(SHARED_POINTER(const {vector}))({at});")
            for number in range(self.rows * self.columns):
                i, j = divmod(number, self.columns)
                factors = _component("f", i, self.rows), _component("s", j, self.columns)
                code.line(f"sum[{number}] = fma({factors[0]}, {factors[1]}, sum[{number}]);")

    def _store(self) -> None:
        """Each number of the work item's tile, with what stands behind the product: columns that lie together
        at once."""
        code, near = self.code, _neighbours(self.columns)
        together = self.slices.together(self.kernel, self.nest, self.product, near)
        code.line("UNROLL")
        with code.block(f"for (int i = 0; i < {self.rows}; ++i)"):
            code.line("UNROLL")
            with code.block(f"for (int j = 0; j < {self.columns}; j += {near if together else 1})"):
                code.line(f"const int m = m0 + {self._place('i', 'y', self.rows)};")
                code.line(f"const int n = n0 + {self._place('j', 'x', self.columns)};")
                whole = self.m % self.height == 0 and self.n % self.width == 0
                with code.block("" if whole else f"if (m < {self.m} && n < {self.n})"):
                    values = [f"sum[i * {self.columns} + j + {number}]" for number in range(near)]
                    if together:
                        self.slices.store_columns(self.kernel, self.nest, self.product, values)
                    else:
                        value = f"sum[i * {self.columns} + j]"
                        self.slices.store(self.kernel, self.nest, self.product, value)

    def _place(self, number: str, who: str, count: int) -> str:
        """The row (column) of the group's tile that is a work item's ``number``-th."""
        near = _neighbours(count)
        return f"{number} / {near} * {near * self.side} + {who} * {near} + {number} % {near}"


def _neighbours(count: int) -> int:
    """How many of a work item's rows (columns) lie next to each other."""
    return 4 if count % 4 == 0 else 2


def _component(name: str, number: int, count: int) -> str:
    """A number of those that were read at once."""
    near = _neighbours(count)
    return f"{name}{number // near}.{'xyzw'[number % near]}"
