"""Schedules that a tuner may try for a fused group on a GPU: the neighbours of the one that it has.

A neighbour differs in one field of one part, which is twice or half as large, the others as they are or
decided anew, or in a tile and its grid together; or one part is computed by another rule, or what one kernel
computes by several and the other way round. The builders refuse what the device's group size and shared
memory, or registers, do not hold (``gpu/limits.py``). What makes the same kernels as another one is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import zip_longest
from typing import Any

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.candidates import Candidate
from edgepack.compiler.kernels.contract import RuleError, is_the_machines
from edgepack.compiler.kernels.gpu.contract import GpuImplementation, HalfOperands
from edgepack.compiler.kernels.gpu.group_schedule import GROUP, GroupSchedule
from edgepack.compiler.kernels.gpu.winograd import WINOGRAD, GpuWinogradSchedule
from edgepack.compiler.kernels.gpu.winograd_cost import TILES
from edgepack.compiler.kernels.implement_gpu import ATTENTION, PART_SCHEDULES, ROWS, implement_on_gpu
from edgepack.compiler.kernels.schedule import Given, Schedule
from edgepack.plan.gpu_target import GpuTarget

__all__ = ["gpu_candidates", "gpu_neighbours"]

#: Rules that serve what others are made for, most often slowly: they are tried last.
LAST = ("reduction", "element")

#: Fields of few values, of which the next larger and smaller one is near.
COUNTED = {"along", "elements", "stages"}


def gpu_candidates(
    fused: FusedGroup, half: HalfOperands, base: GpuImplementation, target: GpuTarget, most: int
) -> list[Candidate]:
    """Up to ``most`` candidates for a group, the nearest and other forms in turn.

    Args:
        half: what of it is float16 in memory.
        base: what is computed by now.
    """
    found: list[Candidate] = []
    known = {_kernels(base)}
    for given in _proposals(base.schedule):
        if len(found) >= most:
            break
        made = _made(fused, target, half, given)
        if made is not None and _kernels(made) not in known:
            known.add(_kernels(made))
            found.append(Candidate(made.schedule.rule, made.schedule.to_json(), 0.0))
    return found


def _kernels(made: GpuImplementation) -> tuple[Any, ...]:
    """What is the same of two implementations whose kernels and launches are."""
    return tuple((one.text, one.operands, one.groups, one.threads, one.partial_bytes) for one in made.stages)


def _made(fused: FusedGroup, target: GpuTarget, half: HalfOperands, given: Given) -> GpuImplementation | None:
    """What is made of what is given; None where it does not fit, or where a rule fails."""
    try:
        return implement_on_gpu(fused, target, half, given)
    except RuleError:
        return None
    except Exception as error:
        if is_the_machines(error):
            raise
        return None


def _proposals(base: GroupSchedule) -> Iterator[Given]:
    """What may be given: by turns a neighbour of each part, and another form."""
    near = [
        [base.with_part(number, rule, other) for other in gpu_neighbours(schedule)]
        for number, (rule, schedule) in enumerate(base.parts)
    ]
    rounds = list(zip_longest(*near))
    forms = list(_forms(base, last=False))
    for number in range(max(len(rounds), len(forms))):
        for one in rounds[number] if number < len(rounds) else ():
            if one is not None:
                yield {GROUP: one}
        if number < len(forms):
            yield forms[number]
    yield from _forms(base, last=True)


def _forms(base: GroupSchedule, *, last: bool) -> Iterator[Given]:
    """Other rules for each part, and the forms of which a group has other parts; or what is tried last."""
    for number, (rule, _) in enumerate(base.parts):
        if rule in (ATTENTION, ROWS):
            if not last:
                yield {rule: None}
            continue
        for other, kind in PART_SCHEDULES.items():
            if other in (rule, ATTENTION, ROWS) or (other in LAST) != last:
                continue
            opened: Sequence[Schedule] = [kind()]
            if other == WINOGRAD:
                opened = [GpuWinogradSchedule(outputs=m) for m in TILES]
            for schedule in opened:
                yield {GROUP: base.with_part(number, other, schedule)}
    names = {rule for rule, _ in base.parts}
    for rule in (ATTENTION, ROWS) if len(base.parts) > 1 and not last else ():
        if rule not in names:
            yield {rule: PART_SCHEDULES[rule]()}


def gpu_neighbours(schedule: Schedule) -> Iterator[Schedule]:
    """Schedules that differ in one field: the others decided anew, then as they are. A tile and its grid
    also grow and shrink together, so that a work item has as much to do."""
    kind = type(schedule)
    rounds: list[list[tuple[str, Any]]] = [
        [(one.name, other) for other in _others(one.name, getattr(schedule, one.name))]
        for one in fields(kind)
        if getattr(schedule, one.name) is not None
    ]
    tile, grid = getattr(schedule, "tile", None), getattr(schedule, "grid", None)
    together = list(zip(_others("tile", tile), _others("grid", grid), strict=False)) if tile and grid else []
    for number, values in enumerate(zip_longest(*rounds)):
        for name, value in filter(None, values):
            yield kind(**{name: value})
            yield replace(schedule, **{name: value})
        for both in together[number : number + 1]:
            yield replace(schedule, **dict(zip(("tile", "grid"), both, strict=True)))


def _others(name: str, value: Any) -> list[Any]:
    """Values near one of a field, the nearest first."""
    if isinstance(value, tuple):
        first, second = value
        pairs = [
            *((first // 2, second), (first, second // 2), (first * 2, second), (first, second * 2)),
            *((first * 2, second // 2), (first // 2, second * 2), (first // 2, second // 2)),
            *((first * 2, second * 2), (first // 4, second), (first, second // 4)),
        ]
        return pairs
    steps = (value + 1, value - 1) if name in COUNTED else ()
    return [n for n in dict.fromkeys((*steps, value * 2, value // 2, value * 4, value // 4)) if n > 0]
