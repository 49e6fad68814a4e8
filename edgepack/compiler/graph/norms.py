"""Normalisations that a model spells out, as one operator.

Exporters below ONNX opset 17 write LayerNorm as mean, difference, power, mean, sum, root, quotient, product
and sum, and RMSNorm as most of these. Fusion stops at the second reduction, so that would be three kernels.
The pass turns the quotient into the operator with neutral weights, and takes a product and a sum with
constants that follow into them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax
from tvm.ir import IRModule

from edgepack.compiler.graph.rewrite import (
    Array,
    OptionalExpr,
    constant,
    dtype_of,
    is_constant,
    numpy_of,
    op_name,
    shape_of,
)
from edgepack.compiler.graph.use_counts import UseCountingRewriter
from edgepack.compiler.graph.views import number_of

__all__ = ["fuse_norms"]


@dataclass(frozen=True)
class _Norm:
    """(x - mean if ``centred``) / sqrt(mean of squares + epsilon) * gamma + beta, along the last axis."""

    x: relax.Expr
    epsilon: float
    centred: bool
    gamma: Array
    beta: Array | None = None


class _FuseNorms(UseCountingRewriter):
    """Replaces the quotient of a normalisation by the operator, and a product and a sum behind it.

    Attributes:
        made: what was emitted so far, by the variable that it is bound to.
    """

    def __init__(self, module: IRModule) -> None:
        super().__init__(module)
        self.made: dict[relax.Var, _Norm] = {}

    def visit_call(self, call: relax.Call, args: Sequence[relax.Expr]) -> relax.Expr:
        name = op_name(call)
        found = None
        if name in {"relax.divide", "relax.multiply"} and dtype_of(call) == "float32":
            found = self._quotient(name, args) or self._weighted(args, shape_of(call), "gamma")
        elif name == "relax.add" and dtype_of(call) == "float32":
            found = self._weighted(args, shape_of(call), "beta")
        return self._emit(found) if found is not None else super().visit_call(call, args)

    def _emit(self, norm: _Norm) -> relax.Var:
        gamma = constant(norm.gamma)
        if norm.centred:
            beta = constant(np.zeros_like(norm.gamma) if norm.beta is None else norm.beta)
            call = relax.op.nn.layer_norm(norm.x, gamma, beta, axes=[-1], epsilon=norm.epsilon)
        else:
            call = relax.op.nn.rms_norm(norm.x, gamma, axes=[-1], epsilon=norm.epsilon)
        emitted = self.emit(call)
        self.made[emitted] = norm
        return emitted

    # Weights ----------------------------------------------------------------------------------------------

    def _weighted(self, args: Sequence[relax.Expr], shape: tuple[int, ...], which: str) -> _Norm | None:
        """A normalisation and constants along its axis: with those taken in."""
        for one, other in (args, args[::-1]):
            norm = self.made.get(one) if isinstance(one, relax.Var) else None
            if norm is None or not self.used_once(one) or shape != shape_of(one) or norm.beta is not None:
                continue
            weight = _along_last(other, shape)
            if weight is None:
                continue
            if which == "gamma":
                return replace(norm, gamma=norm.gamma * weight)
            return replace(norm, beta=weight) if norm.centred else None
        return None

    # The quotient -----------------------------------------------------------------------------------------

    def _quotient(self, name: str, args: Sequence[relax.Expr]) -> _Norm | None:
        if name == "relax.divide":
            return self._norm(args[0], self._root(args[1]))
        for x, factor in (args, args[::-1]):
            found = self._norm(x, self._reciprocal_root(factor))
            if found is not None:
                return found
        return None

    def _norm(self, numerator: relax.Expr, radicand: relax.Expr) -> _Norm | None:
        """What is divided by the root of ``radicand``, if that is its own mean square plus a number."""
        total = self.call(radicand, "relax.add")
        if total is None:
            return None
        for mean, number in (total.args, total.args[::-1]):
            epsilon = number_of(number)
            squares = self._mean(mean)
            if epsilon is None or squares is None:
                continue
            base = self._squared(squares)
            if base is None:
                continue
            ones = np.ones(shape_of(numerator)[-1:], np.float32)
            x = self._centred(numerator)
            if x is not None and self._same(base, numerator, self._centred):
                return _Norm(x, epsilon, True, ones)
            if base.same_as(numerator) and len(shape_of(numerator)) > 1:  # TVM's takes no row alone
                return _Norm(numerator, epsilon, False, ones)
        return None

    @staticmethod
    def _same(a: relax.Expr, b: relax.Expr, meaning: Callable[[relax.Expr], OptionalExpr]) -> bool:
        """Whether both are one value, or mean the same of one value."""
        return a.same_as(b) or (meaning(a) is not None and meaning(a).same_as(meaning(b)))

    def _root(self, expr: relax.Expr) -> OptionalExpr:
        call = self.call(expr, "relax.sqrt", "relax.power")
        if call is None or (op_name(call) == "relax.power" and number_of(call.args[1]) != 0.5):
            return None
        return call.args[0]

    def _reciprocal_root(self, expr: relax.Expr) -> OptionalExpr:
        call = self.call(expr, "relax.rsqrt", "relax.divide", "relax.power")
        if call is None:
            return None
        if op_name(call) == "relax.rsqrt":
            return call.args[0]
        if op_name(call) == "relax.power":
            return call.args[0] if number_of(call.args[1]) == -0.5 else None
        return self._root(call.args[1]) if number_of(call.args[0]) == 1 else None

    def _mean(self, expr: relax.Expr) -> OptionalExpr:
        """What this is the mean of along its last axis, which it keeps."""
        call = self.call(expr, "relax.mean")
        if call is None or not call.attrs.keepdims or call.attrs.axis is None:
            return None
        rank = len(shape_of(call.args[0]))
        return call.args[0] if [int(a) % rank for a in call.attrs.axis] == [rank - 1] else None

    def _squared(self, expr: relax.Expr) -> OptionalExpr:
        call = self.call(expr, "relax.power", "relax.multiply", "relax.square")
        if call is None:
            return None
        name = op_name(call)
        if name == "relax.power" and number_of(call.args[1]) != 2:
            return None
        if name == "relax.multiply" and not call.args[0].same_as(call.args[1]):
            return None
        return call.args[0]

    def _centred(self, expr: relax.Expr) -> OptionalExpr:
        """x where the expression is x - mean of x."""
        call = self.call(expr, "relax.subtract")
        if call is None:
            return None
        mean = self._mean(call.args[1])
        return mean if mean is not None and mean.same_as(call.args[0]) else None


def _along_last(expr: relax.Expr, shape: tuple[int, ...]) -> Array | None:
    """A constant that differs along the last axis only, as a vector."""
    if not is_constant(expr) or dtype_of(expr) != "float32":
        return None
    array = numpy_of(expr)
    if array.size not in {1, shape[-1]} or (array.size > 1 and array.shape[-1] != shape[-1]):
        return None
    return np.array(np.broadcast_to(array.reshape(-1), shape[-1:]))


def fuse_norms(module: IRModule) -> IRModule:
    """Replaces LayerNorm and RMSNorm that are written out by their operators."""
    return _FuseNorms(module).run()
