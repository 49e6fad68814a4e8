"""Which constants are stored as narrower integers than they are computed with, where flash is short: biases
and shifts of each channel, whose values mostly fit int16 and int8.

A load extends the sign of what it reads, so that it costs nothing; one of 24 bits is two loads. Of the 32
bits of a multiplier two are known: where the shifts of a layer differ by at most 3, they lie there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.kernels.cpu.analysis.anchored_group import CONVOLUTIONS
from edgepack.compiler.kernels.narrow_integers import INT24, NARROW, least_beside
from edgepack.compiler.planner.program import Call, Program

__all__ = ["mark_narrow_constants", "needed_type"]

#: Groups that should have one type for a parameter, or they would have kernels of their own: those of the
#: same operators, depthwise or not.
_Alike = tuple[tuple[str, ...], bool, int]

#: Two parameters that may share words, and what may be subtracted from the second.
_Words = dict[tuple[int, int], range]

#: From the narrowest on.
_TYPES = tuple(NARROW)

#: Channels of an image below which a convolution of it has a kernel of its own in any case.
_FEW_CHANNELS = 4


def mark_narrow_constants(program: Program, *, short: bool) -> None:
    """Sets :attr:`FusedGroup.narrow_params` of all groups of convolutions and products: those numbers of each
    channel that are constants at each call, and fit a narrower type at all calls of like groups.

    Args:
        short: also 24 bits, and multipliers and shifts in the same words (:attr:`FusedGroup.word_params`),
            which take more instructions.
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
    words = _shared_words(program, params) if short else {}
    for call in program.calls:
        types = ((p, found[_alike(call.fused), p]) for p in params[call.fused.name])
        narrow = frozenset((p, dtype) for p, dtype in types if dtype != "int32")
        shared = words.get(call.fused.name, frozenset())
        call.fused = replace(call.fused, narrow_params=narrow, word_params=shared)


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


def _shared_words(
    program: Program, params: dict[str, frozenset[int]]
) -> dict[str, frozenset[tuple[int, int, int]]]:
    """By name of the group what :attr:`FusedGroup.word_params` is: where all like groups have such words, and
    subtracting the same number in all of them where that is possible."""
    groups: dict[str, _Words] = {}
    alike: dict[tuple[_Alike, bool], dict[str, None]] = {}
    for call in program.calls:
        if name := call.fused.name if params[call.fused.name] else "":
            here = _words(call, program.constants, sorted(params[name]))
            groups[name] = _both(groups[name], here) if name in groups else here
            alike.setdefault((_alike(call.fused), _reads_few_channels(call.fused)), {})[name] = None
    found: dict[str, frozenset[tuple[int, int, int]]] = {}
    for names in alike.values():
        every = [groups[name] for name in names]
        pairs = [pair for pair in every[0] if all(group.get(pair) for group in every)]
        for pair in pairs[:1]:
            common = range(max(g[pair].start for g in every), min(g[pair].stop for g in every))
            found |= {n: frozenset({(*pair, (common or groups[n][pair])[-1])}) for n in names}
    return found


def _words(call: Call, constants: list[Array], params: list[int]) -> _Words:
    arrays = {param: constants[call.arguments[param].index] for param in params}
    return {(p, q): least_beside(arrays[p], arrays[q]) for p in params for q in params if p != q}


def _both(one: _Words, other: _Words) -> _Words:
    return {
        pair: range(max(a.start, other[pair].start), min(a.stop, other[pair].stop)) for pair, a in one.items()
    }


def _reads_few_channels(fused: FusedGroup) -> bool:
    """Whether the anchor's image has so few channels that its kernel is like no other one."""
    assert fused.anchor is not None
    image = fused.anchor.operands[0]
    return image is not None and int(fused.function.params[image].shape[-1]) < _FEW_CHANNELS


def needed_type(array: Array) -> str:
    """The narrowest type that has all numbers."""
    largest = max(int(array.max()), -1 - int(array.min()))
    return next(dtype for dtype, bits in NARROW.items() if largest < 1 << (bits - 1))
