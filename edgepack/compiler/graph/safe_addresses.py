"""No kernel reads or writes outside of a tensor, whatever numbers a caller hands in.

The operators' own legalisations bring positions into range in the way that the operator's meaning asks for
(``positions.py``). This pass asks of every function whatever it was made of: a position that depends on data
is proved in range by the function's own expressions, or it is brought there. What other legalisations compute
as positions (those of TVM's samplers) is among it, and what somebody adds tomorrow. After fusion all is
proved once more (:func:`check_addresses`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import IRModule, Range, TensorLoad
from tvm.ir.expr import TensorRegion
from tvm.tirx import BufferStore, PrimFunc

from edgepack.compiler.graph.index_bounds import Bounds, dtype_of

__all__ = ["check_addresses", "safe_addresses"]

Expr = Any


def safe_addresses(module: IRModule) -> IRModule:
    """Brings positions that depend on data into range, unless the function does that already.

    Args:
        module: legalised, of static shapes.
    """
    functions = dict(module.functions.items())
    for gvar, function in functions.items():
        if isinstance(function, PrimFunc) and any(True for _ in _unproved(function)):
            functions[gvar] = _guarded(function)
    return IRModule(functions, attrs=module.attrs)


def check_addresses(name: str, function: PrimFunc) -> None:
    """Raises RuntimeError for a function with a position that depends on data and may be out of range.

    Args:
        name: of the function, for the message.
    """
    for tensor, axis in _unproved(function):
        raise RuntimeError(f"{name}: a position along axis {axis} of {tensor.name} may be out of range")


def _unproved(function: PrimFunc) -> Iterator[tuple[Any, int]]:
    """Tensors and axes whose positions are not known to be in range."""
    bounds = Bounds(function)
    for tensor, indices in bounds.accesses:
        for axis, index in enumerate(indices):
            if bounds.depends_on_data(index) and not _is_in_range(bounds, index, int(tensor.shape[axis])):
                yield tensor, axis


def _is_in_range(bounds: Bounds, index: Expr, extent: int) -> bool:
    low, high = bounds.of(index)
    return low >= 0 and high < extent


def _guarded(function: PrimFunc) -> PrimFunc:
    bounds = Bounds(function)

    def guarded(tensor: Any, indices: Sequence[Expr]) -> list[Expr]:
        return [_guard(bounds, index, int(n)) for index, n in zip(indices, tensor.shape, strict=True)]

    def region(one: TensorRegion) -> TensorRegion:
        places = guarded(one.source, [part.min for part in one.region])
        parts = zip(one.region, places, strict=True)
        ranges = [part if part.min.same_as(at) else Range.from_min_extent(at, 1) for part, at in parts]
        return tirx.BufferRegion(one.source, ranges)

    callbacks = [
        (TensorLoad, lambda x: tirx.BufferLoad(x.source, guarded(x.source, x.indices))),
        (BufferStore, lambda x: BufferStore(x.buffer, x.value, guarded(x.buffer, x.indices))),
        (TensorRegion, region),
    ]
    return function.with_body(tvm_ffi.structural_map(function.body, callbacks))


def _guard(bounds: Bounds, index: Expr, extent: int) -> Expr:
    """The position, brought into range if it depends on data and is not known to be there."""
    if not bounds.depends_on_data(index) or _is_in_range(bounds, index, extent):
        return index
    dtype = dtype_of(index)
    if dtype.startswith("uint"):
        return tirx.Min(index, tirx.const(extent - 1, dtype))
    return tirx.Max(tirx.Min(index, tirx.const(extent - 1, dtype)), tirx.const(0, dtype))
