"""Which kernels compute a fused group on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import prod

from tvm.tirx import Buffer

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.generic.lowering import count_flops
from edgepack.compiler.kernels.gpu.contract import FULL, GpuImplementation, GpuStage, HalfOperands
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


def implement_on_gpu(fused: FusedGroup, target: GpuTarget, half: HalfOperands = FULL) -> GpuImplementation:
    """A fused group's kernels: one for each of its nests.

    Args:
        half: what is float16 in memory.

    Raises:
        RuleError: no kernel of a GPU serves it; the CPU has to compute it.
    """
    nests = find_nests(fused)
    params = list(fused.function.params)
    narrow = {params[i] for i in half.params}
    if half.temps:
        narrow.update(n.result.target for n in nests.nests if _is_half_temp(n, nests))
    stages, names = [], []
    for nest in nests.nests:
        name, stage = _stage(fused, nests, nest, target, narrow)
        stages.append(stage)
        names.append(name)
    temps = tuple(
        prod(int(d) for d in b.shape) * DTYPE_BYTES["float16" if b in narrow else str(b.dtype)]
        for b in nests.temps
    )
    return GpuImplementation(tuple(names), tuple(stages), temps, flops=count_flops(fused.function))


def _is_half_temp(nest: Nest, nests: Nests) -> bool:
    """Whether what a nest computes for the next one can be float16 in memory."""
    buffer = nest.result.target
    return buffer in nests.temps and nest.reduction is None and str(buffer.dtype) == "float32"


def _stage(
    fused: FusedGroup, nests: Nests, nest: Nest, target: GpuTarget, half: Collection[Buffer]
) -> tuple[str, GpuStage]:
    refused: list[str] = []
    for name, rule in RULES.items():
        try:
            return name, rule(Kernel(fused, nests, target.most_parameters, half), nest, target)
        except RuleError as error:
            refused.append(str(error))
    raise RuleError(refused[-1])
