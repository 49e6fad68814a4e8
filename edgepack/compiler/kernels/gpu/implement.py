"""Which kernels compute a fused group on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.generic.lowering import count_flops
from edgepack.compiler.kernels.gpu.contract import GpuImplementation, GpuStage
from edgepack.compiler.kernels.gpu.contraction import contraction
from edgepack.compiler.kernels.gpu.kernel import Kernel
from edgepack.compiler.kernels.gpu.nests import Nest, Nests, find_nests
from edgepack.compiler.kernels.gpu.pointwise import pointwise
from edgepack.compiler.kernels.gpu.reduction import reduction
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.gpu_target import GpuTarget

__all__ = ["implement_on_gpu"]

_Rule = Callable[[Kernel, Nest, GpuTarget], GpuStage]

#: In the order in which they are tried; the last one serves every nest whose expressions have a form in C.
RULES: dict[str, _Rule] = {"contraction": contraction, "reduction": reduction, "element": pointwise}


def implement_on_gpu(fused: FusedGroup, target: GpuTarget) -> GpuImplementation:
    """A fused group's kernels: one for each of its nests.

    Raises:
        RuleError: no kernel of a GPU serves it; the CPU has to compute it.
    """
    nests = find_nests(fused)
    stages, names = [], []
    for nest in nests.nests:
        name, stage = _stage(fused, nests, nest, target)
        stages.append(stage)
        names.append(name)
    temps = tuple(prod(int(d) for d in b.shape) * DTYPE_BYTES[str(b.dtype)] for b in nests.temps)
    return GpuImplementation(tuple(names), tuple(stages), temps, flops=count_flops(fused.function))


def _stage(fused: FusedGroup, nests: Nests, nest: Nest, target: GpuTarget) -> tuple[str, GpuStage]:
    refused: list[str] = []
    for name, rule in RULES.items():
        try:
            return name, rule(Kernel(fused, nests, target.most_parameters), nest, target)
        except RuleError as error:
            refused.append(str(error))
    raise RuleError(refused[-1])
