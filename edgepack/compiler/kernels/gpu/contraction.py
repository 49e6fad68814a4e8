"""Rule ``contraction``: products summed over, by tiles in the memory that a group's work items share.

Any sum of products is a matrix product: of the variables of its positions, those that only the first factor
has are the rows (m), those that only the second has the columns (n), those that both have the batch (b), and
what is summed over is the depth (k). A convolution's rows are its pixels, its depth the window's positions
and channels ("implicit GEMM"); padding is read as 0, and nothing is copied. A work item computes a small tile
of the result in registers; a group reads a tile of both factors, ``DEPTH`` deep, for all of its work items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import TensorLoad
from tvm.tirx import Buffer, IntImm, Var

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.gpu.contract import GpuStage
from edgepack.compiler.kernels.gpu.expressions import unravelled
from edgepack.compiler.kernels.gpu.kernel import Kernel
from edgepack.compiler.kernels.gpu.nests import Nest
from edgepack.compiler.kernels.gpu.strides import contiguous_in
from edgepack.plan.gpu_target import GpuTarget

__all__ = ["contraction"]

#: How deep the tiles are.
DEPTH = 16

#: Tiles of a work item (rows, columns), largest first; the work items of a group are a square.
TILES = ((8, 4), (4, 4), (2, 4), (2, 2))

#: Rows, columns and depth at least; smaller products are summed by other rules.
LEAST = 8

#: Selections in a factor at most that TVM's simplifier is given: it takes time exponential in them.
SELECTIONS = 3


@dataclass(frozen=True)
class _Product:
    """A sum of products as a matrix product.

    Attributes:
        variables: by "m", "n", "k" and "b": one for all rows, columns, terms, members of the batch.
        counts: how many there are of each.
        first, second: the factors, of these variables.
        first_along_k, second_along_k: whether memory is contiguous along the depth.
        order: of which of the block's variables each is made, with their extents.
    """

    variables: dict[str, Any]
    counts: dict[str, int]
    first: Any
    second: Any
    first_along_k: bool
    second_along_k: bool
    order: dict[str, list[tuple[Any, int]]]


def contraction(kernel: Kernel, nest: Nest, target: GpuTarget) -> GpuStage:
    """The kernel of a nest whose reduction is a sum of products. RuleError for another one."""
    if nest.reduction is None:
        raise RuleError("no reduction")
    return _Builder(kernel, nest, _product(nest.reduction, kernel.evaluator.inlined), target).build()


def _product(block: Block, inlined: Mapping[Buffer, Block]) -> _Product:
    """A block as a matrix product. RuleError if it is none, or a small one."""
    factors = [_inlined(x, inlined) for x in _factors(block)]
    order = _order(block, *(_variables(x) for x in factors))
    counts = {name: prod(n for _, n in pairs) for name, pairs in order.items()}
    if min(counts["m"], counts["n"], counts["k"]) < LEAST or max(counts.values()) >= 2**31:
        raise RuleError("no matrix product")
    variables = {name: Var(name, tvm.ir.PrimType("int64")) for name in order}
    sizes = dict(zip(block.iters, block.extents, strict=True))
    mapped: dict[Any, Any] = {v: IntImm("int64", 0) for v in block.iters if sizes[v] == 1}
    analyzer = sym.Analyzer()
    for name, pairs in order.items():
        mapped.update(_unravelled(variables[name], pairs))
        analyzer.bind(variables[name], tvm.ir.Range.from_min_extent(0, counts[name]))
    first, second = (_simplified(_substituted(x, mapped), analyzer) for x in factors)
    along = [bool(contiguous_in(x, block) & set(block.reductions)) for x in factors]
    return _Product(variables, counts, first, second, along[0], along[1], order)


def _order(block: Block, first: set[Any], second: set[Any]) -> dict[str, list[tuple[Any, int]]]:
    """The block's variables by what they are of the product, with their extents; those of one are left out.

    Args:
        first, second: the variables of each factor.
    """
    order: dict[str, list[tuple[Any, int]]] = {"m": [], "n": [], "k": [], "b": []}
    for variable, extent in zip(block.iters, block.extents, strict=True):
        of = (variable in first, variable in second)
        kind = "k" if variable in block.reductions else {(True, False): "m", (False, True): "n"}.get(of, "b")
        if extent > 1:
            order[kind].append((variable, extent))
    return order


def _factors(block: Block) -> tuple[Any, Any]:
    """What is multiplied. RuleError if the block is no sum of products of float32 numbers."""
    value: Any = block.value
    if type(value).__name__ != "Add" or str(block.target.dtype) != "float32":
        raise RuleError("no sum of products of float32 numbers")
    is_target = [type(x).__name__ == "TensorLoad" and x.source == block.target for x in (value.a, value.b)]
    if sum(is_target) != 1 or float(getattr(block.init, "value", 1)) != 0.0:
        raise RuleError("no sum of products of float32 numbers")
    term = value.b if is_target[0] else value.a
    if type(term).__name__ != "Mul":
        raise RuleError("no sum of products of float32 numbers")
    return term.a, term.b


def _inlined(x: Any, inlined: Mapping[Buffer, Block]) -> Any:
    """An expression with the blocks that are computed where they are read."""

    def replaced(load: Any) -> Any:
        block = inlined.get(load.source)
        if block is None:
            return load
        inner = _substituted(block.value, dict(zip(block.iters, load.indices, strict=True)))
        return _inlined(inner, inlined)

    return tvm_ffi.structural_map(x, (TensorLoad, replaced))


def _substituted(x: Any, mapped: Mapping[Any, Any]) -> Any:
    """An expression with other expressions for some variables."""
    return tvm_ffi.structural_map(x, (Var, lambda v: mapped.get(v, v)))


def _variables(x: Any) -> set[Any]:
    found: set[Any] = set()
    tvm_ffi.structural_walk(x, (Var, found.add))
    return found


def _unravelled(flat: Any, pairs: Sequence[tuple[Any, int]]) -> dict[Any, Any]:
    """The block's variables, of the one that stands for them all."""
    found = {}
    behind = 1
    for number, (variable, size) in enumerate(reversed(pairs)):
        x = flat if behind == 1 else tirx.floordiv(flat, IntImm("int64", behind))
        outermost = number == len(pairs) - 1
        found[variable] = x if outermost else tirx.floormod(x, IntImm("int64", size))
        behind *= size
    return found


