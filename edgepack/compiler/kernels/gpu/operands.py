"""What the operands of a matrix product are in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import sym

from edgepack.compiler.kernels.contract import Array, Packing
from edgepack.compiler.kernels.expressions.nodes import name_of, operands_of, operation_of
from edgepack.compiler.kernels.expressions.operations import Kind
from edgepack.compiler.kernels.gpu.kernel import Kernel
from edgepack.compiler.kernels.gpu.matrix_product import MatrixProduct, variables_of

__all__ = ["contiguous", "loaded", "packed_columns"]


def _is_multiple(x: Any, of: int) -> bool:
    """Whether a position is known to be a multiple of a number, whatever its variables are."""
    known = sym.Analyzer().modular_set(x)
    return int(known.coeff) % of == 0 and int(known.base) % of == 0


def loaded(operand: Any) -> tuple[Any, Sequence[Any]] | None:
    """The tensor that a operand reads, and the conditions under which it is not 0; None for another
    expression."""
    if name_of(operand) == "load":
        return operand, ()
    if operation_of(operand).kind is not Kind.SELECT:
        return None
    parts = operands_of(operand)
    inner = loaded(parts[1])
    zero = name_of(parts[2]) == "float" and float(parts[2].value) == 0.0
    return (inner[0], (parts[0], *inner[1])) if inner is not None and zero else None


def contiguous(
    product: MatrixProduct, kernel: Kernel, number: int, along: str, *, count: int, dtype: str
) -> bool:
    """Whether ``count`` neighbours of a operand, from a multiple of that on, lie together in memory.

    Args:
        number: 0 for the first operand, 1 for the second.
        along: "k", "m" or "n": along which they are neighbours.
        dtype: of the tensor's elements in memory.
    """
    found = loaded(product.operands[number])
    if found is None or not product.order[along]:
        return False
    load, condition = found
    innermost, extent = product.order[along][-1]
    in_memory = kernel.stored(load.source) == dtype and load.source not in kernel.evaluator.inlined
    if not in_memory or not len(load.indices):
        return False
    others = set().union(*(variables_of(x) for x in (*load.indices[:-1], *condition)))
    parts = sym.detect_linear_equation(load.indices[-1], [innermost])
    if innermost in others or len(parts) != 2 or name_of(parts[0]) != "integer":
        return False
    whole = extent % count == 0 and int(load.source.shape[-1]) % count == 0
    return int(parts[0]) == 1 and whole and _is_multiple(parts[1], count)


def packed_columns(product: MatrixProduct, kernel: Kernel, dtype: str) -> Packing | None:
    """The second operand column by column, its terms in order, for each member of the batch; None unless it
    is a constant of this dtype in memory, with a dimension for each variable, or for both parts of one."""
    operand = product.operands[1]
    if name_of(operand) != "load" or kernel.stored(operand.source) != dtype:
        return None
    param = kernel.constant(operand.source)
    wanted = [variable for name in "bnk" for variable, _ in product.order[name]]
    axes: dict[Any, int] = {}
    shape: list[int] = []
    for extent, index in zip(operand.source.shape, operand.indices, strict=True):
        parts = _dimensions(index, int(extent), product)
        if parts is None or any(variable in axes for variable, _ in parts):
            return None
        axes.update({variable: len(shape) + i for i, (variable, _) in enumerate(parts)})
        shape += [size for _, size in parts]
    if param is None or set(axes) != set(wanted):
        return None
    order = tuple(axes[variable] for variable in wanted)

    def transform(array: Array) -> Array:
        return np.ascontiguousarray(array.reshape(shape).transpose(order)).astype(dtype)

    return Packing(param, f"{dtype} columns {shape} {order}", transform)


def _dimensions(index: Any, extent: int, product: MatrixProduct) -> list[tuple[Any, int]] | None:
    """The variables that together are the position along a dimension, in order, with their extents; None
    where it is another expression."""
    if extent == 1:
        return []
    if name_of(index) == "variable":
        return [(index, extent)]
    for split in product.splits.values():
        if split.groups * split.size == extent and sym.Analyzer().can_prove_equal(index, split.whole):
            return split.pairs
    return None
