"""What a task of the attention kernel works on: a block of queries of one head, and the kernel's buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm.tirx import Buffer

from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables
from edgepack.compiler.kernels.cpu.emit.indices import Index

__all__ = ["AttentionBuffers", "Head", "QueryBlock"]


@dataclass(frozen=True)
class AttentionBuffers:
    """The kernel's flat buffers.

    Attributes:
        params: by the fused function's buffer.
        query, key, value: the first three of them.
        output: what the kernel writes.
        panel: scratch, depth x block: the block's queries, transposed.
        scores: scratch, keys x block: scores and then exponentials, transposed.
        sums: scratch, block: reciprocals of the sums of exponentials.
    """

    params: Mapping[Buffer, Buffer]
    query: Buffer
    key: Buffer
    value: Buffer
    output: Buffer
    panel: Buffer
    scores: Buffer
    sums: Buffer


@dataclass(frozen=True)
class Head:
    """One matrix of queries with its keys and values.

    Attributes:
        query, key, value, output: where its operands begin, in elements of their buffers.
        variables: index variables, among them those of ``batch``.
        batch: its position along the batch dimensions.
    """

    query: Index
    key: Index
    value: Index
    output: Index
    variables: IndexVariables
    batch: tuple[Affine, ...]


@dataclass(frozen=True)
class QueryBlock:
    """``size`` queries of a head from ``begin`` on."""

    head: Head
    begin: Index
    size: int
