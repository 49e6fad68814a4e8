"""What is known of the values of integers is what the operators before them allow, and no less."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax

from edgepack.compiler.graph.integer_ranges import range_of
from edgepack.compiler.graph.rewrite import constant


class Values:
    """Expressions that are computed one after the other, as a pass remembers them."""

    def __init__(self) -> None:
        self.builder = relax.BlockBuilder()
        self.calls: dict[relax.Expr, relax.Call] = {}

    def emit(self, call: relax.Call) -> relax.Var:
        made = self.builder.emit(call)
        self.calls[made] = call
        return made

    def bytes(self, x: relax.Expr) -> relax.Var:
        return self.emit(relax.op.astype(x, "uint8"))


def number(value: int, dtype: str = "int16") -> relax.Expr:
    return constant(np.array(value, dtype))


def _less_zero(v: Values, x: relax.Expr) -> relax.Expr:
    return v.emit(relax.op.subtract(v.emit(relax.op.astype(v.bytes(x), "int16")), number(7)))


def _bounded(v: Values, x: relax.Expr) -> relax.Expr:
    narrow = v.emit(relax.op.astype(v.emit(relax.op.astype(x, "int32")), "int16"))
    return v.emit(relax.op.minimum(v.emit(relax.op.maximum(narrow, number(-7))), number(248)))


def _rounded(v: Values, x: relax.Expr) -> relax.Expr:
    return v.emit(relax.op.astype(v.emit(relax.op.round(v.emit(relax.op.clip(x, -128, 127)))), "int16"))


def _half(v: Values, x: relax.Expr) -> relax.Expr:
    return v.emit(relax.op.astype(v.emit(relax.op.round(v.emit(relax.op.clip(x, 0, 2.5)))), "int16"))


def _joined(v: Values, x: relax.Expr) -> relax.Expr:
    both = relax.Tuple([_less_zero(v, x), _rounded(v, x)])
    return v.emit(relax.op.concat(both, axis=1))


def _padded(v: Values, x: relax.Expr) -> relax.Expr:
    return v.emit(relax.op.nn.pad(_less_zero(v, x), [0, 0, 0, 0, 1, 1, 1, 1], pad_value=-9.0))


def _pooled(v: Values, x: relax.Expr) -> relax.Expr:
    return v.emit(relax.op.nn.max_pool2d(_bounded(v, x), pool_size=(2, 2)))


def _beyond(v: Values, x: relax.Expr) -> relax.Expr:
    wide = v.emit(relax.op.add(_less_zero(v, x), number(32700)))
    return v.emit(relax.op.add(wide, _less_zero(v, x)))


@pytest.mark.parametrize(
    ("made", "known"),
    [
        (_less_zero, (-7, 248)),
        (_bounded, (-7, 248)),
        (_rounded, (-128, 127)),
        (_half, (-(2**15), 2**15 - 1)),  # a bound that is rounded itself
        (_joined, (-128, 248)),
        (_padded, (-9, 248)),
        (_pooled, (-7, 248)),
        (_beyond, (-(2**15), 2**15 - 1)),  # may wrap around
        (lambda v, x: x, None),
        (lambda v, x: constant(np.array([3, -5], np.int8)), (-5, 3)),
    ],
)
def test_ranges(made: Callable[[Values, relax.Expr], relax.Expr], known: tuple[int, int] | None) -> None:
    values = Values()
    x = relax.Var("x", relax.TensorType((1, 4, 6, 6), "float32"))
    with values.builder.function("main", [x]):
        with values.builder.dataflow():
            found = range_of(values.calls, made(values, x))
            values.builder.emit_output(x)
        values.builder.emit_func_output(x)
    assert found == known
