"""Which kernels compute a fused group on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from types import MappingProxyType

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Operand, RuleError
from edgepack.compiler.kernels.cpu.generic.lowering import count_flops
from edgepack.compiler.kernels.gpu.attention import attention
from edgepack.compiler.kernels.gpu.attention_nests import Attention, find_attention
from edgepack.compiler.kernels.gpu.contract import FULL, GpuImplementation, GpuStage, HalfOperands
from edgepack.compiler.kernels.gpu.fused_rows import FusedRows, find_fused_rows
from edgepack.compiler.kernels.gpu.kernel import Kernel
from edgepack.compiler.kernels.gpu.loop_nests import LoopNest, LoopNests, find_loop_nests
from edgepack.compiler.kernels.gpu.rows import rows
from edgepack.compiler.kernels.gpu.winograd import WINOGRAD, GpuWinogradSchedule, Winograd, winograd
from edgepack.compiler.kernels.registry import GPU_RULES
from edgepack.compiler.kernels.schedule import Given, ScheduleError
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.opt_level import ALL, TILED

__all__ = ["implement_on_gpu"]

#: What one kernel computes.
_Part = FusedRows | Attention | LoopNest


def implement_on_gpu(
    fused: FusedGroup,
    target: GpuTarget,
    half: HalfOperands = FULL,
    given: Given = MappingProxyType({}),
) -> GpuImplementation:
    """A fused group's kernels: one for each of its nests, or for several that share their rows, or several
    for a nest.

    Args:
        half: what is float16 in memory.
        given: schedules in place of those that would be proposed.

    Raises:
        RuleError: no kernel of a GPU serves it; the CPU has to compute it.
    """
    nests = find_loop_nests(fused)
    found = find_attention(nests) if target.opt_level >= ALL else None
    if found is None or not _serves(fused, nests, found, target, half):
        parts = _parts(fused, nests, nests.nests, target, half)
    else:
        others = [nest for nest in nests.nests if nest not in found.nests]
        at = nests.nests.index(found.result) + 1 - len(found.nests)
        before, behind = others[:at], others[at:]
        parts = [*_parts(fused, nests, before, target, half), found]
        parts += _parts(fused, nests, behind, target, half)
    nests = _stored(nests, parts)
    stages: list[GpuStage] = []
    names: list[str] = []
    filtered = (0, 0)
    parameters = {}
    for part in parts:
        form = _winograd(fused, nests, part, target, half, given)
        if form is not None:
            stages += form.stages
            names += form.rules
            filtered = (max(filtered[0], form.scratch[0]), max(filtered[1], form.scratch[1]))
            parameters["winograd"] = f"F({form.m}x{form.m}, 3x3)"
            continue
        name, stage = _stage(fused, nests, part, target, half)
        stages.append(stage)
        names.append(name)
        if stage.last is not None:
            stages.append(stage.last)
            names.append("partial_sums")
    kernel = Kernel(fused, nests, target.most_parameters, half)
    temps = tuple(prod(int(d) for d in b.shape) * DTYPE_BYTES[kernel.stored(b)] for b in nests.temps)
    partial = max(stage.partial_bytes for stage in stages)
    temps, moved = _without_empty((*temps, partial, *filtered), stages)
    return GpuImplementation(tuple(names), moved, temps, parameters, count_flops(fused.function))


def _winograd(
    fused: FusedGroup, nests: LoopNests, part: _Part, target: GpuTarget, half: HalfOperands, given: Given
) -> Winograd | None:
    """A part in Winograd's form, where it is a convolution that pays in it. ScheduleError where one is given
    that does not fit."""
    schedule = given.get(WINOGRAD, GpuWinogradSchedule())
    if isinstance(part, FusedRows | Attention) or not isinstance(schedule, GpuWinogradSchedule):
        return None
    if target.opt_level < ALL:
        return None
    try:
        return winograd(fused, nests, part, target, half, schedule)
    except ScheduleError:
        raise
    except RuleError:
        return None


def _without_empty(
    temps: Sequence[int], stages: Sequence[GpuStage]
) -> tuple[tuple[int, ...], tuple[GpuStage, ...]]:
    """The temps that have bytes, and the stages with their new numbers."""
    kept = [i for i, nbytes in enumerate(temps) if nbytes]
    places = {Operand("temp", old): Operand("temp", new) for new, old in enumerate(kept)}
    moved = tuple(
        replace(stage, operands=tuple(places.get(o, o) for o in stage.operands)) for stage in stages
    )
    return tuple(temps[i] for i in kept), moved


def _parts(
    fused: FusedGroup, nests: LoopNests, among: Sequence[LoopNest], target: GpuTarget, half: HalfOperands
) -> list[_Part]:
    """Some of the nests in order, those that one kernel computes together as a run."""
    if target.opt_level < TILED:
        return list(among)
    params = list(fused.function.params)
    parts: list[_Part] = []
    for part in find_fused_rows(nests, params[len(params) - fused.outputs :], among):
        if isinstance(part, LoopNest) or _serves(fused, nests, part, target, half):
            parts.append(part)
        else:
            parts += [row_stage.nest for row_stage in part.stages]
    return parts


def _serves(fused: FusedGroup, nests: LoopNests, part: _Part, target: GpuTarget, half: HalfOperands) -> bool:
    """Whether a run, or attention, can be one kernel."""
    try:
        _stage(fused, nests, part, target, half)
    except RuleError:
        return False
    return True


def _stored(nests: LoopNests, parts: Sequence[_Part]) -> LoopNests:
    """Without the tensors that only one kernel reads and writes."""
    row_stages = [row_stage for part in parts if isinstance(part, FusedRows) for row_stage in part.stages]
    inside = {row_stage.nest.result.target for row_stage in row_stages if not row_stage.stored}
    for part in parts:
        if isinstance(part, Attention):
            inside |= {nest.result.target for nest in part.nests if nest is not part.result}
    return replace(nests, temps=tuple(b for b in nests.temps if b not in inside))


def _stage(
    fused: FusedGroup, nests: LoopNests, part: _Part, target: GpuTarget, half: HalfOperands
) -> tuple[str, GpuStage]:
    if isinstance(part, Attention):
        return "attention", attention(Kernel(fused, nests, target.most_parameters, half), part, target)
    if isinstance(part, FusedRows):
        return "rows", rows(Kernel(fused, nests, target.most_parameters, half), part, target)
    refused: list[str] = []
    for rule in GPU_RULES:
        if rule.level > target.opt_level:
            continue
        try:
            return rule.name, rule.apply(Kernel(fused, nests, target.most_parameters, half), part, target)
        except RuleError as error:
            refused.append(str(error))
    raise RuleError(refused[-1])
