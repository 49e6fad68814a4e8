"""How rows are covered by vectors, and how what a generator cannot decide becomes branches and pieces."""

from __future__ import annotations

from collections.abc import Callable

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter, index
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.cpu.emit.vectors import NeedsBranch, NeedsSplit

__all__ = ["attempt", "cover", "in_pieces", "writes_its_own_position"]

#: Pieces of one row.
MOST_CUTS = 32

#: Branches around one row.
MOST_BRANCHES = 64


def writes_its_own_position(block: Block) -> bool:
    """Whether the block stores at its spatial iteration variables, in order."""
    spatial = [v for v in block.iters if not any(v.same_as(r) for r in block.reductions)]
    return len(spatial) == len(block.indices) and all(
        i.same_as(v) for i, v in zip(block.indices, spatial, strict=True)
    )


def cover(extent: int, lanes: int) -> tuple[int, int, int | None]:
    """How vectors cover a row: (lanes, end of the whole vectors, begin of an overlapping last one or None).

    A row shorter than a vector takes the widest power of two that it holds.
    """
    while lanes > extent:
        lanes //= 2
    rest = extent % lanes
    return lanes, extent - rest, extent - lanes if rest else None


def attempt(e: Emitter, body: Callable[[dict[Affine, bool]], None], variables: IndexVariables) -> None:
    """Emits ``body(facts)``, inside of branches for the conditions that need one."""
    _attempt(e, body, variables, {}, [0])


def _attempt(
    e: Emitter,
    body: Callable[[dict[Affine, bool]], None],
    variables: IndexVariables,
    facts: dict[Affine, bool],
    branches: list[int],
) -> None:
    branches[0] += 1
    if branches[0] > MOST_BRANCHES:
        raise RuleError("too many branches")
    depth = len(e.blocks)
    try:
        statement = e.block(lambda: body(facts))
    except NeedsBranch as needed:
        del e.blocks[depth:]
        position = needed.position
        e.branch(
            variables.scalar(position) <= index(0),
            lambda: _attempt(e, body, variables, {**facts, position: True}, branches),
            lambda: _attempt(e, body, variables, {**facts, position: False}, branches),
        )
    else:
        e.add(statement)


def in_pieces(e: Emitter, begin: int, end: int, body: Callable[[int, int], None]) -> None:
    """``body(begin, end)`` of the pieces of a row; NeedsSplit from inside cuts them."""
    pieces = [(begin, end)]
    done = 0
    while done < len(pieces):
        if len(pieces) > MOST_CUTS:
            raise RuleError("too many pieces")
        low, high = pieces[done]
        depth = len(e.blocks)
        try:
            statement = e.block(lambda low=low, high=high: body(low, high))  # type: ignore[misc]
        except NeedsSplit as split:
            del e.blocks[depth:]
            if not low < split.at < high:
                raise RuleError("a split outside of the row") from None
            pieces[done : done + 1] = [(low, split.at), (split.at, high)]
        else:
            e.add(statement)
            done += 1
