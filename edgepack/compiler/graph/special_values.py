"""Legalisations of operators whose TVM forms are wrong for NaN, infinities and numbers far from 1.

TVM folds a product with the number 0 to 0, whatever the other factor is, refuses to divide by it, takes the
sign of NaN for 0, and loses small results of a softplus beside 1.
"""

from __future__ import annotations

from collections.abc import Callable
from math import copysign, inf
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import Op

from edgepack.compiler.graph.rewrite import dtype_of, is_constant, numpy_of, op_name, shape_of

__all__ = ["SPECIAL"]

Expr = Any

#: Terms of log1p(t) = 2 s (1 + z/3 + z**2/5 + ...), z = s**2, s = t / (2 + t), 0 <= t <= 1: z is at most 1/9,
#: so that those left out are below half an ulp of float32, and of float64.
_TERMS = {"float32": 8, "float64": 17}


def _elementwise(
    builder: relax.BlockBuilder, call: relax.Call, element: Callable[..., Expr], *operands: relax.Expr
) -> relax.Call:
    """A call of a function that computes each element of ``call``'s shape from those of the operands, which
    are broadcast."""
    shape = shape_of(call)

    def compute(*tensors: te.Tensor) -> te.Tensor:
        def at(tensor: te.Tensor, place: tuple[Any, ...]) -> Expr:
            own = place[len(place) - len(tensor.shape) :]
            return tensor(*(0 if int(n) == 1 else i for n, i in zip(tensor.shape, own, strict=True)))

        return te.compute(
            shape,
            lambda *place: element(*(at(tensor, place) for tensor in tensors)),
            name="element",
            tag="broadcast",
        )

    return builder.call_te(compute, *operands, primfunc_name_hint=op_name(call).split(".")[-1])


def _sign(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """-1, 1, or the operand itself: 0 or NaN."""
    (x,), dtype = call.args, dtype_of(call)

    def element(value: Expr) -> Expr:
        one, zero = tirx.const(1, dtype), tirx.const(0, dtype)
        if dtype.startswith("uint"):
            return tirx.Select(value > zero, one, zero)
        return tirx.Select(value > zero, one, tirx.Select(value < zero, tirx.const(-1, dtype), value))

    return _elementwise(builder, call, element, x)


def _softplus(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """max(x, 0) + log1p(exp(-|x|)): its relative error is a few ulp, however small the result is."""
    (x,), dtype = call.args, dtype_of(call)

    def element(value: Expr) -> Expr:
        t = tirx.exp(-tirx.abs(value))
        s = t / (t + tirx.const(2, dtype))
        z = s * s
        count = _TERMS[dtype]
        total: Expr = tirx.const(2 / (2 * count - 1), dtype)
        for term in range(count - 1, 0, -1):
            total = total * z + tirx.const(2 / (2 * term - 1), dtype)
        return tirx.Max(value, tirx.const(0, dtype)) + total * s

    return _elementwise(builder, call, element, x)


def _zero(expr: relax.Expr) -> float | None:
    """The value of a constant of one element that is zero, of floats; None of any other."""
    if not is_constant(expr) or dtype_of(expr) not in _TERMS or np.prod(shape_of(expr), dtype=int) != 1:
        return None
    value = float(numpy_of(expr).reshape(-1)[0])
    return value if value == 0 else None


def _by_zero(name: str, zero: float, dtype: str) -> Callable[[Expr], Expr]:
    """A product or quotient with a zero, by what IEEE 754 says is the same and TVM does not fold.

    Args:
        name: "product", "quotient" (by zero) or "dividend" (zero by the operand).
    """
    infinity = tirx.const(copysign(inf, zero), dtype)
    if name == "product":
        return lambda x: tirx.Div(x, infinity)
    if name == "quotient":
        return lambda x: tirx.Mul(x, infinity)
    return lambda x: tirx.Div(tirx.Div(tirx.Min(tirx.abs(x), tirx.const(1, dtype)), infinity), x)


def _with_zero(name: str) -> Callable[[relax.BlockBuilder, relax.Call], relax.Call]:
    """A product or a quotient of a number that is 0; otherwise TVM's own."""
    product = name == "relax.multiply"
    legalise = Op.get(name).get_attr("FLegalize")

    def convert(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
        a, b = call.args
        of_a, of_b = _zero(a), _zero(b)
        if of_b is not None and not is_constant(a):
            element = _by_zero("product" if product else "quotient", of_b, dtype_of(b))
            return _elementwise(builder, call, element, a)
        if of_a is not None and not is_constant(b):
            element = _by_zero("product" if product else "dividend", of_a, dtype_of(a))
            return _elementwise(builder, call, element, b)
        return legalise(builder, call)

    return convert


def _leaky_relu(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """TVM's own, but where the slope is 0: infinity and NaN times 0 are NaN."""
    slope, (x,), dtype = float(call.attrs.alpha), call.args, dtype_of(call)
    if slope or dtype not in _TERMS:
        return Op.get("relax.nn.leakyrelu").get_attr("FLegalize")(builder, call)

    def element(value: Expr) -> Expr:
        return tirx.Select(value >= tirx.const(0, dtype), value, _by_zero("product", slope, dtype)(value))

    return _elementwise(builder, call, element, x)


#: Legalisations by operator.
SPECIAL = {
    "relax.divide": _with_zero("relax.divide"),
    "relax.multiply": _with_zero("relax.multiply"),
    "relax.nn.leakyrelu": _leaky_relu,
    "relax.nn.softplus": _softplus,
    "relax.sign": _sign,
}
