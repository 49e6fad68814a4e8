"""How many cycles an implementation takes, with all threads of the target."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from tvm.tirx import DeclBuffer, SeqStmt, Var

from edgepack.compiler.kernels.contract import Implementation, Stage
from edgepack.compiler.kernels.estimate import CACHE_BYTES, MEMORY_BYTES, STEP_CYCLES
from edgepack.compiler.kernels.predict.walk import Executed, KernelWalk
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget

__all__ = ["executed", "predicted_cycles"]

#: How much of the shorter of computing and moving bytes is not hidden behind the longer.
NOT_HIDDEN = 0.5


def predicted_cycles(implementation: Implementation, target: CpuTarget) -> float:
    """Cycles until the last thread has done its share of each stage.

    A stage takes the longer of executing its instructions and of bringing what it reads and writes into the
    nearest cache, and a part of the shorter.
    """
    total = 0.0
    for stage in implementation.stages:
        walk, threads = KernelWalk(stage.function, target), min(target.threads, stage.tasks)
        cuts = [stage.tasks * number // threads for number in range(threads + 1)]
        computing = max(walk.executed(a, b).cycles for a, b in pairwise(cuts))
        moving = _moving(stage, target) / threads
        total += max(computing, moving) + NOT_HIDDEN * min(computing, moving) + STEP_CYCLES
    return total


def executed(implementation: Implementation, target: CpuTarget) -> Executed:
    """What all tasks of an implementation's stages execute together, by one thread."""
    walks = [(KernelWalk(stage.function, target), stage.tasks) for stage in implementation.stages]
    return sum((walk.executed(0, tasks) for walk, tasks in walks), Executed())


def _moving(stage: Stage, target: CpuTarget) -> float:
    """Cycles in which one core moves all that a stage reads and writes once: constants from behind its
    caches, which hold another layer's, and tensors from the L2 cache if they fit it. A microcontroller has
    none."""
    if target.bare_metal:
        return 0.0
    body = stage.function.body
    declared = [one for one in body.seq if type(one) is DeclBuffer] if type(body) is SeqStmt else []
    sizes: dict[str, int] = {}
    for one in declared:
        if type(one.data) is Var:
            nbytes = prod(map(int, one.buffer.shape)) * DTYPE_BYTES[str(one.buffer.dtype)]
            sizes.setdefault(str(one.data.name), nbytes)
    constants = tensors = 0
    for operand, param in zip(stage.operands, list(stage.function.params), strict=False):
        nbytes = sizes.get(str(param.name), 0)
        if operand.kind == "packed":
            constants += nbytes
        elif operand.kind in {"param", "output", "temp"}:
            tensors += nbytes
    rate = CACHE_BYTES if constants + tensors <= target.l2_bytes else MEMORY_BYTES
    return constants / MEMORY_BYTES + tensors / rate
