"""Rule ``element``: one work item computes one element, and all that it sums."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.gpu.code import c_type
from edgepack.compiler.kernels.gpu.contract import GpuStage
from edgepack.compiler.kernels.gpu.expressions import Environment, unravelled
from edgepack.compiler.kernels.gpu.kernel import Kernel, initial_value
from edgepack.compiler.kernels.gpu.limits import check_group
from edgepack.compiler.kernels.gpu.loop_nests import LoopNest
from edgepack.compiler.kernels.gpu.rule import GpuRule
from edgepack.compiler.kernels.schedule import Schedule
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.opt_level import PLAIN

__all__ = ["RULE", "ElementSchedule"]


@dataclass(frozen=True)
class ElementSchedule(Schedule):
    """What is decided about elements of which a work item computes one.

    Attributes:
        threads: work items of a group.
    """

    threads: int | None = None


def pointwise(kernel: Kernel, nest: LoopNest, target: GpuTarget, given: ElementSchedule) -> GpuStage:
    """The kernel of a nest, whatever it is."""
    code, evaluator = kernel.code, kernel.evaluator
    variables, extents = nest.spatial
    total, size = prod(extents), given.threads or target.group_size
    check_group(size, 0, target)
    if total >= 2**31:
        raise RuleError(f"a tensor of {total} elements")
    code.line(f"const int at = GROUP(0) * {size} + THREAD(0);")
    with code.block(f"if (at < {total})"):
        positions = unravelled(code, "at", extents)
        env = dict(zip(variables, positions, strict=True))
        reduction = nest.reduction
        if reduction is not None:
            inner = dict(zip(LoopNest(reduction).spatial[0], positions, strict=True))
            ctype = c_type(str(reduction.target.dtype))
            code.line(f"{ctype} sum = {initial_value(reduction, evaluator)};")
            evaluator.given[reduction.target] = "sum"
            sizes = dict(zip(reduction.iters, reduction.extents, strict=True))
            _accumulate(kernel, reduction, inner, [(v, sizes[v]) for v in reduction.reductions])
        kernel.store(nest.result, env, "sum" if reduction is nest.result else None)
    stage = code.stage((-(-total // size), 1, 1), (size, 1, 1))
    return replace(stage, schedule=ElementSchedule(size))


def _accumulate(kernel: Kernel, block: Block, env: Environment, left: list[tuple[Any, int]]) -> None:
    """Loops over the variables that are ``left``, and what is done in the innermost one."""
    code = kernel.code
    if not left:
        with kernel.evaluator.fresh():
            text = kernel.evaluator.value(block.value, env)
        code.line(f"sum = {text};")
        return
    (variable, extent), *rest = left
    if extent == 1:
        _accumulate(kernel, block, {**env, variable: "0"}, rest)
        return
    name = code.name("r")
    with code.block(f"for (int {name} = 0; {name} < {extent}; ++{name})"):
        _accumulate(kernel, block, {**env, variable: name}, rest)


RULE = GpuRule("element", order=600, apply=pointwise, schedule=ElementSchedule, level=PLAIN)
