"""Our own conversion of activations and of a reduction, where TVM's importer is wrong for NaN, infinities or
numbers far from 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["CONVERTERS"]


def _softplus(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    """Its legalisation (``graph/special_values.py``) keeps small results."""
    from tvm import relax

    del builder, attributes, opset
    return relax.op.nn.softplus(inputs[0])


def _celu(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1)): the function body in ONNX divides and multiplies great
    numbers too, and gives a scalar one dimension."""
    from tvm import relax

    del opset
    x, dtype = inputs[0], str(inputs[0].ty.dtype)
    zero, alpha = relax.const(0, dtype), relax.const(attributes.get("alpha", 1.0), dtype)

    def emit(operator: Any, *operands: Any) -> Any:
        return builder.emit(operator(*operands))

    curve = emit(
        relax.op.subtract, emit(relax.op.exp, emit(relax.op.divide, x, alpha)), relax.const(1, dtype)
    )
    below = emit(relax.op.minimum, zero, emit(relax.op.multiply, alpha, curve))
    return relax.op.add(emit(relax.op.maximum, zero, x), below)


def _shrink(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    """x moved towards 0 by the bias where it is further from it than lambd, else 0; of integers as floats,
    whose fraction is dropped."""
    from tvm import relax

    del opset
    x, own = inputs[0], str(inputs[0].ty.dtype)
    dtype = own if own.startswith("float") else "float64" if own.endswith(("32", "64")) else "float32"

    def emit(operator: Any, *operands: Any) -> Any:
        return builder.emit(operator(*operands))

    wide = x if dtype == own else builder.emit(relax.op.astype(x, dtype))
    bias, lambd = (attributes.get(name, usual) for name, usual in (("bias", 0.0), ("lambd", 0.5)))
    far, near = relax.const(bias, dtype), relax.const(0, dtype)
    above = emit(relax.op.greater, wide, relax.const(lambd, dtype))
    below = emit(relax.op.less, wide, relax.const(-lambd, dtype))
    moved = emit(relax.op.where, below, emit(relax.op.add, wide, far), near)
    result = emit(relax.op.where, above, emit(relax.op.subtract, wide, far), moved)
    return result if dtype == own else relax.op.astype(result, own)


def _prelu(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    """The slope times what is below 0, of integers and scalars too. None where TVM's own operator serves."""
    from tvm import relax

    del attributes, opset
    x, slope = inputs
    dtype, rank = str(x.ty.dtype), len(x.ty.shape)
    if dtype.startswith("float") and rank:
        return None
    below = builder.emit(relax.op.less(x, relax.const(0, dtype)))
    return relax.op.where(below, builder.emit(relax.op.multiply(x, slope)), x)


def _selu(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    """gamma times x where that is above 0, else alpha (exp(x) - 1), in float64; None of float32, which TVM's
    own conversion serves."""
    from tvm import relax

    del opset
    x, dtype = inputs[0], str(inputs[0].ty.dtype)
    if dtype != "float64":
        return None
    alpha = relax.const(attributes.get("alpha", 1.6732632423543772), dtype)

    def emit(operator: Any, *operands: Any) -> Any:
        return builder.emit(operator(*operands))

    less = emit(relax.op.subtract, emit(relax.op.exp, x), relax.const(1, dtype))
    above = emit(relax.op.greater, x, relax.const(0, dtype))
    both = emit(relax.op.where, above, x, emit(relax.op.multiply, alpha, less))
    return relax.op.multiply(relax.const(attributes.get("gamma", 1.0507009873554805), dtype), both)


def _mish(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    """x tanh(softplus(x))."""
    from tvm import relax

    del attributes, opset
    (x,) = inputs
    return relax.op.multiply(x, builder.emit(relax.op.tanh(builder.emit(relax.op.nn.softplus(x)))))


def _thresholded_relu(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    """x where it is above the threshold, which NaN is not."""
    from tvm import relax

    del opset
    x, dtype = inputs[0], str(inputs[0].ty.dtype)
    above = builder.emit(relax.op.greater(x, relax.const(attributes.get("alpha", 1.0), dtype)))
    return relax.op.where(above, x, relax.const(0, dtype))


def _log_sum_exp(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    """log(sum(exp(x - m))) + m, m the largest element where that is finite, else 0: an infinity less itself
    is NaN. None where TVM's own conversion serves: without axes to reduce, and of what it refuses."""
    import numpy as np
    from tvm import relax
    from tvm.ir import GenericConst

    x, dtype = inputs[0], str(inputs[0].ty.dtype)
    given = inputs[1] if len(inputs) > 1 else None
    if not dtype.startswith("float") or not (given is None or isinstance(given, GenericConst)):
        return None
    axes = attributes.get("axes") if given is None else given.value.numpy().tolist()
    if not axes and attributes.get("noop_with_empty_axes", 0):
        return None
    axes = [int(axis) for axis in axes] if axes else None

    def emit(operator: Any, *operands: Any) -> Any:
        return builder.emit(operator(*operands))

    largest = builder.emit(relax.op.max(x, axes, True))
    finite = emit(relax.op.less, emit(relax.op.abs, largest), relax.const(np.inf, dtype))
    shift = emit(relax.op.where, finite, largest, relax.const(0, dtype))
    total = builder.emit(relax.op.sum(emit(relax.op.exp, emit(relax.op.subtract, x, shift)), axes, True))
    result = emit(relax.op.add, emit(relax.op.log, total), shift)
    return result if attributes.get("keepdims", 1) else relax.op.squeeze(result, axes)


#: Converters by operator, as :mod:`edgepack.compiler.frontend.onnx.converters` has them.
CONVERTERS = {
    "Celu": _celu,
    "Mish": _mish,
    "PRelu": _prelu,
    "ReduceLogSumExp": _log_sum_exp,
    "Selu": _selu,
    "Shrink": _shrink,
    "Softplus": _softplus,
    "ThresholdedRelu": _thresholded_relu,
}
