"""Attention among the nests of a fused group: two products with the softmax of the first one's rows between.

The scores of a row are a sum of products of queries and keys with what stands behind it (a scale, a mask, a
bias); a maximum, exponentials and their sum make weights of them, whose products with the values are the
result. Positions are told apart by the scores' own dimensions: those of the keys, which the softmax is along,
those of the rows, which neither keys nor values have, and those of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import tvm_ffi
from tvm.ir import TensorLoad
from tvm.tirx import Buffer, IntImm

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.expressions.nodes import name_of, operands_of, operation_of
from edgepack.compiler.kernels.expressions.operations import Kind
from edgepack.compiler.kernels.gpu.loop_nests import LoopNest, LoopNests, expanded, substituted
from edgepack.compiler.kernels.gpu.matrix_product import (
    MatrixProduct,
    arranged,
    product_operands,
    variables_of,
)

__all__ = ["Attention", "find_attention"]


@dataclass(frozen=True)
class Attention:
    """result = softmax(scores) @ values, scores = steps(scale * queries @ keys).

    Attributes:
        nests: what it computes, in the group's order; ``product`` (of queries and keys) and ``result`` (the
            product with the values) are among them.
        steps: the scores, of the product's results, and ``positions``, the variables of its dimensions: of
            one row or member of the batch, or one key, each; None along a dimension of size one.
        first: queries (rows ``m``, depth ``k``) and keys (``n``).
        second: the weights (rows ``m``, keys ``k``) and the values (columns ``n``); the same batch ``b``.
        scale: a number that the first product's sums are multiplied by before anything else.
        lowest: what the maximum of a row starts from, a number.
        zeroes_nan: whether weights that are NaN, those of a row whose scores are all -inf, are 0.
    """

    nests: tuple[LoopNest, ...]
    product: LoopNest
    result: LoopNest
    steps: Any
    positions: tuple[Any, ...]
    first: MatrixProduct
    second: MatrixProduct
    scale: float
    lowest: float
    zeroes_nan: bool


def find_attention(nests: LoopNests) -> Attention | None:
    """The first attention of a fused group whose scores and weights nothing else reads; None for none."""
    for nest in nests.nests:
        try:
            return _Finder(nests).ending_in(nest)
        except RuleError:
            continue
    return None


class _Finder:
    """Follows what a product reads back to the product that the scores come from."""

    def __init__(self, nests: LoopNests) -> None:
        self._nests = nests
        self._by_target = {nest.result.target: nest for nest in nests.nests}

    def ending_in(self, result: LoopNest) -> Attention:
        """The attention whose second product a nest is. RuleError for none."""
        if result.reduction is None:
            raise RuleError("no product")
        weights, values, between = self._weights(result.reduction)
        quotient = _quotient(weights)
        if quotient is None:
            raise RuleError("no weights of a softmax")
        exponential, total, zeroes_nan = quotient
        exponentials, sums = self._nest(exponential.source), self._nest(total.source)
        difference = self._difference(exponentials)
        maxima = self._nest(difference.b.source)
        score = self._score(difference.a, exponentials.result)
        product = self._nest(score.source)
        positions = _positions(score.indices, exponentials.result)
        if positions != _positions(exponentials.result.indices, exponentials.result):
            raise RuleError("exponentials at other positions")
        added, largest = self._reduced(sums, "add"), self._reduced(maxima, "max")
        if not _is_load(added) or added.source != exponential.source:
            raise RuleError("a sum of other numbers")
        places = [_positions(added.indices, sums.result)]
        places.append(_positions(self._score(largest, maxima.result).indices, maxima.result))
        _same_score(difference.a, (exponentials.result, positions), largest, (maxima.result, places[1]))
        axes = _axes(places[0], sums.result)
        if axes != _axes(places[1], maxima.result):
            raise RuleError("a maximum and a sum of other rows")
        _same_row(exponential, total, sums, places[0])
        _same_row(score, difference.b, maxima, places[1])
        used = (product, maxima, exponentials, sums, *between, result)
        self._only_here(used)
        lowest = getattr(maxima.result.init, "value", None)
        if lowest is None or not isfinite(float(lowest)):
            raise RuleError("a maximum that starts from no number")
        first, second, scale = self._products(product, result, (weights, values), exponential, axes)
        return Attention(
            tuple(nest for nest in self._nests.nests if nest in used),
            *(product, result, difference.a, tuple(positions), first, second, scale, float(lowest)),
            zeroes_nan,
        )

    def _weights(self, block: Block) -> tuple[Any, Any, tuple[LoopNest, ...]]:
        """The weights and the values that a product is of, and the nest that computes the weights, if any."""
        operands = self._operands(block)
        for weights, values in (operands, operands[::-1]):
            if _quotient(weights) is not None:
                return weights, values, ()
            nest = self._by_target.get(weights.source) if _is_load(weights) else None
            if nest is None or nest.reduction is not None or nest.result.target not in self._nests.temps:
                continue
            own = nest.result
            if len(own.iters) == len(weights.indices) and _is_in_order(own):
                value = expanded(own.value, self._nests.inlined)
                return substituted(value, dict(zip(own.iters, weights.indices, strict=True))), values, (nest,)
        raise RuleError("no weights of a softmax")

    def _operands(self, block: Block) -> tuple[Any, Any]:
        first, second = (expanded(x, self._nests.inlined) for x in product_operands(block))
        return first, second

    def _nest(self, buffer: Buffer) -> LoopNest:
        nest = self._by_target.get(buffer)
        if nest is None or buffer not in self._nests.temps or str(buffer.dtype) != "float32":
            raise RuleError("not computed in the group")
        return nest

    def _difference(self, nest: LoopNest) -> Any:
        """The score less the row's maximum whose exponential a nest is."""
        value = expanded(nest.result.value, self._nests.inlined)
        if nest.reduction is not None or name_of(value) != "exp":
            raise RuleError("no exponential")
        difference = value.args[0]
        if name_of(difference) != "sub" or not _is_load(difference.b):
            raise RuleError("no exponential of a difference")
        return difference

    def _score(self, x: Any, block: Block) -> Any:
        """The load of a product's result that a score is computed from, the same one wherever it is read."""
        products = [
            load
            for load in _loads(x)
            if load.source in self._by_target and self._by_target[load.source].reduction is not None
        ]
        if not products or any(load.source != products[0].source for load in products):
            raise RuleError("no scores of one product")
        places = [_positions(load.indices, block) for load in products]
        if any(place != places[0] for place in places):
            raise RuleError("two scores")
        return products[0]

    def _reduced(self, nest: LoopNest, name: str) -> Any:
        """What a sum or a maximum is of."""
        block = nest.reduction
        if block is None or nest.result is not block:
            raise RuleError("no reduction alone")
        value: Any = block.value
        if name_of(value) != name or (name == "add" and float(getattr(block.init, "value", 1)) != 0):
            raise RuleError("another reduction")
        own = [_is_load(x) and x.source == block.target for x in (value.a, value.b)]
        if sum(own) != 1:
            raise RuleError("another reduction")
        return expanded(value.b if own[0] else value.a, self._nests.inlined)

    def _only_here(self, used: Sequence[LoopNest]) -> None:
        """RuleError where another nest reads what lies between these."""
        targets = {nest.result.target for nest in used[:-1]}
        for nest in self._nests.nests:
            if nest in used:
                continue
            for block in (nest.result, nest.reduction):
                if block is None:
                    continue
                if any(x.source in targets for x in _loads(expanded(block.value, self._nests.inlined))):
                    raise RuleError("scores or weights that another operator reads")

    def _products(
        self, scores: LoopNest, result: LoopNest, operands: tuple[Any, Any], weight: Any, axes: set[int]
    ) -> tuple[MatrixProduct, MatrixProduct, float]:
        """Both products with the same rows and batch, and the scale.

        Args:
            operands: of the second product.
            weight: the load of an exponential in it, and ``axes`` its dimensions along the keys.
        """
        block, last = scores.reduction, result.reduction
        if block is None or last is None:
            raise RuleError("no product")
        inner = dict(zip(scores.spatial[0], LoopNest(block).spatial[0], strict=True))
        of_first = [None if v is None else inner[v] for v in _positions(scores.result.indices, scores.result)]
        of_second = _positions(weight.indices, last)
        keys, keys_of_second = ([of[axis] for axis in sorted(axes)] for of in (of_first, of_second))
        if set(keys_of_second) != set(_large(last, last.reductions)):
            raise RuleError("a product along other keys")
        queries, others = self._operands(block)
        if variables_of(queries) & set(keys):
            queries, others = others, queries
        if variables_of(queries) & set(keys):
            raise RuleError("queries that depend on the key")
        (queries, one), (others, two) = _without_number(queries), _without_number(others)
        elsewhere = variables_of(others) | variables_of(operands[1])
        rows: list[tuple[Any, Any]] = []
        batch: list[tuple[Any, Any]] = []
        for axis, pair in enumerate(zip(of_first, of_second, strict=True)):
            if pair[0] is not None and axis not in axes:
                (rows if elsewhere.isdisjoint(pair) else batch).append(pair)
        columns = _large(last, [v for v in LoopNest(last).spatial[0] if v not in of_second])
        terms = _large(block, block.reductions)
        orders = [
            _order(block, [r for r, _ in rows], keys, terms, [b for b, _ in batch]),
            _order(last, [r for _, r in rows], columns, keys_of_second, [b for _, b in batch]),
        ]
        first = arranged(block, (queries, others), orders[0])
        return first, arranged(last, operands, orders[1]), one * two


