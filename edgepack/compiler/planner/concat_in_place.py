"""Concatenations without a copy: what is to be concatenated is computed in its place of the whole.

That is possible where each part is computed by a call of its own and read by the concatenation only. Along
the outermost dimension (or with ones before it) the parts lie behind each other. Along the last one the rows
of a part are as far from each other as those of the whole, which its kernel has to heed (``Group.pitch``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from edgepack.compiler.graph.lower import Group
from edgepack.compiler.planner.program import Call, Program, Value
from edgepack.plan.dtypes import DTYPE_BYTES

__all__ = ["join"]


@dataclass(frozen=True)
class _Concatenation:
    """The parts' shapes, in order, are equal but for ``axis``."""

    parts: tuple[tuple[int, ...], ...]
    axis: int
    itemsize: int

    @property
    def outer(self) -> int:
        """Rows that the parts are interleaved by; 1 if they lie behind each other."""
        return prod(self.parts[0][: self.axis])

    def offsets(self) -> list[int]:
        """Bytes from the start of the whole to the first element of each part."""
        sizes = [prod(part[self.axis :]) * self.itemsize for part in self.parts]
        return [sum(sizes[:i]) for i in range(len(sizes))]


def join(program: Program, serves: Callable[[Call, Group], bool]) -> None:
    """Removes the concatenations that need no copy.

    Args:
        program: changed in place.
        serves: chooses the call's kernels as if its group were another; False if that has none.
    """
    uses = Counter(id(v) for call in program.calls for v in call.arguments)
    uses.update(id(v) for v in program.outputs)
    producers = {id(call.results[0]): call for call in program.calls if len(call.results) == 1}
    for call in list(program.calls):
        found = _concatenation(call)
        parts = [producers.get(id(v)) for v in call.arguments]
        if found is None or any(uses[id(v)] != 1 or v.kind != "buffer" for v in call.arguments):
            continue
        made = [part for part in parts if part is not None]
        if len(made) == len(parts) and _pitched(found, made, serves):
            _place(program, call, made, found.offsets())
            del producers[id(call.results[0])]


def _concatenation(call: Call) -> _Concatenation | None:
    if call.group.operators != ("concatenate",) or call.group.outputs != 1:
        return None
    *sources, target = (tuple(int(d) for d in b.shape) for b in call.group.function.params)
    if len(sources) != len(call.arguments):  # the same tensor twice
        return None
    axes = [axis for axis, dim in enumerate(target) if any(source[axis] != dim for source in sources)]
    if len(axes) != 1:
        return None
    dtype = str(call.group.function.params[-1].dtype)
    return _Concatenation(tuple(sources), axes[0], DTYPE_BYTES[dtype])


def _pitched(found: _Concatenation, producers: Sequence[Call], serves: Callable[[Call, Group], bool]) -> bool:
    """Whether all parts can be computed in their places; their kernels are chosen then."""
    if found.outer == 1:
        return True
    pitch = sum(prod(part[found.axis :]) for part in found.parts)
    rows = [prod(part[found.axis :]) for part in found.parts]
    widths = [int(call.group.function.params[-1].shape[-1]) for call in producers]
    if rows != widths:  # reshaped on the way, or not along the last dimension
        return False
    before = [call.group for call in producers]
    if all(serves(call, replace(call.group, pitch=pitch)) for call in producers):
        return True
    for call, group in zip(producers, before, strict=True):
        call.group, call.implementation, call.symbols = group, None, ()
    return False


def _place(program: Program, call: Call, producers: Sequence[Call], offsets: Sequence[int]) -> None:
    (whole,) = call.results
    for producer, offset in zip(producers, offsets, strict=True):
        producer.results = [Value("buffer", whole.index, whole.nbytes, whole.offset + offset)]
    producers[-1].nodes = tuple(sorted({*producers[-1].nodes, *call.nodes}))
    program.calls.remove(call)
