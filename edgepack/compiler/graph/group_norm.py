"""Group and instance normalisation: found in what exporters write, and what the operator means.

Exporters write a group norm as an InstanceNormalization between two reshapes, or, as its ONNX function does,
by the mean of squares less the square of the mean. An instance norm is a group norm whose groups are
channels. The pass makes ``relax.nn.group_norm`` of them, which follows the layout as one operator and is one
rule's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from tvm import relax, te, tirx
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

__all__ = ["find_group_norms", "group_norm_expression"]


#: Element types of norms that are looked for.
DTYPES = {"float32", "float64"}


@dataclass(frozen=True)
class _Norm:
    """Group normalisation of ``x``, (N, C, ...), with ``gamma`` and ``beta`` for each channel."""

    x: relax.Expr
    groups: int
    epsilon: float
    gamma: Array
    beta: Array


class _FindGroupNorms(UseCountingRewriter):
    """Replaces the last operator of each spelled-out normalisation; what only that read is dead then.

    Attributes:
        made: what was emitted so far, by the variable that it is bound to.
    """

    def __init__(self, module: IRModule) -> None:
        super().__init__(module)
        self.made: dict[relax.Var, _Norm] = {}

    def visit_call(self, call: relax.Call, args: Sequence[relax.Expr]) -> relax.Expr:
        name, found = op_name(call), None
        if isinstance(call.ty, relax.TensorType) and dtype_of(call) in DTYPES and len(shape_of(call)) > 2:
            if name == "relax.divide":
                found = self._quotient(args)
            elif name in {"relax.multiply", "relax.add"}:
                found = self._weighted(name, args, shape_of(call))
            elif name == "relax.reshape":
                found = self._of_groups(args[0], shape_of(call))
        return super().visit_call(call, args) if found is None else self._emit(found)

    def _emit(self, norm: _Norm) -> relax.Var:
        axes = list(range(2, len(shape_of(norm.x))))
        weights = constant(norm.gamma), constant(norm.beta)
        call = relax.op.nn.group_norm(norm.x, *weights, norm.groups, 1, axes, epsilon=norm.epsilon)
        emitted = self.emit(call)
        self.made[emitted] = norm
        return emitted

    def _quotient(self, args: Sequence[relax.Expr]) -> _Norm | None:
        """(x - mean) / sqrt(variance + epsilon), over all but batch and channels."""
        centred, root = self.call(args[0], "relax.subtract"), self.call(args[1], "relax.sqrt")
        total = self.call(root.args[0], "relax.add") if root is not None else None
        if centred is None or total is None:
            return None
        x = self._mean(centred.args[1])
        if x is None or not x.same_as(centred.args[0]):
            return None
        for variance, number in (total.args, total.args[::-1]):
            epsilon, base = number_of(number, DTYPES), self._variance(variance)
            if epsilon is not None and base is not None and base.same_as(x):
                channels = shape_of(x)[1]
                ones, zeros = (make(channels, dtype_of(x)) for make in (np.ones, np.zeros))
                return _Norm(x, channels, epsilon, ones, zeros)
        return None

    def _mean(self, expr: relax.Expr, operator: str = "relax.mean") -> OptionalExpr:
        """What this is the mean of over all but batch and channels, which it keeps."""
        call = self.call(expr, operator)
        if call is None or not call.attrs.keepdims or call.attrs.axis is None:
            return None
        rank = len(shape_of(call.args[0]))
        axes = sorted(int(a) % rank for a in call.attrs.axis)
        return call.args[0] if rank > 2 and axes == list(range(2, rank)) else None

    def _variance(self, expr: relax.Expr) -> OptionalExpr:
        """What this is the variance of: an operator, or the mean of squares less the square of the mean."""
        base = self._mean(expr, "relax.variance")
        difference = self.call(expr, "relax.subtract")
        if base is not None or difference is None:
            return base
        squares, square = self._mean(difference.args[0]), self._squared(difference.args[1])
        x = self._squared(squares) if squares is not None else None
        mean = self._mean(square) if square is not None else None
        return x if x is not None and mean is not None and mean.same_as(x) else None

    def _squared(self, expr: relax.Expr) -> OptionalExpr:
        call = self.call(expr, "relax.multiply", "relax.power", "relax.square")
        if call is None:
            return None
        if op_name(call) == "relax.multiply" and not call.args[0].same_as(call.args[1]):
            return None
        if op_name(call) == "relax.power" and number_of(call.args[1], DTYPES) != 2:
            return None
        return call.args[0]

    def _weighted(self, name: str, args: Sequence[relax.Expr], shape: tuple[int, ...]) -> _Norm | None:
        """A normalisation and constants along its channels: with those taken in."""
        for one, other in (args, args[::-1]):
            norm = self.made.get(one) if isinstance(one, relax.Var) else None
            if norm is None or not self.used_once(one) or shape != shape_of(one):
                continue
            weight = _along_channels(other, shape)
            if weight is None:
                continue
            if name == "relax.add":
                return replace(norm, beta=norm.beta + weight)
            return replace(norm, gamma=norm.gamma * weight, beta=norm.beta * weight)
        return None

    def _of_groups(self, data: relax.Expr, shape: tuple[int, ...]) -> _Norm | None:
        """A normalisation of (N, groups, ...) that was reshaped before and is reshaped back."""
        norm = self.made.get(data) if isinstance(data, relax.Var) else None
        before = self.call(norm.x, "relax.reshape") if norm is not None else None
        if norm is None or before is None or shape_of(before.args[0])[:2] != shape[:2]:
            return None
        batch, groups = shape_of(data)[:2]
        if norm.groups != groups or shape[0] != batch or shape[1] % groups:
            return None
        x = before.args[0]
        if shape_of(x) != shape:
            x = self.emit(relax.op.reshape(x, shape))
        gamma, beta = (np.repeat(v, shape[1] // groups) for v in (norm.gamma, norm.beta))
        return replace(norm, x=x, gamma=gamma, beta=beta)


def _along_channels(expr: relax.Expr, shape: tuple[int, ...]) -> Array | None:
    """A constant that differs along the second axis only, as a vector."""
    if not is_constant(expr) or dtype_of(expr) not in DTYPES:
        return None
    array = numpy_of(expr)
    if array.ndim > len(shape):
        return None
    full = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    if full.size not in {1, shape[1]} or full.shape[1] != full.size:
        return None
    return np.array(np.broadcast_to(full.reshape(-1), shape[1:2]))


def find_group_norms(module: IRModule) -> IRModule:
    """Makes ``relax.nn.group_norm`` of group and instance norms that are written out, channels first."""
    return _FindGroupNorms(module).run()


def group_norm_expression(
    x: te.Tensor, gamma: te.Tensor, beta: te.Tensor, groups: int, channel_axis: int, epsilon: float
) -> te.Tensor:
    """The operator in tensor expressions: what it means, and what runs where no rule serves it."""
    shape = [int(n) for n in x.shape]
    size = shape[channel_axis] // groups
    spatial = [i for i in range(1, len(shape)) if i != channel_axis]
    count = tirx.const(float(size * prod(shape[i] for i in spatial)), x.dtype)

    def total(name: str, value: Any) -> te.Tensor:
        def element(n: Any, g: Any) -> Any:
            axes = {i: te.reduce_axis((0, shape[i]), f"k{i}") for i in spatial}
            channel = te.reduce_axis((0, size), "kc")
            at = [n, *(g * size + channel if i == channel_axis else axes[i] for i in range(1, len(shape)))]
            return te.sum(value(at, n, g), axis=[channel, *axes.values()])

        return te.compute((shape[0], groups), element, name)

    sums = total("group_sum", lambda at, n, g: x[tuple(at)])

    def deviation(at: Sequence[Any], n: Any, g: Any) -> Any:
        return x[tuple(at)] - sums[n, g] / count

    squares = total("group_squares", lambda at, n, g: deviation(at, n, g) * deviation(at, n, g))

    def result(*at: Any) -> Any:
        n, c = at[0], at[channel_axis]
        g = tirx.floordiv(c, size)
        root = te.sqrt(squares[n, g] / count + tirx.const(epsilon, x.dtype))
        return deviation(at, n, g) / root * gamma[c] + beta[c]

    return te.compute(shape, result, "group_norm")
