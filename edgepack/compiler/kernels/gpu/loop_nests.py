"""A fused function as a list of nests: what one kernel computes of it.

A nest is a reduction with the elementwise blocks behind it, or elementwise blocks alone. Blocks that are
cheap, or read once, are computed where they are read; the rest is a tensor in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm_ffi
from tvm.ir import TensorLoad
from tvm.tirx import Buffer, Var

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block, blocks_of
from edgepack.compiler.kernels.expressions.nodes import name_of, nodes_in
from edgepack.compiler.kernels.expressions.operations import Kind

__all__ = ["LoopNest", "LoopNests", "expanded", "find_loop_nests", "substituted"]

#: An elementwise expression of at most this many tensors read, and without calls, is computed again for each
#: reader.
CHEAP_READS = 2


@dataclass(frozen=True)
class LoopNest:
    """What one kernel computes.

    Attributes:
        result: the block whose values it stores.
        reduction: the reduction behind which it stands, with the same positions; None for none.
    """

    result: Block
    reduction: Block | None = None

    def is_temp(self, temps: Collection[Buffer]) -> bool:
        """Whether its result, one of ``temps``, can be float16 in memory: nothing that is reduced."""
        buffer = self.result.target
        return buffer in temps and self.reduction is None and str(buffer.dtype) == "float32"

    @property
    def spatial(self) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """The variables of the result's positions, and their extents."""
        pairs = [
            (v, n)
            for v, n in zip(self.result.iters, self.result.extents, strict=True)
            if v not in self.result.reductions
        ]
        return tuple(v for v, _ in pairs), tuple(n for _, n in pairs)


@dataclass(frozen=True)
class LoopNests:
    """A fused function's nests, in order.

    Attributes:
        inlined: blocks that are computed where they are read, by the buffer that they would write.
        temps: buffers between nests.
    """

    nests: tuple[LoopNest, ...]
    inlined: Mapping[Buffer, Block]
    temps: tuple[Buffer, ...]


def find_loop_nests(fused: FusedGroup) -> LoopNests:
    """The nests of a fused group. RuleError for a function of another form than blocks of one store."""
    return _Finder(fused).find()


def expanded(x: Any, inlined: Mapping[Buffer, Block]) -> Any:
    """An expression with the blocks that are computed where they are read."""

    def replaced(load: Any) -> Any:
        block = inlined.get(load.source)
        if block is None:
            return load
        inner = substituted(block.value, dict(zip(block.iters, load.indices, strict=True)))
        return expanded(inner, inlined)

    return tvm_ffi.structural_map(x, (TensorLoad, replaced))


def substituted(x: Any, mapped: Mapping[Any, Any]) -> Any:
    """An expression with other expressions for some variables."""
    return tvm_ffi.structural_map(x, (Var, lambda v: mapped.get(v, v)))


class _Finder:
    def __init__(self, fused: FusedGroup) -> None:
        self.blocks = blocks_of(fused.function)
        params = list(fused.function.params)
        self.outputs = params[len(params) - fused.outputs :]
        self.reads = [_reads(block) for block in self.blocks]
        self.inlined: dict[Buffer, Block] = {}
        targets = [block.target for block in self.blocks]
        if len(set(targets)) != len(targets):
            raise RuleError("two blocks write one tensor")

    def find(self) -> LoopNests:
        for block in self.blocks:
            if self._is_inlined(block):
                self.inlined[block.target] = block
        roots = [block for block in self.blocks if block.target not in self.inlined]
        merged = {r.target: d for r in roots if (d := self._tail(r, roots)) is not None}
        behind: dict[Buffer, Block] = {}
        for reduction in roots:
            tail = merged.get(reduction.target)
            if tail is not None and tail.target not in behind:
                behind[tail.target] = reduction
        inside = {block.target for block in behind.values()}
        nests = tuple(LoopNest(b, self._reduction_of(b, behind)) for b in roots if b.target not in inside)
        temps = tuple(n.result.target for n in nests if n.result.target not in self.outputs)
        return LoopNests(nests, self.inlined, temps)

    @staticmethod
    def _reduction_of(block: Block, behind: Mapping[Buffer, Block]) -> Block | None:
        return block if block.reductions else behind.get(block.target)

    def _is_inlined(self, block: Block) -> bool:
        if block.reductions or block.target in self.outputs or not _is_identity(block.indices, block):
            return False
        own = _reads(block)
        if not _calls(block) and len(own) <= CHEAP_READS:
            return True
        readers = [
            (reader, [load for load in reads if load.source == block.target])
            for reader, reads in zip(self.blocks, self.reads, strict=True)
            if any(load.source == block.target for load in reads)
        ]
        if len(readers) != 1:
            return False
        reader, loads = readers[0]
        alike = all(tvm_ffi.structural_equal(load, loads[0], map_free_vars=False) for load in loads)
        return alike and prod(reader.extents) <= prod(block.extents)

    def _tail(self, reduction: Block, roots: list[Block]) -> Block | None:
        """The one block that reads a reduction, where it does so at its own position."""
        if not reduction.reductions or reduction.target in self.outputs:
            return None
        readers = [root for root in roots if self._reaches(root, reduction.target)]
        if len(readers) != 1 or readers[0].reductions:
            return None
        spatial = LoopNest(reduction).spatial
        if not _is_identity(reduction.indices, reduction, spatial[0]):
            return None
        tail = readers[0]
        same = spatial[1] == tail.extents and self._reads_in_place(tail, reduction.target)
        return tail if same else None

    def _reaches(self, block: Block, target: Buffer) -> bool:
        """Whether a block reads a buffer, itself or by what is inlined into it."""
        return any(
            load.source == target
            or (load.source in self.inlined and self._reaches(self.inlined[load.source], target))
            for load in _reads(block)
        )

    def _reads_in_place(self, block: Block, target: Buffer) -> bool:
        for load in _reads(block):
            inner = self.inlined.get(load.source)
            if load.source == target or (inner is not None and self._reaches(inner, target)):
                if not _is_identity(tuple(load.indices), block):
                    return False
                if inner is not None and not self._reads_in_place(inner, target):
                    return False
        return True


def _reads(block: Block) -> list[Any]:
    """The loads of a block but for that of a reduction's own target."""
    found: list[Any] = []
    tvm_ffi.structural_walk(block.value, (TensorLoad, found.append))
    return [load for load in found if load.source != block.target]


def _calls(block: Block) -> bool:
    """Whether a block calls elementary functions."""
    return any(node.operation.kind is Kind.FUNCTION for node in nodes_in(block.value))


def _is_identity(indices: tuple[Any, ...], block: Block, spatial: tuple[Any, ...] | None = None) -> bool:
    """Whether positions are a block's own variables, in order; 0 along a dimension of one."""
    variables = block.iters if spatial is None else spatial
    if len(indices) != len(variables):
        return False
    sizes = dict(zip(block.iters, block.extents, strict=True))
    return all(
        at.same_as(v) or (sizes[v] == 1 and name_of(at) == "integer" and int(at.value) == 0)
        for at, v in zip(indices, variables, strict=True)
    )
