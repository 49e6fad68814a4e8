"""Which constants are stored as narrower integers than they are computed with, where flash is short: biases
and shifts of each channel, whose values mostly fit int16 and int8.

A load extends the sign of what it reads, so that it costs nothing; one of 24 bits is two loads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.kernels.cpu.analysis.anchored_group import CONVOLUTIONS
from edgepack.compiler.kernels.narrow_integers import INT24, NARROW
from edgepack.compiler.planner.program import Call, Program

__all__ = ["mark_narrow_constants", "needed_type"]

#: Groups that should have one type for a parameter, or they would have kernels of their own: those of the
#: same operators, depthwise or not.
_Alike = tuple[tuple[str, ...], bool, int]

#: From the narrowest on.
_TYPES = tuple(NARROW)


def mark_narrow_constants(program: Program, *, short: bool) -> None:
    """Sets :attr:`FusedGroup.narrow_params` of all groups of convolutions and products: those numbers of each
    channel that are constants at each call, and fit a narrower type at all calls of like groups.

    Args:
        short: also 24 bits, which take more instructions.
    """
    found: dict[tuple[_Alike, int], str] = {}
    params: dict[str, frozenset[int]] = {}
    for call in program.calls:
        here = frozenset(_candidates(call, program.constants))
        params[call.fused.name] = params.get(call.fused.name, here) & here
    for call in program.calls:
        for param in params[call.fused.name]:
            key = _alike(call.fused), param
            needed = needed_type(program.constants[call.arguments[param].index])
            needed = "int32" if needed == INT24 and not short else needed
            found[key] = max(found.get(key, needed), needed, key=_TYPES.index)
    for call in program.calls:
        types = ((p, found[_alike(call.fused), p]) for p in params[call.fused.name])
        narrow = frozenset((p, dtype) for p, dtype in types if dtype != "int32")
        call.fused = replace(call.fused, narrow_params=narrow)


def _candidates(call: Call, constants: list[Array]) -> Iterator[int]:
    """Parameters of a call that are numbers of int32 for each channel, and no operands of the anchor."""
    anchor = call.fused.anchor
    if anchor is None or anchor.kind not in (*CONVOLUTIONS, "matmul") or call.first is not None:
        return
    for param, value in enumerate(call.arguments):
        if value.kind == "constant" and param not in anchor.operands:
            array = constants[value.index]
            if array.dtype == "int32" and array.size == max(array.shape, default=1) > 1:
                yield param


def _alike(fused: FusedGroup) -> _Alike:
    assert fused.anchor is not None
    return fused.operators, int(fused.anchor.attributes.get("groups", 1)) > 1, len(fused.function.params)


def needed_type(array: Array) -> str:
    """The narrowest type that has all numbers."""
    largest = max(int(array.max()), -1 - int(array.min()))
    return next(dtype for dtype, bits in NARROW.items() if largest < 1 << (bits - 1))
