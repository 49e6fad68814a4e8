"""Concatenation in place: each part is computed where it belongs in the whole, so that nothing is copied.

That is possible where each part is computed by a call of its own and read by the concatenation only. Along
the outermost dimension (or with ones before it) the parts lie behind each other. Along the last one the rows
of a part are as far from each other as those of the whole, which its kernel has to heed: its fused group's
``row_stride``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.planner.program import Call, Program, Value
from edgepack.plan.dtypes import DTYPE_BYTES

__all__ = ["concat_in_place"]


@dataclass(frozen=True)
class _Concatenation:
    """Attributes:
    parts: shapes in order, which are equal but for ``axis``.
    axis: the dimension along which they are concatenated.
    itemsize: bytes of an element.
    """

    parts: tuple[tuple[int, ...], ...]
    axis: int
    itemsize: int

    @property
    def rows(self) -> int:
        """How many rows the parts are interleaved by; 1 if they lie behind each other."""
        return prod(self.parts[0][: self.axis])

    def widths(self) -> list[int]:
        """Elements of one row of each part."""
        return [prod(part[self.axis :]) for part in self.parts]

    def offsets(self) -> list[int]:
        """Bytes from the start of the whole to the first element of each part."""
        widths = self.widths()
        return [sum(widths[:i]) * self.itemsize for i in range(len(widths))]


def concat_in_place(program: Program, select_as: Callable[[Call, FusedGroup], bool]) -> None:
    """Removes the concatenations that need no copy.

    Args:
        program: changed in place.
        select_as: selects the call's kernels as if it had another fused group; False if no rule serves that.
    """
    uses = program.use_counts()
    producers = program.producers()
    for call in list(program.calls):
        found = _concatenation(call)
        if found is None or any(uses[id(v)] != 1 or v.kind != "buffer" for v in call.arguments):
            continue
        parts = [producers[id(v)] for v in call.arguments if id(v) in producers]
        if len(parts) == len(call.arguments) and _select_in_place(found, parts, select_as):
            _place(program, call, parts, found.offsets())
            del producers[id(call.results[0])]


def _concatenation(call: Call) -> _Concatenation | None:
    if call.fused.operators != ("concatenate",) or call.fused.outputs != 1:
        return None
    *sources, target = (tuple(int(d) for d in b.shape) for b in call.fused.function.params)
    if len(sources) != len(call.arguments):  # the same tensor twice
        return None
    axes = [axis for axis, dim in enumerate(target) if any(source[axis] != dim for source in sources)]
    if len(axes) != 1:
        return None
    dtype = str(call.fused.function.params[-1].dtype)
    return _Concatenation(tuple(sources), axes[0], DTYPE_BYTES[dtype])


def _select_in_place(
    found: _Concatenation, producers: Sequence[Call], select_as: Callable[[Call, FusedGroup], bool]
) -> bool:
    """Whether all parts can be computed in their places; their kernels are selected then."""
    if found.rows == 1:
        return True
    widths = [int(call.fused.function.params[-1].shape[-1]) for call in producers]
    if found.widths() != widths:  # reshaped on the way, or not along the last dimension
        return False
    before = [call.fused for call in producers]
    if all(select_as(call, replace(call.fused, row_stride=sum(widths))) for call in producers):
        return True
    for call, fused in zip(producers, before, strict=True):
        call.fused, call.implementation, call.symbols = fused, None, ()
    return False


def _place(program: Program, call: Call, producers: Sequence[Call], offsets: Sequence[int]) -> None:
    """Makes the producers write into the concatenation's result and removes its call."""
    (whole,) = call.results
    for producer, offset in zip(producers, offsets, strict=True):
        producer.results = [Value("buffer", whole.index, whole.nbytes, whole.offset + offset)]
    producers[-1].nodes = tuple(sorted({*producers[-1].nodes, *call.nodes}))
    program.calls.remove(call)
