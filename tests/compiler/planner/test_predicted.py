"""Schedules that are taken by prediction on a microcontroller whose file has constants."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import onnx
import pytest

from edgepack.compiler.backends.llvm import compile_alone
from edgepack.compiler.kernels.group_key import group_key
from edgepack.compiler.kernels.preferred_forms import preferred_forms
from edgepack.compiler.kernels.schedule import nothing_given
from edgepack.compiler.plan_for import plan_for
from edgepack.compiler.planner import predicted
from edgepack.compiler.planner.predicted import take_predicted
from edgepack.compiler.planner.program import Program
from edgepack.compiler.planner.select import KernelSelector
from edgepack.compiler.reporter import Reporter
from edgepack.plan.costs import InstructionCosts
from edgepack.plan.target import CpuTarget
from edgepack.plan.tuned import TunedChoice
from workbench.compiled import groups_of, lowered_model, plan_of
from workbench.models.builder import Graph

DEPTHWISE = "conv2d.depthwise float32"
TARGET = CpuTarget(
    "thumbv7em-unknown-none-eabihf",
    cpu="cortex-m4",
    vector_bits=0,
    vector_registers=32,
    fma=True,
    costs=InstructionCosts(least_gain=((DEPTHWISE, 1.05),)),
)


def network() -> onnx.ModelProto:
    """One channel at a time a depthwise convolution takes a third more instructions than two or four."""
    g = Graph("depthwise")
    g.output(g.op("Relu", g.conv(g.input("x", [1, 64, 12, 6]), 64, 64, 3, groups=64, bias=True)))
    return g.model()


def taken(model: onnx.ModelProto, target: CpuTarget) -> tuple[dict[str, float], list[dict[str, object]], int]:
    """The gains by symbol, what the kernels were made with, and how many were compiled."""
    gains: dict[str, float] = {}
    compiled = 0

    def selected(program: Program, selector: KernelSelector) -> None:
        def compile_one(function: object) -> object:
            nonlocal compiled
            compiled += 1
            return compile_alone(function, target)

        gains.update(take_predicted(program, selector, compile_one, nothing_given))  # type: ignore[arg-type]
        for call in program.calls:
            made = call.implementation
            assert made is not None
            assert [selector.functions[symbol] for symbol in call.symbols] == [
                s.function for s in made.stages
            ]

    built = plan_of(model, "m", target, selected=selected)
    return gains, [kernel.parameters for kernel in built.plan.kernels], compiled


def test_a_schedule_that_is_predicted_to_be_faster_is_taken_each_time_the_same() -> None:
    gains, parameters, compiled = taken(network(), TARGET)
    ((symbol, gain),) = gains.items()
    assert symbol.endswith("conv2d_depthwise") and gain > 1.05
    own = plan_of(network(), "m", replace(TARGET, costs=None)).plan.kernels[0].parameters
    assert parameters != [own]
    assert taken(network(), TARGET) == (gains, parameters, compiled)


@pytest.mark.parametrize(
    "target",
    [
        replace(TARGET, costs=None),
        replace(TARGET, costs=InstructionCosts(least_gain=(("conv2d.igemm float32", 1.02),))),
        replace(TARGET, optimize="size"),
        replace(TARGET, opt_level=2),
    ],
    ids=["no constants", "another rule", "size", "level 2"],
)
def test_the_rules_decide_where_nothing_is_to_be_compared(target: CpuTarget) -> None:
    gains, _, compiled = taken(network(), target)
    assert not gains and compiled == 0


def test_what_is_not_predicted_to_gain_enough_is_left() -> None:
    high = replace(TARGET, costs=InstructionCosts(least_gain=((DEPTHWISE, 2.0),)))
    gains, _, compiled = taken(network(), high)
    assert not gains and compiled == 3  # the rule's own, and two that are compared with it


def test_reports_say_what_was_predicted_and_a_tuned_schedule_wins() -> None:
    model = network()
    imported, lowered = lowered_model(model, {}, preferred_forms(TARGET))
    (group,) = [one for one, _ in groups_of(model, TARGET) if one.anchor is not None]
    choice = TunedChoice(TARGET.cpu_kind, group_key([group]), "conv2d.depthwise", {"lanes": 2}, 1.5)

    def parameters(*tuned: TunedChoice) -> dict[str, object]:
        named = {"name": "m", "symbol_prefix": ""}
        given = [one.to_json() for one in tuned]
        plan = plan_for(TARGET, lowered, imported, Reporter(), named, tuned=given).plan
        (found,) = [one.parameters for one in plan.kernels if one.rule == "conv2d.depthwise"]
        return found

    (gain,) = taken(model, TARGET)[0].values()
    said, tuned = parameters(), parameters(choice)
    assert said["predicted"] == f"{gain:.2f}x" and "tuned" not in said
    assert tuned["tuned"] == "1.50x" and "predicted" not in tuned


def test_a_defect_costs_speed_and_is_said() -> None:
    error: Exception = RuntimeError("no such\ninstruction")

    def fails(_: object) -> NoReturn:
        raise error

    def selected(program: Program, selector: KernelSelector) -> None:
        assert take_predicted(program, selector, fails, nothing_given) == {}

    (warning,) = plan_of(network(), "m", TARGET, selected=selected).plan.warnings
    assert warning.startswith("what kernels of rule conv2d.depthwise take is not predicted (instruction)")
    error = MemoryError()
    with pytest.raises(MemoryError):
        plan_of(network(), "m", TARGET, selected=selected)


def test_flash_and_loads_and_stores_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicted, "MORE_ACCESSES", -0.9)
    assert not taken(network(), TARGET)[0]
    monkeypatch.undo()
    monkeypatch.setattr(predicted, "MORE_FLASH", -1.0)
    assert not taken(network(), TARGET)[0]
