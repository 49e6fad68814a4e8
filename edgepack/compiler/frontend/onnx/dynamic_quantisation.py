"""Our own conversion of DynamicQuantizeLinear: TVM's divides by a scale of 0 where all numbers are 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["CONVERTERS"]


def _dynamic_quantize(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    """uint8 of x, whose range is widened to hold 0, its scale, and its zero point. The scale of a tensor of
    zeros is 1, as ONNX Runtime has it."""
    from tvm import relax

    del attributes, opset
    x = inputs[0]
    zero, most = relax.const(0.0, "float32"), relax.const(255.0, "float32")
    highest = builder.emit(relax.op.maximum(zero, relax.op.max(x)))
    lowest = builder.emit(relax.op.minimum(zero, relax.op.min(x)))
    extent = builder.emit(relax.op.subtract(highest, lowest))
    steps = builder.emit(relax.op.divide(extent, most))
    scale = builder.emit(relax.op.where(relax.op.equal(extent, zero), relax.const(1.0, "float32"), steps))
    place = builder.emit(relax.op.subtract(zero, relax.op.divide(lowest, scale)))
    point = builder.emit(relax.op.astype(relax.op.round(relax.op.clip(place, 0, 255)), "uint8"))
    y = builder.emit(relax.op.quantize(x, scale, point, axis=0, out_dtype="uint8"))
    return relax.Tuple([y, scale, point])


#: As those of ``converters.py``.
CONVERTERS: dict[str, Callable[..., Any]] = {"DynamicQuantizeLinear": _dynamic_quantize}
