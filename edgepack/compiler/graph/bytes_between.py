"""Tensors of bytes stay such between kernels: what widens them is computed where it is read.

TVM fuses all elementwise operators behind a convolution with it. One that widens bytes for an addition would
make the convolution write four times as many of them. It fuses what a reduction reads with the reduction, but
not what is marked as not to be fused with a convolution: a sum of bytes is a kernel of its own, or the
numbers that are added before it would lie in memory as widened ones.
"""

from __future__ import annotations

from tvm.ir import IRModule
from tvm.tirx import PrimFunc

from edgepack.compiler.graph.integer_operands import BYTES
from edgepack.plan.dtypes import DTYPE_BYTES

__all__ = ["bytes_between"]

#: TVM's pattern of what is fused with what reads it, and not with a convolution before it.
INJECTIVE = 2
#: That of reductions, and of what is never fused.
REDUCTION, OPAQUE = 3, 8


def bytes_between(module: IRModule) -> IRModule:
    """Has operators that widen bytes fused with those that read what they give, and sums of bytes with none.

    Args:
        module: legalised, with TVM's operator patterns annotated (``AnnotateTIROpPattern``).
    """
    functions = dict(module.functions.items())
    for gvar, function in functions.items():
        if isinstance(function, PrimFunc) and _widens(function):
            functions[gvar] = function.with_attr("op_pattern", INJECTIVE)
        elif isinstance(function, PrimFunc) and _reduces(function):
            functions[gvar] = function.with_attr("op_pattern", OPAQUE)
    return IRModule(functions, attrs=module.attrs)


def _reduces(function: PrimFunc) -> bool:
    """Whether it is a reduction of bytes to wider numbers."""
    pattern = int((function.attrs or {}).get("op_pattern", INJECTIVE))
    dtypes = [str(buffer.dtype) for buffer in function.params]
    return pattern == REDUCTION and dtypes[0] in BYTES and DTYPE_BYTES[dtypes[-1]] > 1


def _widens(function: PrimFunc) -> bool:
    """Whether it computes each number of a wider type from a byte."""
    dtypes = [str(buffer.dtype) for buffer in function.params]
    elementwise = int((function.attrs or {}).get("op_pattern", INJECTIVE)) < INJECTIVE
    return elementwise and len(dtypes) == 2 and dtypes[0] in BYTES and DTYPE_BYTES[dtypes[1]] > 1
