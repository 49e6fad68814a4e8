"""How long kernels take, estimated: to choose between plans, and to say which kernels are slow.

The unit is a cycle of one core, and the ratios are what counts: no clock is known when compiling. A kernel
takes the longer of computing and moving its bytes. The rates were measured
(docs/internals/kernels.md, "Estimates").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm_ffi
from tvm.ir import TensorLoad
from tvm.tirx import PrimFunc

from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block, blocks_of
from edgepack.compiler.kernels.expressions.nodes import Node, name_of
from edgepack.compiler.kernels.expressions.visitor import Visitor
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget

__all__ = [
    "EFFICIENCY",
    "STEP_CYCLES",
    "Work",
    "bytes_moved",
    "estimated_cycles",
    "least_cycles",
    "likely_cycles",
    "slow_cycles",
    "work_of",
]

#: What part of the arithmetic units a kernel keeps busy that is not slow.
EFFICIENCY = 0.5

#: Operations in a cycle of a slow kernel, and of one that reduces operands which do not fit the L2 cache.
SLOW_RATE, SLOW_RATE_OUTSIDE = 1.0, 0.1

#: Cycles of a step beside its tasks.
STEP_CYCLES = 500

#: Bytes that one core reads or writes in a cycle: in its own caches, and behind them.
CACHE_BYTES, MEMORY_BYTES = 16, 4


@dataclass(frozen=True)
class Work:
    """What a function computes and moves at least.

    Attributes:
        operations: on numbers, a multiply-add counted as one, an elementary function as 20.
        nbytes: of parameters and outputs, each once, and no more than elements are read: of a large table a
            lookup moves its rows.
        reduces: whether it sums, or the like.
    """

    operations: int
    nbytes: int
    reduces: bool


def work_of(function: PrimFunc) -> Work:
    """The work of a fused function, each element of each block computed once."""
    try:
        blocks = blocks_of(function)
    except RuleError:  # another form (argmax, sort, scatter): some operations for each element
        nbytes = sum(map(_size, function.params))
        return Work(nbytes // 2, nbytes, False)
    operations = sum(prod(b.extents) * max(1, _Operations().visit(b.value, None)) for b in blocks)
    return Work(operations, _moved(function, blocks), any(b.reductions for b in blocks))


def bytes_moved(function: PrimFunc) -> int:
    """Bytes of parameters and outputs that a fused function moves at least, see :class:`Work`."""
    try:
        return _moved(function, blocks_of(function))
    except RuleError:
        return sum(map(_size, function.params))


def _size(buffer: Any) -> int:
    return prod(int(d) for d in buffer.shape) * DTYPE_BYTES[str(buffer.dtype)]


def _moved(function: PrimFunc, blocks: Sequence[Block]) -> int:
    read: dict[Any, int] = defaultdict(int)
    written = {block.target for block in blocks}
    for block in blocks:
        times = prod(block.extents)

        def count(load: TensorLoad, times: int = times) -> None:
            read[load.source] += times * DTYPE_BYTES[str(load.source.dtype)]

        tvm_ffi.structural_walk(block.value, (TensorLoad, count))
    return sum(_size(b) if b in written or b not in read else min(_size(b), read[b]) for b in function.params)


def least_cycles(work: Work, target: CpuTarget) -> float:
    """The roofline: no kernel on one core does the work in less."""
    return STEP_CYCLES + max(work.operations / target.operations_per_cycle, _moving(work, target))


def estimated_cycles(implementation: Implementation, work: Work, target: CpuTarget) -> float:
    """What the kernels take on one core."""
    steps = STEP_CYCLES * (len(implementation.stages) - 1)
    if implementation.slow:
        return steps + slow_cycles(work, target)
    return steps + likely_cycles(work, target, implementation.rate)


def likely_cycles(work: Work, target: CpuTarget, rate: float = 1.0) -> float:
    """What one kernel that is not slow takes on one core, which does ``rate`` operations in the time of one
    of float32."""
    rate *= EFFICIENCY * target.operations_per_cycle
    return STEP_CYCLES + max(work.operations / rate, _moving(work, target))


def slow_cycles(work: Work, target: CpuTarget) -> float:
    """What a slow kernel takes on one core; those of several steps take longer."""
    outside = work.reduces and work.nbytes > target.l2_bytes
    rate = min(EFFICIENCY * target.operations_per_cycle, SLOW_RATE_OUTSIDE if outside else SLOW_RATE)
    return STEP_CYCLES + max(work.operations / rate, _moving(work, target))


def _moving(work: Work, target: CpuTarget) -> float:
    return work.nbytes / (CACHE_BYTES if work.nbytes <= target.l2_bytes else MEMORY_BYTES)


class _Operations(Visitor[None, int]):
    """Counts the operations of one element; positions count nothing."""

    def visit_load(self, node: Node, context: None) -> int:
        return 0

    def visit_variable(self, node: Node, context: None) -> int:
        return 0

    def visit_select(self, node: Node, context: None) -> int:
        """Both sides of a selection are computed, one of a branch."""
        condition, yes, no = self.operands(node, context)
        if node.operation.name == "if_then_else":
            return max(yes, no)
        return node.operation.cost + condition + yes + no

    def visit_operation(self, node: Node, context: None) -> int:
        # A multiply-add is one operation.
        fused = node.operation.name == "add" and "mul" in map(name_of, node.operands)
        return (0 if fused else node.operation.cost) + sum(self.operands(node, context))

    def visit_other(self, node: Node, context: None) -> int:
        return 1
