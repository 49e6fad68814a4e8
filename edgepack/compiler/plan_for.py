"""The plan for a target of any kind, by the rules and by what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgepack.compiler.backends.llvm import compile_alone
from edgepack.compiler.frontend.base import ImportedModel
from edgepack.compiler.graph.lower import Lowered
from edgepack.compiler.kernels.gpu.group_schedule import GROUP
from edgepack.compiler.kernels.group_key import group_key
from edgepack.compiler.kernels.tuned import TunedGpuSchedules, TunedSchedules, rule_of
from edgepack.compiler.planner.build import Built, lay_out, select_kernels
from edgepack.compiler.planner.fuse_pairs import possible_pairs
from edgepack.compiler.planner.measured import Measured
from edgepack.compiler.planner.places_in_params import has_places_in_params
from edgepack.compiler.planner.predicted import take_predicted
from edgepack.compiler.planner.program import Program
from edgepack.compiler.planner.select import KernelSelector
from edgepack.compiler.planner.tuning import Asked, write_choices
from edgepack.compiler.reporter import Reporter
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.target import CpuTarget
from edgepack.plan.targets import Target
from edgepack.plan.tuned import TunedChoice, weights_of

if TYPE_CHECKING:
    from edgepack.compiler.planner.build_gpu import SelectedOnGpu

__all__ = ["plan_for", "write_choices_for"]


def plan_for(
    target: Target,
    lowered: Lowered,
    imported: ImportedModel,
    reporter: Reporter,
    named: Mapping[str, str],
    *,
    tuned: Sequence[Mapping[str, Any]] = (),
) -> Built:
    """The plan of an imported model.

    Args:
        named: ``name``, the model's, a C identifier, and ``symbol_prefix``, what starts each kernel's symbol.
        tuned: :class:`TunedChoice` as JSON.
    """
    known = _Known.of(target, imported, reporter, tuned)
    if isinstance(target, GpuTarget):
        from edgepack.compiler.planner.build_gpu import lay_out_on_gpu

        selected = known.on_gpu(target, lowered, named["symbol_prefix"])
        assert known.gpu is not None
        gains = {**_tuned_kernels(selected.program, known.cpu), **_tuned_on_gpu(selected, known.gpu)}
        return _marked(lay_out_on_gpu(selected, named["name"]), gains, {})
    program, selector, predicted = known.on_cpu(target, lowered, named["symbol_prefix"])
    gains = _tuned_kernels(program, known.cpu)
    return _marked(lay_out(program, selector, imported.signature, named["name"]), gains, predicted)


def write_choices_for(
    target: Target,
    lowered: Lowered,
    imported: ImportedModel,
    reporter: Reporter,
    prefix: str,
    asked: Asked,
    *,
    tuned: Sequence[Mapping[str, Any]] = (),
) -> None:
    """By which schedules the kernels of an imported model are computed, and what else may be tried.

    Args:
        prefix: starts each kernel's symbol.
        asked: of which groups, and where it is written
            (:func:`edgepack.compiler.planner.tuning.write_choices`).
        tuned: :class:`TunedChoice` as JSON.
    """
    known = _Known.of(target, imported, reporter, tuned)
    if isinstance(target, GpuTarget):
        from edgepack.compiler.planner.tuning_gpu import write_gpu_choices

        write_gpu_choices(known.on_gpu(target, lowered, prefix), asked.path, asked.wanted)
        return
    program, selector, _ = known.on_cpu(target, lowered, prefix)
    write_choices(program, selector, asked, imported.signature.nodes)


@dataclass(frozen=True)
class _Known:
    """What is known of an imported model's kernels before they are selected: what was measured."""

    imported: ImportedModel
    reporter: Reporter
    cpu: TunedSchedules
    gpu: TunedGpuSchedules | None

    @classmethod
    def of(
        cls,
        target: Target,
        imported: ImportedModel,
        reporter: Reporter,
        tuned: Sequence[Mapping[str, Any]],
    ) -> _Known:
        known = [TunedChoice.from_json(one) for one in tuned]
        host = target.host if isinstance(target, GpuTarget) else target
        cpu = TunedSchedules(known, host, reporter.warning)
        gpu = TunedGpuSchedules(known, target, reporter.warning) if isinstance(target, GpuTarget) else None
        return cls(imported, reporter, cpu, gpu)

    def on_gpu(self, target: GpuTarget, lowered: Lowered, prefix: str) -> SelectedOnGpu:
        from edgepack.compiler.planner.build_gpu import select_on_gpu

        assert self.gpu is not None
        measured = Measured(self.imported.calibration, self.cpu, self.gpu, self.cpu.ahead)
        return select_on_gpu(lowered, self.imported.signature, target, prefix, self.reporter, measured)

    def on_cpu(
        self, target: CpuTarget, lowered: Lowered, prefix: str
    ) -> tuple[Program, KernelSelector, dict[str, float]]:
        """The kernels, and what those gained that were chosen by prediction, by symbol."""
        program, selector = select_kernels(
            lowered,
            self.imported.signature,
            target,
            symbol_prefix=prefix,
            reporter=self.reporter,
            measured=Measured(self.imported.calibration, self.cpu, ahead=self.cpu.ahead),
        )
        predicted = take_predicted(program, selector, lambda one: compile_alone(one, target), self.cpu)
        return program, selector, predicted


def _tuned_kernels(program: Program, schedules: TunedSchedules) -> dict[str, float]:
    """What the kernels gained that a tuned schedule made, by symbol: also those that are apart, and whose
    weights are fetched, by a choice."""
    found: dict[str, float] = {}
    if not schedules.gains:
        return found
    for call in program.calls:
        if (gain := schedules.gains.get(weights_of(group_key(call.fused_groups)))) is not None:
            found |= dict.fromkeys(call.symbols, gain)
    for first, second, both in possible_pairs(program):
        gain = schedules.gains.get(group_key(both.fused_groups))
        if gain is not None and not any(schedules(both.fused_groups).values()):  # they are to be apart
            found |= dict.fromkeys((*first.symbols, *second.symbols), gain)
    for call in program.calls:
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
    """The plan, whose reports say what its kernels gained, and by what; and what the kernels believe."""
    said = {
        symbol: {name: f"{gain:.2f}x"}
        for name, gains in (("predicted", predicted), ("tuned", tuned))
        for symbol, gain in gains.items()
    }
    kernels = tuple(
        replace(kernel, parameters={**kernel.parameters, **said.get(kernel.symbol, {})})
        for kernel in built.plan.kernels
    )
    places = has_places_in_params(built)
    return replace(built, plan=replace(built.plan, kernels=kernels, places_in_params=places))
