"""What products by constant matrices make of the values of a trip."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.recurrent_loops.formulas import Formula, constant
from edgepack.compiler.frontend.onnx.recurrent_loops.trip import (
    Found,
    Operator,
    Rows,
    Trip,
    Value,
    is_array,
)
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

from edgepack.compiler.frontend.onnx.recurrent_loops.elementwise import binary

__all__ = ["PRODUCTS", "product"]


def product(trip: Trip, rows: Rows, matrix: NDArray[Any]) -> Formula | None:
    """Rows by a constant matrix; the parts of the rows by their own rows of it."""
    import numpy as np

    if matrix.dtype != np.float32 or matrix.ndim != 2 or matrix.shape[0] != rows.columns:
        return None
    total, start = constant(np.zeros(matrix.shape[1])), 0
    for part in rows.parts:
        total = total.plus(part.product(matrix[start : start + part.size]))
        start += part.size
    return total


def _matmul(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    one, other = operands
    if isinstance(one, Rows) and is_array(other):
        if one.shape[-1:] != (one.columns,) or other.ndim < 2:
            return None
        found = product(trip, one, other.reshape(other.shape[-2:])) if prod(other.shape[:-2]) == 1 else None
        rank = max(len(one.shape), other.ndim) if len(one.shape) > 1 else other.ndim - 1
        leading = one.shape[:-1]
        shape = [*(1,) * (rank - 1 - len(leading)), *leading, other.shape[-1]]
        return None if found is None else [trip.rows(shape, found)]
    if is_array(one) and isinstance(other, Rows) and one.ndim == 2:
        shape = list(other.shape)
        if len(shape) > 1 and (shape[-1] != 1 or shape[-2] != other.columns):
            return None
        found = product(trip, other, one.T)
        shape[-2 if len(shape) > 1 else -1] = one.shape[0]
        return None if found is None else [trip.rows(shape, found)]
    return None


def _gemm(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    import numpy as np

    values = attributes(node)
    one, matrix, added = [*operands, None][:3]
    if not isinstance(one, Rows) or not is_array(matrix) or values.get("transA", 0):
        return None
    if len(one.shape) != 2 or one.shape[1] != one.columns:
        return None
    matrix = matrix.T if values.get("transB", 0) else matrix
    scaled = (matrix * np.float32(values.get("alpha", 1.0))).astype(np.float32)
    found = product(trip, one, scaled)
    if found is None:
        return None
    rows = trip.rows((one.shape[0], matrix.shape[1]), found)
    if len(node.input) < 3 or not node.input[2]:
        return [rows]
    beta = np.asarray(values.get("beta", 1.0), np.float32)
    scaled_bias = binary("Mul", trip, node, [added, beta]) if isinstance(added, Rows) else None
    if is_array(added):
        scaled_bias = [(added * beta).astype(added.dtype)]
    return None if scaled_bias is None or rows is None else binary("Add", trip, node, [rows, scaled_bias[0]])


#: By operator.
PRODUCTS: dict[str, Operator] = {"Gemm": _gemm, "MatMul": _matmul}
