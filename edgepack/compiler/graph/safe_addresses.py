"""No kernel reads or writes outside of a tensor, whatever numbers a caller hands in.

The operators' own legalisations bring positions into range in the way that the operator's meaning asks for
(``positions.py``). This pass asks of every function whatever it was made of: a position that depends on data
is proved in range by the function's own expressions, or it is brought there. What other legalisations compute
as positions (those of TVM's samplers) is among it, and what somebody adds tomorrow. After fusion that is
proved once more (:func:`check_addresses`). A position that no data decide is proved, or the model refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import tvm_ffi
from tvm import tirx
from tvm.ir import IRModule, Range, TensorLoad
from tvm.ir.expr import TensorRegion
from tvm.tirx import BufferStore, PrimFunc

from edgepack.compiler.graph.index_bounds import Bounds, dtype_of
from edgepack.compiler.graph.static_positions import wild_access
from edgepack.errors import ModelError

__all__ = ["check_addresses", "safe_addresses"]

Expr = Any


def safe_addresses(module: IRModule) -> IRModule:
    """Brings positions that depend on data into range, unless the function does that already.

    Args:
        module: legalised, of static shapes.

    Raises:
        ModelError: an operator reads or writes outside of a tensor, whatever the data are.
    """
    functions = dict(module.functions.items())
    for gvar, function in functions.items():
        if not isinstance(function, PrimFunc):
            continue
        bounds = Bounds(function)
        wild = wild_access(function, bounds)
        if wild is not None:
            _refuse(gvar.name_hint, *wild)
        if any(True for _ in _unproved(bounds)):
            functions[gvar] = _guarded(function, bounds)
    return IRModule(functions, attrs=module.attrs)


def _refuse(name: str, tensor: Any, axis: int) -> NoReturn:
    shape = " x ".join(str(int(n)) for n in tensor.shape)
    raise ModelError(
        f"The operator {name.rstrip('0123456789')} would read or write outside of a tensor of {shape}, along "
        f"axis {axis}: shapes or widths of the model do not fit each other.",
        hint="Run the model with onnxruntime, which says of which node.",
    )


def check_addresses(name: str, function: PrimFunc) -> None:
    """Raises RuntimeError for a function with a position that depends on data and may be out of range.

    Args:
        name: of the function, for the message.
    """
    for tensor, axis in _unproved(Bounds(function)):
        raise RuntimeError(f"{name}: a position along axis {axis} of {tensor.name} may be out of range")


def _unproved(bounds: Bounds) -> Iterator[tuple[Any, int]]:
    """Tensors and axes of a function whose positions depend on data, and are not known to be in range."""
    for tensor, indices in bounds.accesses:
        for axis, index in enumerate(indices):
            if bounds.depends_on_data(index) and not _is_in_range(bounds, index, int(tensor.shape[axis])):
                yield tensor, axis


def _is_in_range(bounds: Bounds, index: Expr, extent: int) -> bool:
    low, high = bounds.of(index)
    return low >= 0 and high < extent


def _guarded(function: PrimFunc, bounds: Bounds) -> PrimFunc:
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
