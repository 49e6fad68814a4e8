"""The plan for a target of any kind, by the rules and by what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgepack.compiler.frontend.base import ImportedModel
from edgepack.compiler.graph.lower import Lowered
from edgepack.compiler.kernels.group_key import group_key
from edgepack.compiler.kernels.tuned import TunedSchedules, rule_of
from edgepack.compiler.planner.build import Built, build_plan
from edgepack.compiler.planner.measured import Measured
from edgepack.compiler.planner.program import Program
from edgepack.compiler.planner.select import KernelSelector
from edgepack.compiler.reporter import Reporter
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.targets import Target
from edgepack.plan.tuned import TunedChoice

__all__ = ["plan_for"]


def plan_for(
    target: Target,
    lowered: Lowered,
    imported: ImportedModel,
    reporter: Reporter,
    *,
    name: str,
    prefix: str,
    tuned: Sequence[Mapping[str, Any]] = (),
    choices: Path | None = None,
) -> Built:
    """The plan of an imported model.

    Args:
        name: the model's name, a C identifier, and ``prefix`` what starts every kernel's symbol.
        tuned: :class:`TunedChoice` as JSON.
        choices: where :func:`edgepack.compiler.planner.tuning.write_choices` writes; None for nowhere.
    """
    host = target.host if isinstance(target, GpuTarget) else target
    schedules = TunedSchedules([TunedChoice.from_json(one) for one in tuned], host, reporter.warning)
    measured = Measured(imported.calibration, schedules)
    if isinstance(target, GpuTarget):
        from edgepack.compiler.planner.build_gpu import build_gpu_plan

        return build_gpu_plan(
            lowered,
            imported.signature,
            target,
            name=name,
            symbol_prefix=prefix,
            reporter=reporter,
            measured=measured,
        )
    used: dict[str, float] = {}

    def selected(program: Program, selector: KernelSelector) -> None:
        used.update(_tuned_kernels(program, schedules))
        if choices is not None:
            from edgepack.compiler.planner.tuning import write_choices

            write_choices(program, selector, choices)

    built = build_plan(
        lowered,
        imported.signature,
        target,
        name=name,
        symbol_prefix=prefix,
        reporter=reporter,
        measured=measured,
        selected=selected,
    )
    return _marked(built, used) if used else built


def _tuned_kernels(program: Program, schedules: TunedSchedules) -> dict[str, float]:
    """What the kernels gained that a tuned schedule made, by symbol."""
    found: dict[str, float] = {}
    for call in program.calls if schedules.gains else ():
        gain = schedules.gains.get(group_key(call.fused))
        rule = rule_of(call.implementation) if call.implementation is not None else None
        if gain is None or rule is None or schedules(call.fused).get(rule.name) is None:
            continue
        found |= dict.fromkeys(call.symbols, gain)
    return found


def _marked(built: Built, gains: Mapping[str, float]) -> Built:
    """The plan, whose reports say what its kernels gained."""
    kernels = tuple(
        replace(kernel, parameters={**kernel.parameters, "tuned": f"{gains[kernel.symbol]:.2f}x"})
        if kernel.symbol in gains
        else kernel
        for kernel in built.plan.kernels
    )
    return replace(built, plan=replace(built.plan, kernels=kernels))
