"""Read a fused ``PrimFunc`` as a list of blocks: each writes one buffer element from an expression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlockRealize

from edgepack.compiler.graph.fused_group import TABLE
from edgepack.compiler.kernels.contract import RuleError

__all__ = ["Block", "blocks_of", "extent", "read_by"]


def extent(value: Any) -> int:
    """A static dimension or loop extent."""
    return int(value)


@dataclass(frozen=True)
class Block:
    """``target[indices] = value`` over iteration variables.

    Attributes:
        name: the block's name (``conv2d_nhwc``).
        iters: iteration variables, in order.
        extents: their extents.
        reductions: those of ``iters`` that are reduced over.
        target: the buffer that is written, and ``indices`` where.
        value: the expression; in a reduction it loads the target.
        init: the initial value of a reduction, or None.
        table: (buffer, elements) of the constant in which it looks positions up, where they are known.
    """

    name: str
    iters: tuple[Any, ...]
    extents: tuple[int, ...]
    reductions: tuple[Any, ...]
    target: Any
    indices: tuple[Any, ...]
    value: Any
    init: Any
    table: tuple[Any, tuple[int, ...]] | None = None


def blocks_of(function: Any) -> list[Block]:
    """The blocks in the order in which they run. Raises RuleError for a function of another form."""
    found: list[Block] = []
    _walk(function.body, found)
    return found


def _walk(statement: Any, found: list[Block]) -> None:
    if isinstance(statement, tirx.SeqStmt):
        for part in statement.seq:
            _walk(part, found)
    elif isinstance(statement, tirx.For):
        _walk(statement.body, found)
    elif isinstance(statement, SBlockRealize):
        block = statement.block
        if block.name_hint == "root" and not block.iter_vars:
            _walk(block.body, found)
        else:
            found.append(_read(block))
    else:
        raise RuleError(f"a {type(statement).__name__} outside of a block")


def _read(block: Any) -> Block:
    store = block.body
    if not isinstance(store, tirx.BufferStore):
        raise RuleError(f"block {block.name_hint!r} is more than one store")
    reductions = tuple(iv.var for iv in block.iter_vars if iv.iter_type == tirx.IterVar.CommReduce)
    init = block.init.value if isinstance(block.init, tirx.BufferStore) else None
    return Block(
        block.name_hint,
        tuple(iv.var for iv in block.iter_vars),
        tuple(extent(iv.dom.extent) for iv in block.iter_vars),
        reductions,
        store.buffer,
        tuple(store.indices),
        store.value,
        init,
        _table(block, store.value),
    )


def _table(block: Any, value: Any) -> tuple[Any, tuple[int, ...]] | None:
    """The table of a block that is annotated with its elements: what the positions of its load read."""
    if TABLE not in block.annotations or not isinstance(value, TensorLoad):
        return None
    found = {buffer for i in value.indices for buffer in read_by(i)}
    return (found.pop(), tuple(int(n) for n in block.annotations[TABLE])) if len(found) == 1 else None


def read_by(x: Any) -> set[Any]:
    """The buffers that an expression or a statement reads."""
    found: set[Any] = set()
    tvm_ffi.structural_walk(x, (TensorLoad, lambda load: found.add(load.source)))
    return found
