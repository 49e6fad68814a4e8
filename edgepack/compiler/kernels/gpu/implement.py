"""Which kernels compute a fused group on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.generic.lowering import count_flops
from edgepack.compiler.kernels.gpu.contract import FULL, GpuImplementation, GpuStage, HalfOperands
from edgepack.compiler.kernels.gpu.contraction import contraction
from edgepack.compiler.kernels.gpu.kernel import Kernel
from edgepack.compiler.kernels.gpu.nests import Nest, Nests, find_nests
from edgepack.compiler.kernels.gpu.pointwise import pointwise
from edgepack.compiler.kernels.gpu.reduction import reduction
from edgepack.compiler.kernels.gpu.tensor_core import tensor_core
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.gpu_target import GpuTarget

__all__ = ["implement_on_gpu"]

_Rule = Callable[[Kernel, Nest, GpuTarget], GpuStage]

#: In the order in which they are tried; the last one serves every nest whose expressions have a form in C.
RULES: dict[str, _Rule] = {
    "tensor_core": tensor_core,
    "contraction": contraction,
    "reduction": reduction,
    "element": pointwise,
}


def implement_on_gpu(fused: FusedGroup, target: GpuTarget, half: HalfOperands = FULL) -> GpuImplementation:
    """A fused group's kernels: one for each of its nests.

    Args:
        half: what is float16 in memory.

    Raises:
        RuleError: no kernel of a GPU serves it; the CPU has to compute it.
    """
    nests = find_nests(fused)
    stages, names = [], []
    for nest in nests.nests:
        name, stage = _stage(fused, nests, nest, target, half)
        stages.append(stage)
        names.append(name)
    kernel = Kernel(fused, nests, target.most_parameters, half)
    temps = tuple(prod(int(d) for d in b.shape) * DTYPE_BYTES[kernel.stored(b)] for b in nests.temps)
    return GpuImplementation(tuple(names), tuple(stages), temps, flops=count_flops(fused.function))


def _stage(
    fused: FusedGroup, nests: Nests, nest: Nest, target: GpuTarget, half: HalfOperands
) -> tuple[str, GpuStage]:
    refused: list[str] = []
    for name, rule in RULES.items():
        try:
            return name, rule(Kernel(fused, nests, target.most_parameters, half), nest, target)
        except RuleError as error:
            refused.append(str(error))
    raise RuleError(refused[-1])
