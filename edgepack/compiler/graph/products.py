"""Sums of products as matrix products, which have kernels of their own: einsum, and products with vectors.

An einsum of two tensors has four kinds of axes: of both and of the result (batch), of both but not of the
result (they are summed), of the first only (rows) and of the second only (columns). With the axes in that
order it is one matrix product. An einsum of more tensors is done two at a time, from the left.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tvm import relax
from tvm.ir import IRModule

from edgepack.compiler.graph.rewrite import Rewriter, op_name, shape_of

__all__ = ["matrix_products"]


@dataclass(frozen=True)
class _Term:
    """A tensor with a label for each axis."""

    tensor: relax.Expr
    labels: str


class _MatrixProducts(Rewriter):
    def visit_call(self, call: relax.Call, args: Sequence[relax.Expr]) -> relax.Expr:
        if op_name(call) == "relax.einsum" and isinstance(args[0], relax.Tuple):
            operands = list(args[0].fields)
            parsed = _parse(str(call.attrs.subscripts), [shape_of(operand) for operand in operands])
            if parsed is not None:
                terms = [_Term(operand, t) for operand, t in zip(operands, parsed[:-1], strict=True)]
                return self._einsum(terms, parsed[-1])
        if op_name(call) == "relax.matmul" and 1 in {len(shape_of(a)) for a in args}:
            return self._with_vectors(call, args)
        return super().visit_call(call, args)

    def _with_vectors(self, call: relax.Call, args: Sequence[relax.Expr]) -> relax.Expr:
        """A product with a vector as one with a matrix of one row or column."""
        left, right = args
        if len(shape_of(left)) == 1:
            left = self.emit(relax.op.expand_dims(left, 0))
        if len(shape_of(right)) == 1:
            right = self.emit(relax.op.expand_dims(right, 1))
        product = self.emit(relax.Call(call.op, [left, right], call.attrs, call.ty_args))
        return self.emit(relax.op.reshape(product, shape_of(call)))

    def _einsum(self, terms: list[_Term], result: str) -> relax.Expr:
        while len(terms) > 1:
            later = {*result, *(label for term in terms[2:] for label in term.labels)}
            terms = [self._pair(terms[0], terms[1], later), *terms[2:]]
        return self._ordered(self._summed(terms[0], set(result)), result).tensor

    def _pair(self, a: _Term, b: _Term, later: set[str]) -> _Term:
        """The sum of the products of two, over what only they have."""
        a, b = self._summed(a, {*later, *b.labels}), self._summed(b, {*later, *a.labels})
        both = [label for label in a.labels if label in b.labels]
        batch = "".join(label for label in both if label in later)
        summed = "".join(label for label in both if label not in later)
        rows = "".join(label for label in a.labels if label not in both)
        columns = "".join(label for label in b.labels if label not in both)
        sizes = {**_sizes(a), **_sizes(b)}
        left, right = self._ordered(a, batch + rows + summed), self._ordered(b, batch + summed + columns)
        if not summed:
            ones = [1] * len(columns)
            wide = self._reshaped(left.tensor, [sizes[label] for label in batch + rows] + ones)
            middle = [1] * len(rows)
            tall = self._reshaped(
                right.tensor,
                [sizes[label] for label in batch] + middle + [sizes[label] for label in columns],
            )
            return _Term(self.emit(relax.op.multiply(wide, tall)), batch + rows + columns)
        outer = [sizes[label] for label in batch]
        extents = [prod(sizes[label] for label in labels) for labels in (rows, summed, columns)]
        matrix = self._reshaped(left.tensor, [*outer, extents[0], extents[1]])
        other = self._reshaped(right.tensor, [*outer, extents[1], extents[2]])
        product = self.emit(relax.op.matmul(matrix, other))
        labels = batch + rows + columns
        return _Term(self._reshaped(product, [sizes[label] for label in labels]), labels)

    def _summed(self, term: _Term, wanted: set[str]) -> _Term:
        """Without the axes that nothing else has."""
        axes = [i for i, label in enumerate(term.labels) if label not in wanted]
        if not axes:
            return term
        labels = "".join(label for label in term.labels if label in wanted)
        return _Term(self.emit(relax.op.sum(term.tensor, axes)), labels)

    def _ordered(self, term: _Term, labels: str) -> _Term:
        """With its axes in this order."""
        if term.labels == labels:
            return term
        axes = [term.labels.index(label) for label in labels]
        return _Term(self.emit(relax.op.permute_dims(term.tensor, axes)), labels)

    def _reshaped(self, tensor: relax.Expr, shape: list[int]) -> relax.Expr:
        same = list(shape_of(tensor)) == shape
        return tensor if same else self.emit(relax.op.reshape(tensor, shape))


def _sizes(term: _Term) -> dict[str, int]:
    return dict(zip(term.labels, shape_of(term.tensor), strict=True))


def _parse(subscripts: str, shapes: Sequence[tuple[int, ...]]) -> list[str] | None:
    """Labels of each operand and of the result; None for what is left to TVM: a label twice in one operand,
    or axes of one element that are repeated."""
    inputs, arrow, result = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(shapes):
        return None
    if not arrow:
        letters = sorted(set(inputs) - {",", "."})
        dots = "..." if "..." in inputs else ""
        result = dots + "".join(label for label in letters if inputs.count(label) == 1)
    free = [label for label in string.ascii_letters if label not in subscripts]
    most = (
        max(len(s) - len(t) + 3 for t, s in zip(terms, shapes, strict=True) if "..." in t)
        if ("..." in inputs)
        else 0
    )
    if most > len(free):
        return None
    dots = "".join(free[:most])
    expanded = []
    for term, shape in zip(terms, shapes, strict=True):
        own = len(shape) - len(term) + 3
        expanded.append(term.replace("...", dots[most - own :] if own else ""))
    result = result.replace("...", dots)
    sizes: dict[str, int] = {}
    for term, shape in zip(expanded, shapes, strict=True):
        if len(term) != len(shape) or len(set(term)) != len(term):
            return None
        if any(sizes.setdefault(label, n) != n for label, n in zip(term, shape, strict=True)):
            return None
    return [*expanded, result] if set(result) <= sizes.keys() else None


def matrix_products(module: IRModule) -> IRModule:
    """Makes matrix products of einsum, and products of matrices of those with vectors."""
    return _MatrixProducts(module).run()
