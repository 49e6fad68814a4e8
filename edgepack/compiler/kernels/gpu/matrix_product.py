"""A reduction as a matrix product: which of its variables are rows, columns and terms, and of what operands.

Any sum of products is one: of the variables of its positions, those that only the first operand has are the
rows (m), those that only the second has the columns (n), those that both have the batch (b), and what is
summed over is the depth (k). A convolution's rows are its pixels, its depth the window's positions and
channels ("implicit GEMM").

Of a convolution whose channels are in groups both operands have the output channel f, but the first only by
its group f // n. Such a variable is two: the group is of the batch, and f % n the columns. So is a query's
head of attention where several share a key's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.tirx import Buffer, IntImm, Var

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.expressions.nodes import name_of
from edgepack.compiler.kernels.gpu.loop_nests import expanded, substituted
from edgepack.compiler.kernels.gpu.strides import contiguous_in

__all__ = [
    "SELECTIONS",
    "MatrixProduct",
    "Split",
    "arranged",
    "matrix_product",
    "product_operands",
    "selections_in",
    "variables_of",
]

#: Rows, columns and depth at least; smaller products are summed by other rules.
LEAST = 8

#: Selections in a operand at most that TVM's simplifier is given: it takes time exponential in them.
SELECTIONS = 3


@dataclass(frozen=True)
class Split:
    """A variable as two, of which it is ``group * size + member``.

    Attributes:
        group, member: these.
        groups, size: their extents.
    """

    group: Any
    member: Any
    groups: int
    size: int

    @property
    def pairs(self) -> list[tuple[Any, int]]:
        """Both with their extents."""
        return [(self.group, self.groups), (self.member, self.size)]

    @property
    def whole(self) -> Any:
        """The variable, of both."""
        return tirx.Add(tirx.Mul(self.group, IntImm("int64", self.size)), self.member)


@dataclass(frozen=True)
class MatrixProduct:
    """A sum of products as a matrix product.

    Attributes:
        variables: by "m", "n", "k" and "b": one for all rows, columns, terms, members of the batch.
        counts: how many there are of each.
        first, second: the operands, of these variables.
        operands: the same, of the block's variables.
        first_along_k, second_along_k: whether memory is contiguous along the depth.
        order: of which of the block's variables, or of the parts of ``splits``, each is made, with their
            extents.
        splits: the block's variables that are two, and what these are.
    """

    variables: dict[str, Any]
    counts: dict[str, int]
    first: Any
    second: Any
    operands: tuple[Any, Any]
    first_along_k: bool
    second_along_k: bool
    order: dict[str, list[tuple[Any, int]]]
    splits: Mapping[Any, Split]


def matrix_product(block: Block, inlined: Mapping[Buffer, Block]) -> MatrixProduct:
    """A block as a matrix product. RuleError if it is none, or a small one."""
    one, other = product_operands(block)
    operands = expanded(one, inlined), expanded(other, inlined)
    splits: dict[Any, Split] = {}
    for variable, extent in zip(block.iters, block.extents, strict=True):
        if variable not in block.reductions and all(variable in variables_of(x) for x in operands):
            split, operands = _taken_apart(variable, extent, operands)
            splits.update({variable: split} if split is not None else {})
    order = _order(block, splits, *(variables_of(x) for x in operands))
    return arranged(block, operands, order, splits)


def arranged(
    block: Block,
    operands: tuple[Any, Any],
    order: dict[str, list[tuple[Any, int]]],
    splits: Mapping[Any, Split] = MappingProxyType({}),
) -> MatrixProduct:
    """A block as a matrix product whose rows, columns, terms and batch are known.

    Args:
        operands: of the block's variables, that with the rows first.
        order: which of the block's variables, larger than one, each is made of.
        splits: variables of which ``operands`` and ``order`` have the parts.

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
    first, second = (_simplified(substituted(x, mapped), analyzer) for x in operands)
    along = [bool(contiguous_in(x, block) & set(block.reductions)) for x in operands]
    return MatrixProduct(variables, counts, first, second, operands, along[0], along[1], order, splits)


def _taken_apart(
    variable: Any, extent: int, operands: tuple[Any, Any]
) -> tuple[Split | None, tuple[Any, Any]]:
    """A variable of both operands as two, one of which only one operand has, and the operands of these; None,
    and the operands as they are, where it is not two so."""
    if max(selections_in(x) for x in operands) > SELECTIONS:
        return None, operands
    for size in sorted(_divisors(variable, operands)):
        if not 1 < size < extent or extent % size:
            continue
        group, member = (Var(f"{variable.name}_{part}", variable.ty) for part in ("group", "member"))
        split, analyzer = Split(group, member, extent // size, size), sym.Analyzer()
        for part, count in split.pairs:
            analyzer.bind(part, tvm.ir.Range.from_min_extent(0, count))
        first, second = (analyzer.simplify(substituted(x, {variable: split.whole})) for x in operands)
        if sum(member in variables_of(x) for x in (first, second)) == 1:
            return split, (first, second)
    return None, operands


def _divisors(variable: Any, operands: Sequence[Any]) -> set[int]:
    """The constants by which a variable is divided."""
    quotients: list[Any] = []
    for x in operands:
        tvm_ffi.structural_walk(x, (tirx.FloorDiv, quotients.append))
    constant = [x for x in quotients if x.a.same_as(variable) and name_of(x.b) == "integer"]
    return {int(x.b.value) for x in constant}


def _order(
    block: Block, splits: Mapping[Any, Split], first: set[Any], second: set[Any]
) -> dict[str, list[tuple[Any, int]]]:
    """The block's variables by what they are of the product, with their extents; those of one are left out.

    Args:
        first, second: the variables of each operand.
    """
    order: dict[str, list[tuple[Any, int]]] = {"m": [], "n": [], "k": [], "b": []}
    whole = zip(block.iters, block.extents, strict=True)
    for variable, extent in (
        part for v, n in whole for part in (splits[v].pairs if v in splits else [(v, n)])
    ):
        of = (variable in first, variable in second)
        kind = "k" if variable in block.reductions else {(True, False): "m", (False, True): "n"}.get(of, "b")
        if extent > 1:
            order[kind].append((variable, extent))
    return order


def product_operands(block: Block) -> tuple[Any, Any]:
    """What is multiplied in a block. RuleError if the block is no sum of products of float32 numbers."""
    value: Any = block.value
    if name_of(value) != "add" or str(block.target.dtype) != "float32":
        raise RuleError("no sum of products of float32 numbers")
    is_target = [name_of(x) == "load" and x.source == block.target for x in (value.a, value.b)]
    if sum(is_target) != 1 or float(getattr(block.init, "value", 1)) != 0.0:
        raise RuleError("no sum of products of float32 numbers")
    term = value.b if is_target[0] else value.a
    if name_of(term) != "mul":
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
