"""Schedules that are predicted to be faster than the rules' own, where a device's file has the constants that
the prediction takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgepack.compiler.kernels.candidates import made_by
from edgepack.compiler.kernels.contract import Implementation
from edgepack.compiler.kernels.errors import defect
from edgepack.compiler.kernels.near import near_schedules
from edgepack.compiler.kernels.predict.counted import Compile, Counted, counted
from edgepack.compiler.kernels.schedule import Schedules
from edgepack.compiler.kernels.tuned import rule_of
from edgepack.compiler.planner.program import Call, Program
from edgepack.compiler.planner.select import KernelSelector
from edgepack.plan.opt_level import ALL

__all__ = ["Replacement", "compared_schedules", "take_predicted"]

#: Layers that do less than this part of the operations of all that are compared are left as they are.
WORTH_COMPARING = 0.01

#: Nor are those that do fewer operations than this.
FEWEST_OPERATIONS = 20_000

#: What all replacements together may add to the flash of an image, as a part of its constants.
MORE_FLASH = 0.01

#: Bytes of RAM that a replacement may take more beside its inputs and outputs.
MORE_RAM = 256

#: What loads and stores may be more, as a part of them.
MORE_ACCESSES = 0.05


@dataclass(frozen=True)
class Replacement:
    """Another schedule of a layer.

    Attributes:
        made: what its rule makes by it.
        before, after: what the rule's own takes, and this.
        calls: how many calls of the program it computes.
    """

    made: Implementation
    before: Counted
    after: Counted
    calls: int = 1

    @property
    def gain(self) -> float:
        """How many times as fast it is by prediction: by instructions, or if each load and store takes twice
        as long as another one, whichever is less."""
        instructions = self.before.instructions / max(1.0, self.after.instructions)
        return min(instructions, self.before.cycles / max(1.0, self.after.cycles))

    @property
    def saved(self) -> float:
        """Instructions of a run."""
        return self.calls * (self.before.instructions - self.after.instructions)

    @property
    def flash(self) -> int:
        """Bytes of code that it has more."""
        return self.after.code_bytes - self.before.code_bytes


def take_predicted(
    program: Program, selector: KernelSelector, compiled: Compile, tuned: Schedules
) -> dict[str, float]:
    """Replaces kernels of a program by those that are predicted to be faster; returns the gains, by symbol.

    Nothing is replaced but on a device with constants, for speed, and where no tuned schedule is given.

    Args:
        program: changed in place, before it is laid out.
        compiled: makes machine code of a kernel.
        tuned: what is given for fused groups.
    """
    target = selector.target
    if target.costs is None or target.optimize != "latency" or target.opt_level < ALL:
        return {}
    constants = sum(array.nbytes for one in program.programs() for array in one.constants)
    found: list[tuple[list[Call], Replacement]] = []
    for calls in compared_layers(program, selector, tuned):
        made = calls[0].implementation
        assert made is not None
        own = _counted(made, selector, compiled)
        if own is not None:
            found += [(calls, one) for one in _better(calls, own, selector, compiled)]
    return _taken(found, int(MORE_FLASH * constants), selector)


def compared_schedules(
    call: Call, own: Counted, selector: KernelSelector, compiled: Compile
) -> list[Replacement]:
    """What the rule of a call makes by other schedules, with what is predicted for it."""
    made, target = call.implementation, selector.target
    assert made is not None
    assert target.costs is not None
    rule = rule_of(made)
    found: list[Replacement] = []
    if rule is None:
        return found
    constants = [selector.constants_of(group) for group in call.fused_groups]
    for schedule in near_schedules(made):
        other = made_by(call.fused_groups, rule, schedule, target, constants)
        if other is None or other.schedule == made.schedule or not _same_form(other, made):
            continue
        if any(other.schedule == one.made.schedule for one in found):
            continue
        after = _counted(other, selector, compiled)
        if after is not None:
            found.append(Replacement(other, own, after))
    return found


def _counted(made: Implementation, selector: KernelSelector, compiled: Compile) -> Counted | None:
    """What is predicted; None where nothing can be said."""
    costs = selector.target.costs
    assert costs is not None
    try:
        return counted(made, selector.target, costs, compiled)
    except Exception as error:  # a defect in the prediction costs speed, not the model
        reason = defect(error)
        selector.warn(f"what kernels of rule {made.rule} take is not predicted ({reason}); the rule's stay")
        return None


def rule_and_type(call: Call) -> str:
    """As :data:`edgepack.plan.costs.COMPARED` names them."""
    rule = rule_of(call.implementation) if call.implementation is not None else None
    dtype = str(call.fused.function.params[0].dtype)
    return f"{rule.name if rule else ''} {'int8' if dtype == 'uint8' else dtype}"


def compared_layers(program: Program, selector: KernelSelector, tuned: Schedules) -> list[list[Call]]:
    """The calls whose schedules are compared, those of the same kernels together, each with its own walked
    once."""
    costs = selector.target.costs
    found: dict[tuple[str, ...], list[Call]] = {}
    for call in program.kernel_calls():
        made = call.implementation
        if made is None or call.first is not None or made.schedule is None or call.fused.by_rows:
            continue
        if costs is not None and costs.gain_of(rule_and_type(call)) is not None:
            found.setdefault(call.symbols, []).append(call)
    work = {symbols: sum(map(_operations, calls)) for symbols, calls in found.items()}
    least = max(FEWEST_OPERATIONS, WORTH_COMPARING * sum(work.values()))
    return [
        calls
        for symbols, calls in found.items()
        if work[symbols] >= least and not tuned(calls[0].fused_groups)
    ]


def _operations(call: Call) -> int:
    return call.implementation.flops if call.implementation is not None else 0


def _better(
    calls: Sequence[Call], own: Counted, selector: KernelSelector, compiled: Compile
) -> list[Replacement]:
    """Schedules of a layer that may replace its own."""
    costs = selector.target.costs
    assert costs is not None
    least = costs.gain_of(rule_and_type(calls[0]))
    assert least is not None
    found = []
    for one in compared_schedules(calls[0], own, selector, compiled):
        fits = one.after.scratch_bytes <= own.scratch_bytes + MORE_RAM
        if fits and one.gain >= least and one.after.accesses <= (1 + MORE_ACCESSES) * own.accesses:
            found.append(Replacement(one.made, own, one.after, len(calls)))
    return found


def _taken(
    found: Sequence[tuple[list[Call], Replacement]], room: int, selector: KernelSelector
) -> dict[str, float]:
    """Replaces what saves most while there is room in flash for it, one of each layer."""
    gains: dict[str, float] = {}
    for calls, one in sorted(found, key=lambda pair: -pair[1].saved):
        symbols = calls[0].symbols
        if symbols[-1] in gains or one.flash > room:
            continue
        room -= max(0, one.flash)
        selector.replace(symbols, one.made)
        for call in calls:
            call.implementation = one.made
        gains |= dict.fromkeys(symbols, one.gain)
    return gains


def _same_form(one: Implementation, other: Implementation) -> bool:
    """Whether both have the same kernels in number, and each may lie over its input as the other may."""
    kernels = [len({id(stage.function) for stage in made.stages}) for made in (one, other)]
    same_stages = kernels[0] == kernels[1] and len(one.stages) == len(other.stages)
    params = [[overlap.param for overlap in made.overlaps] for made in (one, other)]
    return same_stages and params[0] == params[1] and one.rule == other.rule