def _order(block: Block, *parts: Sequence[Any]) -> dict[str, list[tuple[Any, int]]]:
    """The variables of rows, columns, terms and batch, with their extents."""
    sizes = dict(zip(block.iters, block.extents, strict=True))
    return {name: [(v, sizes[v]) for v in part] for name, part in zip("mnkb", parts, strict=True)}


def _large(block: Block, variables: Sequence[Any]) -> list[Any]:
    """The variables of a block that take more than one value."""
    sizes = dict(zip(block.iters, block.extents, strict=True))
    return [v for v in variables if sizes[v] > 1]


def _positions(indices: Sequence[Any], block: Block) -> list[Any]:
    """The block's variable along each dimension; None along one of size one. RuleError for another position,
    and for one that has a variable twice."""
    sizes = dict(zip(block.iters, block.extents, strict=True))
    found: list[Any] = []
    for at in indices:
        if name_of(at) == "integer" and int(at.value) == 0:
            found.append(None)
        elif at in sizes:
            found.append(at if sizes[at] > 1 else None)
        else:
            raise RuleError("a position that is no variable")
    known = [v for v in found if v is not None]
    if len(known) != len(set(known)):
        raise RuleError("a diagonal")
    return found


def _same_row(element: Any, number: Any, nest: LoopNest, reads: Sequence[Any]) -> None:
    """RuleError unless a row's number is read at the row of the element.

    Args:
        element: the load of an element, and ``number`` that of a number that ``nest`` computes of its row.
        reads: by which variables the nest reads the elements.
    """
    axes = {v: axis for axis, v in enumerate(reads) if v is not None}
    for at, written in zip(number.indices, nest.result.indices, strict=True):
        axis = axes.get(written) if name_of(written) == "variable" else None
        if axis is not None and not at.same_as(element.indices[axis]):
            raise RuleError("it reads another row")


