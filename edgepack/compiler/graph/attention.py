"""Attention as one operator: products of queries and keys, scale and mask, softmax, product with the values.

Written as separate steps, the scores of all heads go through memory four times. The pass finds the steps in
the graph and emits one function with the anchor ``attention``, which reads queries, keys and values where
they lie (heads are split and merged by strides) and writes its rows where the next operator wants them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from tvm import relax, te, tirx, topi
from tvm.ir import Expr, IRModule

from edgepack.compiler.graph.legalize import ANCHOR, Attributes
from edgepack.compiler.graph.merge_projections import merge_projections
from edgepack.compiler.graph.rewrite import OptionalExpr, dtype_of, is_constant, op_name, shape_of
from edgepack.compiler.graph.use_counts import UseCountingRewriter
from edgepack.compiler.graph.views import View, number_of, strides_of, view_of

__all__ = ["fuse_attention"]

#: What may stand between the first product and the softmax.
STEPS: dict[str, Callable[..., te.Tensor]] = {
    "relax.add": topi.add,
    "relax.subtract": topi.subtract,
    "relax.multiply": topi.multiply,
    "relax.divide": topi.divide,
    "relax.maximum": topi.maximum,
    "relax.minimum": topi.minimum,
    "relax.where": topi.where,
}

#: Fewer queries than lanes leave a transposed tile empty, and few keys make no product.
LEAST_ROWS = 16


@dataclass(frozen=True)
class _Step:
    """An elementwise operator; ``arguments`` has None where the scores are."""

    operator: str
    arguments: tuple[relax.Expr | None, ...]


@dataclass(frozen=True)
class _Attention:
    """out[order] = softmax(steps(scale * query @ key)) @ value.

    The views have the batch dimensions first, then rows and depth (query), keys and depth (key), keys and
    columns (value). With ``zeroes_nan`` weights that are NaN, those of a query whose keys are all masked
    with -inf, are 0: PyTorch exports attention so.
    """

    query: View
    key: View
    value: View
    scale: float
    steps: tuple[_Step, ...]
    order: tuple[int, ...]
    zeroes_nan: bool = False


class _FuseAttention(UseCountingRewriter):
    """Replaces the second product of attention by the whole, and a transpose of heads behind it.

    Attributes:
        made: what was emitted so far, by the variable that it is bound to.
    """

    def __init__(self, module: IRModule) -> None:
        super().__init__(module)
        self.made: dict[relax.Var, _Attention] = {}

    def visit_call(self, call: relax.Call, args: Sequence[relax.Expr]) -> relax.Expr:
        name = op_name(call)
        if name == "relax.matmul":
            found = self._match(args[0], args[1], shape_of(call))
            if found is not None:
                return self._emit(found)
        if name == "relax.permute_dims" and args[0] in self.made and self.used_once(args[0]):
            known = self.made[args[0]]
            axes = call.attrs.axes
            order = tuple(int(a) for a in axes) if axes is not None else ()
            if order and order[-1] == len(order) - 1 and known.order == tuple(range(len(order))):
                return self._emit(replace(known, order=order))
        return super().visit_call(call, args)

    # Finding ----------------------------------------------------------------------------------------------

    def _match(self, weights: relax.Expr, value: relax.Expr, shape: tuple[int, ...]) -> _Attention | None:
        softmax, zeroes_nan = self._softmax(weights)
        if op_name(softmax) != "relax.nn.softmax" or dtype_of(softmax) != "float32":
            return None
        rank = len(shape)
        if int(softmax.attrs.axis) % rank != rank - 1 or len(shape_of(softmax)) != rank:
            return None
        steps: list[_Step] = []
        product = self.definition_if_used_once(softmax.args[0])
        while op_name(product) in STEPS:
            step, inner = self._step(product, shape_of(softmax))
            if step is None:
                return None
            steps.insert(0, step)
            product = self.definition_if_used_once(inner)
        if op_name(product) != "relax.matmul":
            return None
        found = self._attention(product, steps, value, shape)
        return None if found is None else replace(found, zeroes_nan=zeroes_nan)

    def _softmax(self, weights: relax.Expr) -> tuple[OptionalExpr, bool]:
        """What the weights are bound to, and whether NaN is replaced by 0 in it before they are used."""
        call = self.definition_if_used_once(weights)
        if op_name(call) != "relax.where":
            return call, False
        condition, zero, kept = call.args
        test = self.definition_if_used_once(condition)
        if op_name(test) != "relax.isnan" or not test.args[0].same_as(kept) or self.uses(kept) != 2:
            return None, False
        return (self.definition(kept), True) if number_of(zero) == 0 else (None, False)

    def _step(self, call: relax.Call, shape: tuple[int, ...]) -> tuple[_Step | None, OptionalExpr]:
        """The step and the argument that the scores come from: the one that leads to a product."""
        inner = [a for a in call.args if shape_of(a) == shape and self._leads_to_product(a)]
        if len(inner) != 1 or shape_of(call) != shape or dtype_of(inner[0]) != "float32":
            return None, None
        others = [None if a.same_as(inner[0]) else self._unbroadcast(a) for a in call.args]
        if any(a is not None and dtype_of(a) not in {"float32", "bool"} for a in others):
            return None, None
        return _Step(op_name(call), tuple(others)), inner[0]

    def _leads_to_product(self, expr: relax.Expr) -> bool:
        call = self.definition_if_used_once(expr)
        while op_name(call) in STEPS:
            before = map(self.definition_if_used_once, call.args)
            call = next((c for c in before if op_name(c) in {*STEPS, "relax.matmul"}), None)
        return op_name(call) == "relax.matmul"

    def _unbroadcast(self, expr: relax.Expr) -> relax.Expr:
        call = self.call(expr, "relax.broadcast_to")
        return call.args[0] if call is not None else expr

    def _attention(
        self, product: relax.Expr, steps: list[_Step], value: relax.Expr, shape: tuple[int, ...]
    ) -> _Attention | None:
        query, key = (view_of(a, self.definition) for a in product.args)
        rank = len(shape)
        if any(len(v.shape) != rank for v in (query, key)) or len(shape_of(value)) != rank:
            return None
        if any(dtype_of(v) != "float32" for v in (query.base, key.base, value)):
            return None
        values = view_of(value, self.definition)
        batch = shape[:-2]
        if any(v.shape[:-2] != batch for v in (query, key, values)) or is_constant(value):
            return None
        if min(query.shape[-2], key.shape[-1]) < LEAST_ROWS:
            return None
        if (values.strides[-1] != 1 and values.shape[-1] > 1) or values.scale != 1:
            values = View(value, 0, values.shape, strides_of(values.shape))
        scale, steps = _leading_scale(query.scale * key.scale, steps)
        query, key, values = merge_projections(self, (query, key, values))
        swapped = key.picked([*range(rank - 2), rank - 1, rank - 2])
        return _Attention(query, swapped, values, scale, tuple(steps), tuple(range(rank)))

    # Emitting ---------------------------------------------------------------------------------------------

    def _emit(self, found: _Attention) -> relax.Var:
        views = (found.query, found.key, found.value)
        flat = [self.emit(relax.op.reshape(v.base, (prod(shape_of(v.base)),))) for v in views]
        tensors = [
            a for step in found.steps for a in step.arguments if a is not None and number_of(a) is None
        ]
        call = self.builder.call_te(
            lambda *operands: _expression(found, operands), *flat, *tensors, primfunc_name_hint="attention"
        )
        gvar = call.args[0]
        function = self.builder.get()[gvar].with_attr(ANCHOR, _description(found))
        self.builder.update_func(gvar, function)
        emitted = self.emit(call)
        self.made[emitted] = found
        return emitted


def _leading_scale(scale: float, steps: list[_Step]) -> tuple[float, list[_Step]]:
    """Takes multiplications and divisions by numbers that come first into the scale."""
    while steps and steps[0].operator in {"relax.multiply", "relax.divide"}:
        first, second = steps[0].arguments
        number = number_of(second if first is None else first)
        if number is None or (steps[0].operator == "relax.divide" and (number == 0 or first is not None)):
            break
        scale = scale / number if steps[0].operator == "relax.divide" else scale * number
        steps = steps[1:]
    return scale, steps


def _description(found: _Attention) -> Attributes:
    *batch, rows, depth = found.query.shape
    return {
        "kind": "attention",
        "batch": list(batch),
        "rows": rows,
        "depth": depth,
        "keys": found.value.shape[-2],
        "columns": found.value.shape[-1],
        "query": [found.query.offset, *found.query.strides],
        "key": [found.key.offset, *found.key.strides],
        "value": [found.value.offset, *found.value.strides],
        "scale": found.scale,
        "order": list(found.order),
        "zeroes_nan": found.zeroes_nan,
    }


def _expression(found: _Attention, operands: Sequence[te.Tensor]) -> te.Tensor:
    """The operator in tensor expressions: what it means, and what runs where no rule serves it."""
    query, key, value, *extra = operands
    *batch, rows, depth = found.query.shape
    keys, columns = found.value.shape[-2:]

    def at(view: View, tensor: te.Tensor, index: Sequence[Expr]) -> Expr:
        flat = sum(
            (i * s for i, s in zip(index, view.strides, strict=True)), tirx.const(view.offset, "int64")
        )
        return tensor[flat]

    def score(*index: Expr) -> Expr:
        *outer, row, column = index
        k = te.reduce_axis((0, depth), "k")
        left, right = at(found.query, query, (*outer, row, k)), at(found.key, key, (*outer, column, k))
        return te.sum(left * tirx.const(found.scale, "float32") * right, axis=k)

    scores = te.compute((*batch, rows, keys), score, "scores")
    remaining = iter(extra)
    for step in found.steps:
        numbers = [None if a is None else number_of(a) for a in step.arguments]
        arguments = [
            scores if a is None else next(remaining) if n is None else topi.full((1,), "float32", n)
            for a, n in zip(step.arguments, numbers, strict=True)
        ]
        scores = STEPS[step.operator](*arguments)
    weights = topi.nn.softmax(scores, axis=-1)
    if found.zeroes_nan:
        weights = topi.where(topi.isnan(weights), topi.full((1,), "float32", 0.0), weights)
    shape = (*batch, rows, columns)

    def result(*index: Expr) -> Expr:
        *outer, row, column = (index[found.order.index(axis)] for axis in range(len(shape)))
        k = te.reduce_axis((0, keys), "k")
        return te.sum(weights[(*outer, row, k)] * at(found.value, value, (*outer, k, column)), axis=k)

    return te.compute(tuple(shape[axis] for axis in found.order), result, "attention")


def fuse_attention(module: IRModule) -> IRModule:
    """Replaces the steps of attention, where nothing else reads them, by one function."""
    return _FuseAttention(module).run()