def _simplified(x: Any, analyzer: Any) -> Any:
    selections: list[Any] = []
    kinds = [(tirx.Select, selections.append), (tvm.ir.Call, selections.append)]
    tvm_ffi.structural_walk(x, kinds)
    return analyzer.simplify(x) if len(selections) <= SELECTIONS else x


def _tile_bytes(height: int, width: int) -> int:
    """Of both factors' tiles in shared memory; rows are one number apart from where banks would repeat."""
    return 4 * DEPTH * (height + 1 + width + 1)


class _Builder:
    """Writes the kernel.

    Attributes:
        side: work items along rows, and along columns, of a group.
        rows, columns: of a work item's tile.
    """

    def __init__(self, kernel: Kernel, nest: Nest, product: _Product, target: GpuTarget) -> None:
        self.kernel, self.nest, self.product, self.target = kernel, nest, product, target
        self.code = kernel.code
        self.m, self.n, self.k, self.b = (product.counts[name] for name in "mnkb")
        self.side = int(target.group_size**0.5)
        self.rows, self.columns = self._tile()
        self.height, self.width = self.side * self.rows, self.side * self.columns
        self.threads = self.side * self.side

    def _tile(self) -> tuple[int, int]:
        """The largest tile that leaves enough groups, and does not stick out by more than it has to; else the
        smallest. RuleError where the device has no room for that."""
        for rows, columns in TILES:
            height, width = self.side * rows, self.side * columns
            groups = -(-self.m // height) * -(-self.n // width) * self.b
            wanted = groups >= self.target.least_groups and self.m > height // 2 and self.n > width // 2
            fits = _tile_bytes(height, width) <= self.target.local_bytes
            if fits and (wanted or (rows, columns) == TILES[-1]):
                return rows, columns
        raise RuleError("its tiles need more memory than a group has")

    def build(self) -> GpuStage:
        code = self.code
        code.line(f"SHARED float first[{DEPTH} * {self.height + 1}];")
        code.line(f"SHARED float second[{DEPTH} * {self.width + 1}];")
        code.line(f"const int x = THREAD(0), y = THREAD(1), t = y * {self.side} + x;")
        code.line(f"const int n0 = GROUP(0) * {self.width}, m0 = GROUP(1) * {self.height}, batch = GROUP(2);")
        code.line(f"float sum[{self.rows} * {self.columns}];")
        with code.block(f"for (int i = 0; i < {self.rows * self.columns}; ++i)"):
            code.line("sum[i] = 0.0f;")
        with code.block(f"for (int k0 = 0; k0 < {self.k}; k0 += {DEPTH})"):
            p = self.product
            self._load("first", self.height, p.first, "m", along_k=p.first_along_k)
            self._load("second", self.width, p.second, "n", along_k=p.second_along_k)
            code.line("BARRIER;")
            self._multiply()
            code.line("BARRIER;")
        self._store()
        groups = (-(-self.n // self.width), -(-self.m // self.height), self.b)
        local = _tile_bytes(self.height, self.width)
        return code.stage(groups, (self.side, self.side, 1), local_bytes=local)

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
                    self._store_one(f"sum[i * {self.columns} + j]")

    def _store_one(self, value: str) -> None:
        block, evaluator = self.nest.reduction, self.kernel.evaluator
        assert block is not None
        position = {}
        for name, text in (("m", "m"), ("n", "n"), ("b", "batch")):
            pairs = self.product.order[name]
            texts = unravelled(self.code, text, tuple(size for _, size in pairs))
            position.update({v: at for (v, _), at in zip(pairs, texts, strict=True)})
        inner, outer = Nest(block).spatial[0], self.nest.spatial[0]
        env = {o: position.get(v, "0") for v, o in zip(inner, outer, strict=True)}
        evaluator.given[block.target] = value
        self.kernel.store(self.nest.result, env, value if self.nest.result is block else None)
