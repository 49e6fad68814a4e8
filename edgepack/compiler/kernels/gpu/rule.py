"""A rule of a GPU: one way to compute a loop nest by one kernel.

As a rule of the CPU (``kernels/rule.py``) it is an object at the top level of the module that writes its
kernel, where the registry finds it. Rules are tried by ``order``, lowest first: products in matrix units,
products in tiles, sums, windows, and last what each work item computes alone, which serves every nest whose
expressions have a form in C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgepack.compiler.kernels.gpu.contract import GpuStage
from edgepack.compiler.kernels.gpu.kernel import Kernel
from edgepack.compiler.kernels.gpu.loop_nests import LoopNest
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.opt_level import TILED, OptLevel

__all__ = ["GpuRule"]


@dataclass(frozen=True)
class GpuRule:
    """One way to compute a loop nest.

    Attributes:
        name: unique among the rules of GPUs; it is part of the kernels' names.
        order: unique too; rules are tried lowest first.
        apply: writes the kernel. RuleError if the rule does not serve the nest.
        level: of optimisation, from which on it is tried.
    """

    name: str
    order: int
    apply: Callable[[Kernel, LoopNest, GpuTarget], GpuStage]
    level: OptLevel = TILED
