"""Rule ``contraction``: products summed over, by tiles in the memory that a group's work items share.

A work item computes a small tile of the matrix product (``matrix_product.py``) in registers; a group reads a
tile of both factors, ``DEPTH`` deep, for all of its work items. Padding is read as 0, and nothing is copied.
"""

from __future__ import annotations

from typing import Any

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.gpu.contract import GpuStage
from edgepack.compiler.kernels.gpu.kernel import Kernel
from edgepack.compiler.kernels.gpu.matrix_product import MatrixProduct, matrix_product
from edgepack.compiler.kernels.gpu.nests import Nest
from edgepack.compiler.kernels.gpu.slices import Slices
from edgepack.compiler.kernels.gpu.tiles import chosen_tile
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
    """Of both factors' tiles in shared memory; rows are one number apart from where banks would repeat."""
    return 4 * DEPTH * (height + 1 + width + 1)


class _Builder:
    """Writes the kernel.

    Attributes:
        side: work items along rows, and along columns, of a group.
        rows, columns: of a work item's tile.
    """

    def __init__(self, kernel: Kernel, nest: Nest, product: MatrixProduct, target: GpuTarget) -> None:
        self.kernel, self.nest, self.product, self.target = kernel, nest, product, target
        self.code = kernel.code
        self.m, self.n, self.k, self.b = (product.counts[name] for name in "mnkb")
        self.side = int(target.group_size**0.5)
        (self.rows, self.columns), self.slices = self._tile()
        self.height, self.width = self._sides((self.rows, self.columns))
        self.threads = self.side * self.side

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
        code.line(f"SHARED float first[{DEPTH} * {self.height + 1}];")
        code.line(f"SHARED float second[{DEPTH} * {self.width + 1}];")
        code.line(f"const int x = THREAD(0), y = THREAD(1), t = y * {self.side} + x;")
        code.line(f"const int n0 = GROUP(0) * {self.width}, m0 = GROUP(1) * {self.height};")
        self.slices.begin(code, self.product)
        code.line(f"float sum[{self.rows} * {self.columns}];")
        with code.block(f"for (int i = 0; i < {self.rows * self.columns}; ++i)"):
            code.line("sum[i] = 0.0f;")
        with code.block(f"for (int k0 = k_first; k0 < k_end; k0 += {DEPTH})"):
            p = self.product
            self._load("first", self.height, p.first, "m", along_k=p.first_along_k)
            self._load("second", self.width, p.second, "n", along_k=p.second_along_k)
            code.line("BARRIER;")
            self._multiply()
            code.line("BARRIER;")
        self._store()
        groups = (-(-self.n // self.width), -(-self.m // self.height), self.b * self.slices.count)
        local = _tile_bytes(self.height, self.width)
        stage = code.stage(groups, (self.side, self.side, 1), local_bytes=local)
        return self.slices.ended(stage, self.kernel, self.nest, self.product, self.target)

    def _load(self, name: str, length: int, factor: Any, side: str, *, along_k: bool) -> None:
        """A tile of a factor: neighbouring work items read neighbouring elements.

        What is behind the last row or column is that one again, and not stored; behind the depth it is 0.
        """
        code, evaluator, variables = self.code, self.kernel.evaluator, self.product.variables
        count = self.product.counts[side]
        with code.block(f"for (int i = 0; i < {length * DEPTH // self.threads}; ++i)"), evaluator.fresh():
            code.line(f"const int e = i * {self.threads} + t;")
            row, depth = (f"e / {DEPTH}", f"e % {DEPTH}") if along_k else (f"e % {length}", f"e / {length}")
            code.line(f"const int row = {row}, depth = {depth};")
            at, k = f"{side}0 + row", "k0 + depth"
            code.line(f"const int at = {at if count % length == 0 else f'min({at}, {count - 1})'};")
            whole = self.k % DEPTH == 0
            code.line(f"const int k = {k if whole else f'min({k}, {self.k - 1})'};")
            env = {variables[side]: "at", variables["k"]: "k", variables["b"]: "batch"}
            text = evaluator.value(factor, env)
            text = text if whole else f"{k} < {self.k} ? {text} : 0.0f"
            code.line(f"{name}[depth * {length + 1} + row] = {text};")

    def _multiply(self) -> None:
        code = self.code
        code.line("UNROLL")
        with code.block(f"for (int k = 0; k < {DEPTH}; ++k)"):
            for name, length, count, who in (
                ("first", self.height, self.rows, "y"),
                ("second", self.width, self.columns, "x"),
            ):
                for i in range(count):
                    at = f"k * {length + 1} + {who} + {i * self.side}"
                    code.line(f"const float {name[0]}{i} = {name}[{at}];")
            for number in range(self.rows * self.columns):
                i, j = divmod(number, self.columns)
                code.line(f"sum[{number}] = fma(f{i}, s{j}, sum[{number}]);")

    def _store(self) -> None:
        """Each number of the work item's tile, with what stands behind the product."""
        code = self.code
        code.line("UNROLL")
        with code.block(f"for (int i = 0; i < {self.rows}; ++i)"):
            code.line("UNROLL")
            with code.block(f"for (int j = 0; j < {self.columns}; ++j)"):
                code.line(f"const int m = m0 + y + i * {self.side}, n = n0 + x + j * {self.side};")
                whole = self.m % self.height == 0 and self.n % self.width == 0
                with code.block("" if whole else f"if (m < {self.m} && n < {self.n})"):
                    value = f"sum[i * {self.columns} + j]"
                    self.slices.store(self.kernel, self.nest, self.product, value)
