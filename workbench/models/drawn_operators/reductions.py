"""Operators that make one element of many, and those that order elements."""

from __future__ import annotations

import numpy as np

from workbench.models.drawn_operators.node import NodeDraw, Operator, Recipes

__all__ = ["REDUCTIONS"]

REDUCTIONS = Recipes()

#: What sums may hold: of larger numbers the order of additions decides which are infinite.
_APART = (0.0, -0.0, np.nan, np.inf, -np.inf, 1.0)


def summands(draw: NodeDraw, dtype: np.dtype, shape: list[int], *, part: float = 0.05) -> np.ndarray:
    """Numbers whose sum does not depend on the order by more than rounding."""
    values = draw.numbers(dtype, shape, special=False)
    if draw.special and dtype.kind == "f":
        found = draw.rng.random(values.shape) < part
        values = np.where(found, draw.rng.choice(_APART, values.shape), values).astype(dtype)
    return values


def without_nan(values: np.ndarray) -> np.ndarray:
    """For operators of which the standard does not say what is greatest among NaN, and the references differ
    (docs/models.md says what edgepack takes)."""
    return np.where(np.isnan(values), values.dtype.type(0), values) if values.dtype.kind == "f" else values


@REDUCTIONS.of(
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin"),
    *("ReduceProd", "ReduceSum", "ReduceSumSquare"),
)
def _reduce(draw: NodeDraw) -> Operator:
    logarithm = draw.operator.startswith(
        "ReduceLog"
    )  # which references have of whole numbers in their own ways
    dtype = draw.type_of(without=("int32", "int64", "uint32", "uint64") if logarithm else ())
    shape = draw.shape()
    ordered = draw.operator in ("ReduceMax", "ReduceMin")
    values = draw.numbers(dtype, shape) if ordered else summands(draw, dtype, shape)
    if draw.operator == "ReduceLogSum" and dtype.kind == "f":
        values = np.abs(values)
    inputs, attributes = [draw.input(values, constant=0)], draw.attributes(keepdims=draw.whole(0, 1))
    if shape and draw.chance(0.8):
        count = draw.whole(1, len(shape))
        axes = [int(a) - len(shape) * draw.whole(0, 1) for a in draw.rng.permutation(len(shape))[:count]]
        if draw.opset < 11:  # counted from the front
            axes = [a % len(shape) for a in axes]
        given, more = draw.parameter("axes", axes, 1)
        return draw.done(inputs + more, **attributes, **given)
    attributes |= draw.attributes(noop_with_empty_axes=draw.whole(0, 1))
    return draw.done(inputs, **attributes)


@REDUCTIONS.of("ArgMax", "ArgMin")
def _position(draw: NodeDraw) -> Operator:
    shape = draw.shape(1)
    values = draw.numbers(draw.type_of(), shape)
    axis = draw.axis(len(shape)) if draw.opset >= 11 else draw.whole(0, len(shape) - 1)
    attributes = draw.attributes(axis=axis, keepdims=draw.whole(0, 1), select_last_index=draw.whole(0, 1))
    return draw.done([draw.input(values, constant=0)], **attributes)


@REDUCTIONS.of("Softmax", "LogSoftmax", "Hardmax")
def _softmax(draw: NodeDraw) -> Operator:
    shape = draw.shape(1)
    axis = draw.axis(len(shape)) if draw.opset >= 11 else draw.whole(0, len(shape) - 1)
    values = draw.numbers(draw.type_of(), shape)
    if draw.operator == "Hardmax":
        values = without_nan(values)
    attributes = draw.attributes(axis=axis) if len(shape) > 1 else {"axis": axis}  # the default was 1
    return draw.done([draw.input(values, constant=0)], **attributes)


@REDUCTIONS.of("CumSum")
def _sums(draw: NodeDraw) -> Operator:
    shape = draw.shape(1)
    values = summands(draw, draw.type_of(), shape)
    axis = draw.constant(draw.axis(len(shape)), draw.draw("int32", "int64"))
    attributes = draw.attributes(exclusive=draw.whole(0, 1), reverse=draw.whole(0, 1))
    return draw.done([draw.input(values, constant=0), axis], **attributes)


@REDUCTIONS.of("TopK")
def _largest(draw: NodeDraw) -> Operator:
    shape = draw.shape(1)
    axis = draw.axis(len(shape)) if draw.opset >= 11 else draw.whole(0, len(shape) - 1)
    dtype = draw.type_of()
    values = draw.numbers(dtype, shape, special=False)  # of NaN the order is not defined
    count = draw.whole(0 if draw.opset >= 10 else min(1, shape[axis]), shape[axis])
    attributes = draw.attributes(largest=draw.whole(0, 1)) | {"axis": axis}
    given, more = ({"k": count}, []) if draw.has("k") else ({}, [draw.constant([count])])
    return draw.done([draw.input(values, constant=0), *more], 2, **attributes, **given)


@REDUCTIONS.of("LpNormalization")
def _norm(draw: NodeDraw) -> Operator:
    shape = draw.shape(1)
    values = summands(draw, draw.type_of(), shape)
    attributes = draw.attributes(axis=draw.axis(len(shape)), p=draw.whole(1, 2))
    return draw.done([draw.input(values, constant=0)], **attributes)


@REDUCTIONS.of("LayerNormalization", "RMSNormalization")
def _layer_norm(draw: NodeDraw) -> Operator:
    shape = draw.shape(1, empty=False)
    axis = draw.axis(len(shape))
    normal = shape[axis % len(shape) :]
    scale = [1 if draw.chance(0.2) else size for size in normal]
    if draw.chance(0.2):
        scale = scale[draw.whole(0, len(scale)) :]
    given = [draw.input(summands(draw, np.dtype("float32"), shape), constant=0)]
    given += [draw.input(draw.numbers("float32", scale, special=False), constant=0.7)]
    if draw.operator == "LayerNormalization" and draw.chance():
        given += [draw.input(draw.numbers("float32", scale, special=False), constant=0.7)]
    return draw.done(given, axis=axis, **draw.attributes(epsilon=draw.draw(1e-5, 1e-3)))


@REDUCTIONS.of("MeanVarianceNormalization")
def _standardised(draw: NodeDraw) -> Operator:
    shape = draw.shape(2, empty=False)
    axes = sorted({draw.whole(0, len(shape) - 1) for _ in range(2)})
    return draw.done([draw.input(summands(draw, np.dtype("float32"), shape), constant=0)], axes=axes)