def _same_score(
    one: Any, here: tuple[Block, Sequence[Any]], other: Any, there: tuple[Block, Sequence[Any]]
) -> None:
    """RuleError unless two expressions are the same score.

    Args:
        here, there: the block that each is in, and its variable of each dimension.
    """
    mapped = dict(zip(there[1], here[1], strict=True))
    mapped.pop(None, None)
    if None in mapped.values():
        raise RuleError("scores of another shape")
    one = substituted(one, _of_one(here[0]))
    other = substituted(other, {**_of_one(there[0]), **mapped})
    if not tvm_ffi.structural_equal(one, other, map_free_vars=False):
        raise RuleError("a maximum of other numbers")


def _of_one(block: Block) -> dict[Any, Any]:
    """0 for each variable that takes no other value."""
    sizes = zip(block.iters, block.extents, strict=True)
    return {v: IntImm(str(v.ty), 0) for v, size in sizes if size == 1}


def _axes(positions: Sequence[Any], block: Block) -> set[int]:
    """The dimensions that a reduction is along."""
    found = {axis for axis, v in enumerate(positions) if v is not None and v in block.reductions}
    if len(found) != len(_large(block, block.reductions)):
        raise RuleError("a reduction along no dimension")
    return found


def _is_in_order(block: Block) -> bool:
    """Whether a block writes at its own variables."""
    return len(block.indices) == len(block.iters) and all(
        at.same_as(v) or size == 1
        for at, v, size in zip(block.indices, block.iters, block.extents, strict=True)
    )


def _quotient(x: Any) -> tuple[Any, Any, bool] | None:
    """The loads of an exponential and of the sum that it is divided by, and whether NaN becomes 0; None for
    another expression."""
    operation = operation_of(x)
    if operation.name == "div" and _is_load(x.a) and _is_load(x.b):
        return x.a, x.b, False
    if operation.kind is not Kind.SELECT:
        return None
    condition, zero, kept = operands_of(x)
    inner = _quotient(kept)
    tested = _tested_for_nan(condition)
    if inner is None or tested is None or float(getattr(zero, "value", 1)) != 0:
        return None
    same = tvm_ffi.structural_equal(tested, kept, map_free_vars=False)
    return (inner[0], inner[1], True) if same else None


def _tested_for_nan(condition: Any) -> Any:
    """What a condition tests for NaN; None for another condition."""
    name = name_of(condition)
    if name == "isnan":
        return condition.args[0]
    if name == "lt" and float(getattr(condition.a, "value", 1)) == 0 and name_of(condition.b) == "cast":
        return _tested_for_nan(condition.b.value)
    if name == "ne" and tvm_ffi.structural_equal(condition.a, condition.b, map_free_vars=False):
        return condition.a
    return None


def _without_number(x: Any) -> tuple[Any, float]:
    """An expression without the numbers that it is multiplied by, and their product."""
    if name_of(x) == "mul":
        for number, other in ((x.a, x.b), (x.b, x.a)):
            if name_of(number) == "float":
                inner, scale = _without_number(other)
                return inner, scale * float(number.value)
    return x, 1.0


def _is_load(x: Any) -> bool:
    return name_of(x) == "load"


def _loads(x: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(x, (TensorLoad, found.append))
    return found
