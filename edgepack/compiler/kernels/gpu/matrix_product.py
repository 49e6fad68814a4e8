"""A reduction as a matrix product: which of its variables are rows, columns and terms, and of what factors.

Any sum of products is one: of the variables of its positions, those that only the first factor has are the
rows (m), those that only the second has the columns (n), those that both have the batch (b), and what is
summed over is the depth (k). A convolution's rows are its pixels, its depth the window's positions and
channels ("implicit GEMM").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.tirx import Buffer, IntImm, Var

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.gpu.nests import expanded, substituted
from edgepack.compiler.kernels.gpu.strides import contiguous_in

__all__ = [
    "SELECTIONS",
    "MatrixProduct",
    "arranged",
    "factors_of",
    "matrix_product",
    "selections_in",
    "variables_of",
]

#: Rows, columns and depth at least; smaller products are summed by other rules.
LEAST = 8

#: Selections in a factor at most that TVM's simplifier is given: it takes time exponential in them.
SELECTIONS = 3


@dataclass(frozen=True)
class MatrixProduct:
    """A sum of products as a matrix product.

    Attributes:
        variables: by "m", "n", "k" and "b": one for all rows, columns, terms, members of the batch.
        counts: how many there are of each.
        first, second: the factors, of these variables.
        factors: the same, of the block's variables.
        first_along_k, second_along_k: whether memory is contiguous along the depth.
        order: of which of the block's variables each is made, with their extents.
    """

    variables: dict[str, Any]
    counts: dict[str, int]
    first: Any
    second: Any
    factors: tuple[Any, Any]
    first_along_k: bool
    second_along_k: bool
    order: dict[str, list[tuple[Any, int]]]


def matrix_product(block: Block, inlined: Mapping[Buffer, Block]) -> MatrixProduct:
    """A block as a matrix product. RuleError if it is none, or a small one."""
    first, second = (expanded(x, inlined) for x in factors_of(block))
    factors = first, second
    return arranged(block, factors, _order(block, *(variables_of(x) for x in factors)))


def arranged(
    block: Block, factors: tuple[Any, Any], order: dict[str, list[tuple[Any, int]]]
) -> MatrixProduct:
    """A block as a matrix product whose rows, columns, terms and batch are known.

    Args:
        factors: of the block's variables, that with the rows first.
        order: which of the block's variables, larger than one, each is made of.

    Raises:
        RuleError: it is a small one.
    """
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
    first, second = (_simplified(substituted(x, mapped), analyzer) for x in factors)
    along = [bool(contiguous_in(x, block) & set(block.reductions)) for x in factors]
    return MatrixProduct(variables, counts, first, second, factors, along[0], along[1], order)


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


def factors_of(block: Block) -> tuple[Any, Any]:
    """What is multiplied in a block. RuleError if the block is no sum of products of float32 numbers."""
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


def variables_of(x: Any) -> set[Any]:
    """The variables of an expression."""
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


def selections_in(x: Any) -> int:
    """How many selections and calls an expression has."""
    selections: list[Any] = []
    kinds = [(tirx.Select, selections.append), (tvm.ir.Call, selections.append)]
    tvm_ffi.structural_walk(x, kinds)
    return len(selections)


def _simplified(x: Any, analyzer: Any) -> Any:
    return analyzer.simplify(x) if selections_in(x) <= SELECTIONS else x
