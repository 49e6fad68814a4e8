"""What a fused group with the anchor ``attention`` computes, as its kernel sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm.tirx import Buffer

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.graph.views import strides_of
from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block, blocks_of

__all__ = ["AttentionForm"]


@dataclass(frozen=True)
class AttentionForm:
    """softmax(steps(scale * query @ key)) @ value, for each position along the batch dimensions.

    Attributes:
        batch: extents of the batch dimensions.
        rows, depth, keys, columns: a matrix of queries is rows x depth, one of keys depth x keys, and one of
            values keys x columns.
        query, key, value, output: where they lie in their buffers, in elements: the offset of the first one,
            the strides of the batch dimensions, then those of the matrix's own two (of keys: keys, depth).
        scale: that the products are multiplied by.
        zeroes_nan: weights that are NaN are 0 instead.
        params: the fused function's parameters.
        operands: those of queries, keys and values; the others are what the steps read.
        scores: the buffer of the products, and ``weighed`` what the softmax reads, some steps later.
        blocks: elementwise blocks by the buffer that they write.
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
    zeroes_nan: bool
    params: tuple[Buffer, ...]
    operands: tuple[Buffer, ...]
    scores: Buffer
    weighed: Buffer
    blocks: Mapping[Buffer, Block]

    @classmethod
    def of(cls, fused: FusedGroup) -> AttentionForm:
        """What the group's anchor says. RuleError where an operator follows it."""
        assert fused.anchor is not None
        a = fused.anchor.attributes
        batch = tuple(int(n) for n in a["batch"])
        rows, depth, keys, columns = (int(a[n]) for n in ("rows", "depth", "keys", "columns"))
        order = [int(i) for i in a["order"]]
        shape = (*batch, rows, columns)
        strides = strides_of([shape[axis] for axis in order])
        *params, result = fused.function.params
        blocks = blocks_of(fused.function)
        # In a part of a group parameters are in the order in which its statements read them.
        operands = tuple(params[i] for i in fused.anchor.operands[:3] if i is not None)
        if len(operands) < 3:
            raise RuleError("an operand that is computed in the group")
        if fused.outputs != 1 or not blocks[-1].target.same_as(result) or not blocks[-1].reductions:
            raise RuleError("something follows the product with the values")
        scores, largest, *_ = (b for b in blocks if b.reductions)
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
            bool(a["zeroes_nan"]),
            tuple(params),
            operands,
            scores.target,
            loads[0].source,
            {b.target: b for b in blocks if not b.reductions},
        )
