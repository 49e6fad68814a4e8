"""What a group with the anchor ``attention`` computes, as its kernel sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.graph.views import strides_of
from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block, blocks_of

__all__ = ["AttentionForm"]


@dataclass(frozen=True)
class AttentionForm:
    """What is computed: sizes, where the operands lie, and the steps between product and softmax.

    Strides are of the batch dimensions, then of the operand's own two.
    """

    batch: tuple[int, ...]
    rows: int
    depth: int
    keys: int
    columns: int
    query: tuple[int, ...]
    key: tuple[int, ...]
    value: tuple[int, ...]
    output: tuple[int, ...]
    scale: float
    params: tuple[Any, ...]
    scores: Any
    weighed: Any  # what the softmax reads
    blocks: Mapping[Any, Block]

    @classmethod
    def of(cls, group: FusedGroup) -> AttentionForm:
        """What the group's anchor says. RuleError where something follows it."""
        assert group.anchor is not None
        a = group.anchor.attributes
        batch = tuple(int(n) for n in a["batch"])
        rows, depth, keys, columns = (int(a[n]) for n in ("rows", "depth", "keys", "columns"))
        order = [int(i) for i in a["order"]]
        shape = (*batch, rows, columns)
        strides = strides_of([shape[axis] for axis in order])
        *params, result = group.function.params
        blocks = blocks_of(group.function)
        if group.outputs != 1 or not blocks[-1].target.same_as(result) or not blocks[-1].reductions:
            raise RuleError("something follows the product with the values")
        largest = next(b for b in blocks[1:] if b.reductions)
        loads = [x for x in (largest.value.a, largest.value.b) if not x.source.same_as(largest.target)]
        return cls(
            batch,
            rows,
            depth,
            keys,
            columns,
            tuple(a["query"]),
            tuple(a["key"]),
            tuple(a["value"]),
            (0, *(strides[order.index(axis)] for axis in range(len(shape)))),
            float(a["scale"]),
            tuple(params),
            blocks[0].target,
            loads[0].source,
            {b.target: b for b in blocks if not b.reductions},
        )
