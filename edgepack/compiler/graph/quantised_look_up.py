"""Tables between quantised tensors that are kept as other bytes than the model's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from edgepack.compiler.graph.byte_tables import look_up
from edgepack.compiler.graph.quantised_values import Integers, Scaled
from edgepack.compiler.graph.rewrite import (
    Array,
    Rewriter,
    dtype_of,
    is_constant,
    numpy_of,
    op_name,
)

__all__ = ["looked_up", "requantised"]


def looked_up(
    rewriter: Rewriter, call: relax.Call, x: Integers, readers: Sequence[relax.Expr]
) -> Integers | None:
    """The quantised tensor that a table makes of another one; None where that is not kept as bytes, or what
    reads the new one knows it by different scales.

    Args:
        call: a look-up (:func:`edgepack.compiler.graph.byte_tables.is_look_up`).
        readers: of the call's value.
    """
    stored, found = dtype_of(x.expr), _scale_and_zero(readers)
    if stored == "int16" or found is None:
        return None
    table, (scale, zero) = numpy_of(call.args[0]), found
    model, kept, made = np.iinfo(x.dtype), np.iinfo(stored), np.iinfo(table.dtype)
    bits = np.arange(256).astype(np.uint8).view(stored).astype(np.int64)
    numbers = np.clip(bits + x.zero - x.offset, model.min, model.max)
    chosen = table[numbers & 255].astype(np.int64)
    offset = zero - int(made.min) + int(kept.min)
    expr = rewriter.emit(look_up((chosen - zero + offset).astype(stored), x.expr))
    limits = int(table.min()) - zero, int(table.max()) - zero
    return Integers(expr, scale, zero, str(table.dtype), limits, offset)


def requantised(rewriter: Rewriter, x: Scaled, step: Array, model: tuple[int, str]) -> Integers:
    """A quantised tensor of bytes by another scale, as a table.

    Args:
        step: the other scale.
        model: its zero point, and the type of the model's tensor.
    """
    (zero, dtype), stored = model, dtype_of(x.expr)
    made, kept = np.iinfo(dtype), np.iinfo(stored)
    bits = np.arange(256).astype(np.uint8).view(stored).astype(np.int64)
    values = np.clip(bits - x.offset, *x.limits).astype(np.float32) * x.scale.astype(np.float32).reshape(())
    chosen = np.clip(np.rint(values / step), int(made.min) - zero, int(made.max) - zero).astype(np.int64)
    offset = zero - int(made.min) + int(kept.min)
    expr = rewriter.emit(look_up((chosen + offset).astype(stored), x.expr))
    return Integers(expr, step, zero, dtype, (int(chosen.min()), int(chosen.max())), offset)


def _scale_and_zero(readers: Sequence[relax.Expr]) -> tuple[Array, int] | None:
    """By what all readers of a quantised tensor dequantise it."""
    found: set[tuple[float, int]] = set()
    for reader in readers:
        if op_name(reader) != "relax.dequantize" or not all(map(is_constant, reader.args[1:])):
            return None
        scale, zero = (numpy_of(arg) for arg in reader.args[1:])
        if scale.size != 1 or zero.size != 1 or scale.dtype != np.float32:
            return None
        found.add((float(scale.reshape(())), int(zero.reshape(()))))
    if len(found) != 1:
        return None
    step, shift = found.pop()
    return np.array(step, np.float32), shift
