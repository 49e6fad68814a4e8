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
    "Mish": _mish,
    "ReduceLogSumExp": _log_sum_exp,
    "Softplus": _softplus,
    "ThresholdedRelu": _thresholded_relu,
}
