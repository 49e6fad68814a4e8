"""Rows of elements: how whole vectors cover them, and what becomes of conditions on positions inside of them.

A condition that is not known while generating becomes a branch around the row, or splits the row in two.

Code is generated on trial: where :class:`NeedsBranch` or :class:`NeedsSplit` is raised from inside, what was
emitted is dropped and emitted again on both sides of the condition, where it is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import index
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.cpu.emit.vectors import NeedsBranch, NeedsSplit

__all__ = [
    "KnownConditions",
    "VectorCover",
    "cover",
    "emit_branches",
    "emit_pieces",
    "writes_its_own_position",
]

#: Pieces of one row.
MOST_PIECES = 32

#: Branches around one row.
MOST_BRANCHES = 64

#: For positions, whether they are at most 0 here.
KnownConditions = dict[Affine, bool]


def writes_its_own_position(block: Block) -> bool:
    """Whether the block stores at its spatial iteration variables, in order."""
    spatial = [v for v in block.iters if not any(v.same_as(r) for r in block.reductions)]
    return len(spatial) == len(block.indices) and all(
        i.same_as(v) for i, v in zip(block.indices, spatial, strict=True)
    )


@dataclass(frozen=True)
class VectorCover:
    """How vectors cover a row of elements.

    Attributes:
        lanes: elements of a vector.
        whole: elements that whole vectors cover, from the row's begin on.
        overlapping: begin of a last vector that overlaps the one before; None where nothing is left over.
    """

    lanes: int
    whole: int
    overlapping: int | None


def cover(extent: int, lanes: int) -> VectorCover:
    """Covers a row of ``extent`` elements by vectors of at most ``lanes``, a power of two.

    A row shorter than a vector takes the widest power of two that it holds.
    """
    while lanes > extent:
        lanes //= 2
    rest = extent % lanes
    return VectorCover(lanes, extent - rest, extent - lanes if rest else None)


def emit_branches(e: Emitter, body: Callable[[KnownConditions], None], variables: IndexVariables) -> None:
    """Emits ``body(conditions)``, inside of branches on the conditions for which it raises NeedsBranch.

    Raises:
        RuleError: for more than 64 of them.
    """
    _Brancher(e, body, variables).emit({})


class _Brancher:
    """Emits a body inside of as many branches as it needs, and counts them."""

    def __init__(
        self, e: Emitter, body: Callable[[KnownConditions], None], variables: IndexVariables
    ) -> None:
        self.e, self.body, self.variables = e, body, variables
        self.branches = 0

    def emit(self, conditions: KnownConditions) -> None:
        e = self.e
        self.branches += 1
        if self.branches > MOST_BRANCHES:
            raise RuleError("too many branches")
        depth = len(e.blocks)
        try:
            statement = e.block(lambda: self.body(conditions))
        except NeedsBranch as branch:
            del e.blocks[depth:]
            position = branch.position
            e.branch(
                self.variables.scalar(position) <= index(0),
                lambda: self.emit({**conditions, position: True}),
                lambda: self.emit({**conditions, position: False}),
            )
        else:
            e.add(statement)


def emit_pieces(e: Emitter, begin: int, end: int, body: Callable[[int, int], None]) -> None:
    """Emits ``body(begin, end)`` for a row of elements, or for pieces of it where it raises NeedsSplit.

    Raises:
        RuleError: for more than 32 pieces, or a split outside of the row.
    """
    pieces = [(begin, end)]
    done = 0
    while done < len(pieces):
        if len(pieces) > MOST_PIECES:
            raise RuleError("too many pieces")
        low, high = pieces[done]
        depth = len(e.blocks)
        try:
            statement = e.block(lambda low=low, high=high: body(low, high))  # type: ignore[misc]
        except NeedsSplit as split:
            del e.blocks[depth:]
            if not low < split.at < high:
                raise RuleError("a cut outside of the row") from None
            pieces[done : done + 1] = [(low, split.at), (split.at, high)]
        else:
            e.add(statement)
            done += 1
