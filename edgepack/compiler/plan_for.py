"""The plan for a target of any kind, by the rules and by what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.backends.llvm import compile_alone
from edgepack.compiler.frontend.base import ImportedModel
from edgepack.compiler.graph.lower import Lowered
from edgepack.compiler.kernels.gpu.group_schedule import GROUP
from edgepack.compiler.kernels.group_key import group_key
from edgepack.compiler.kernels.tuned import TunedGpuSchedules, TunedSchedules, rule_of
from edgepack.compiler.planner.build import Built, lay_out, select_kernels
from edgepack.compiler.planner.measured import Measured
from edgepack.compiler.planner.predicted import take_predicted
from edgepack.compiler.planner.program import Program
from edgepack.compiler.reporter import Reporter
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.targets import Target
from edgepack.plan.tuned import TunedChoice

if TYPE_CHECKING:
    from edgepack.compiler.planner.build_gpu import SelectedOnGpu

__all__ = ["plan_for"]


def plan_for(
    target: Target,
    lowered: Lowered,
    imported: ImportedModel,
    reporter: Reporter,
    named: Mapping[str, str],
    *,
    tuned: Sequence[Mapping[str, Any]] = (),
    choices: tuple[Path, Sequence[str], float | None] | None = None,
) -> Built:
    """The plan of an imported model.

    Args:
        named: ``name``, the model's, a C identifier, and ``symbol_prefix``, what starts each kernel's symbol.
        tuned: :class:`TunedChoice` as JSON.
        choices: where :func:`edgepack.compiler.planner.tuning.write_choices` writes, of which groups, and in
            how many seconds; None for nowhere.
    """
    known = [TunedChoice.from_json(one) for one in tuned]
    host = target.host if isinstance(target, GpuTarget) else target
    schedules = TunedSchedules(known, host, reporter.warning)
    signature, measured = imported.signature, Measured(imported.calibration, schedules)
    prefix = named["symbol_prefix"]
    if isinstance(target, GpuTarget):
        from edgepack.compiler.planner.build_gpu import lay_out_on_gpu, select_on_gpu

        on_gpu = TunedGpuSchedules(known, target, reporter.warning)
        measured = replace(measured, on_gpu=on_gpu)
        selected = select_on_gpu(lowered, signature, target, prefix, reporter, measured)
        gains = {**_tuned_kernels(selected.program, schedules), **_tuned_on_gpu(selected, on_gpu)}
        if choices is not None:
            from edgepack.compiler.planner.tuning_gpu import write_gpu_choices

            write_gpu_choices(selected, *choices[:2])
        return _marked(lay_out_on_gpu(selected, named["name"]), gains, {})
    program, selector = select_kernels(
        lowered, signature, target, symbol_prefix=prefix, reporter=reporter, measured=measured
    )
    predicted = take_predicted(program, selector, lambda one: compile_alone(one, target), schedules)
    gains = _tuned_kernels(program, schedules)
    if choices is not None:
        from edgepack.compiler.planner.tuning import write_choices

        write_choices(program, selector, *choices)
    return _marked(lay_out(program, selector, signature, named["name"]), gains, predicted)


def _tuned_kernels(program: Program, schedules: TunedSchedules) -> dict[str, float]:
    """What the kernels gained that a tuned schedule made, by symbol."""
    found: dict[str, float] = {}
    for call in program.calls if schedules.gains else ():
        gain = schedules.gains.get(group_key(call.fused_groups))
        rule = rule_of(call.implementation) if call.implementation is not None else None
        if gain is None or rule is None or schedules(call.fused_groups).get(rule.name) is None:
            continue
        found |= dict.fromkeys(call.symbols, gain)
    return found


def _tuned_on_gpu(selected: SelectedOnGpu, schedules: TunedGpuSchedules) -> dict[str, float]:
    """The same of the GPU's kernels."""
    found: dict[str, float] = {}
    for call in selected.program.calls if schedules.gains else ():
        half = selected.half.of_call(call)
        if call.gpu is not None and schedules(call.fused, half).get(GROUP) == call.gpu.schedule:
            gain = schedules.gains[group_key([call.fused], half)]
            found |= dict.fromkeys(call.symbols, gain)
    return found


def _marked(built: Built, tuned: Mapping[str, float], predicted: Mapping[str, float]) -> Built:
    """The plan, whose reports say what its kernels gained, and by what."""
    said = {
        symbol: {name: f"{gain:.2f}x"}
        for name, gains in (("predicted", predicted), ("tuned", tuned))
        for symbol, gain in gains.items()
    }
    kernels = tuple(
        replace(kernel, parameters={**kernel.parameters, **said.get(kernel.symbol, {})})
        for kernel in built.plan.kernels
    )
    return replace(built, plan=replace(built.plan, kernels=kernels))
