"""The activations of ONNX's recurrent operators, on float32 vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from edgepack.compiler.graph.recurrent import Activation
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.vector_math import elementary, maximum, minimum

__all__ = ["activate", "clipped"]

Expr = Any


class _Vector:
    """Arithmetic on vectors of so many lanes, with an activation's numbers."""

    def __init__(self, e: Emitter, activation: Activation, lanes: int) -> None:
        self.e, self.lanes = e, lanes
        self.alpha, self.beta = e.f32(activation.alpha, lanes), e.f32(activation.beta, lanes)
        self.zero, self.one = e.f32(0, lanes), e.f32(1, lanes)

    def of(self, name: str, x: Expr) -> Expr:
        return elementary(self.e, f"tirx.{name}", self.e.let(x), self.lanes)

    def larger(self, a: Expr, b: Expr) -> Expr:
        return maximum(self.e, a, b)

    def where(self, condition: Expr, a: Expr, b: Expr) -> Expr:
        return tirx.Select(condition, a, b)


def _softplus(v: _Vector, x: Expr) -> Expr:
    small = v.of("exp", v.zero - v.of("fabs", x))
    return v.larger(x, v.zero) + v.of("log", v.one + small)


#: By the name in lower case; the formulas are those of the operators' documentation.
_FUNCTIONS: dict[str, Callable[[_Vector, Expr], Expr]] = {
    "affine": lambda v, x: v.alpha * x + v.beta,
    "elu": lambda v, x: v.where(x < v.zero, v.alpha * (v.of("exp", x) - v.one), x),
    "hardsigmoid": lambda v, x: v.larger(v.zero, minimum(v.e, v.one, v.e.let(v.alpha * x + v.beta))),
    "leakyrelu": lambda v, x: v.where(x < v.zero, v.alpha * x, x),
    "relu": lambda v, x: v.larger(v.zero, x),
    "scaledtanh": lambda v, x: v.alpha * v.of("tanh", v.beta * x),
    "sigmoid": lambda v, x: v.of("sigmoid", x),
    "softplus": _softplus,
    "softsign": lambda v, x: x / (v.one + v.of("fabs", x)),
    "tanh": lambda v, x: v.of("tanh", x),
    "thresholdedrelu": lambda v, x: v.where(x < v.alpha, v.zero, x),
}


def activate(e: Emitter, activation: Activation, x: Expr, lanes: int) -> Expr:
    """The activation of a vector of ``lanes`` lanes."""
    return e.let(_FUNCTIONS[activation.name](_Vector(e, activation, lanes), e.let(x)))


def clipped(e: Emitter, x: Expr, bound: float, lanes: int) -> Expr:
    """The vector, kept between -bound and bound; as it is for a bound of 0."""
    if not bound:
        return x
    return maximum(e, e.f32(-bound, lanes), minimum(e, e.f32(bound, lanes), e.let(x)))
