"""What a tuner is told of a program: by which schedules its calls are computed, in which steps, and what else
it may try."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from edgepack.compiler.kernels.candidates import Candidate, each_candidate, plain_schedule
from edgepack.compiler.kernels.estimate import estimated_cycles, work_of
from edgepack.compiler.kernels.group_key import group_key
from edgepack.compiler.kernels.predict.implementation import predicted_cycles
from edgepack.compiler.kernels.tuned import rule_of
from edgepack.compiler.planner.program import Program
from edgepack.compiler.planner.select import KernelSelector
from edgepack.compiler.planner.tuning_between import Between, apart, between_calls

__all__ = ["Asked", "write_choices"]

#: Candidates of a group, at most, and as many as each has before others have more.
MOST, LEAST = 32, 3

#: Groups that are estimated to take less than this part of a run have none.
WORTH_LOOKING = 0.001


@dataclass(frozen=True)
class Asked:
    """Of which groups candidates are asked for.

    Attributes:
        path: of the JSON file with the answer.
        wanted: their keys; () for all that take more than a little of a run.
        seconds: after which no more candidates are made, where each group has some; None for no end.
        part, parts: every ``parts``-th of them gets candidates, from the one of number ``part`` on.
        tried: by key, digests of schedules that are no candidates any more.
    """

    path: Path
    wanted: tuple[str, ...] = ()
    seconds: float | None = None
    part: int = 0
    parts: int = 1
    tried: Mapping[str, Sequence[str]] = field(default_factory=dict)


def write_choices(
    program: Program, selector: KernelSelector, asked: Asked, names: Sequence[str] = ()
) -> None:
    """Writes a JSON list: for each group with a schedule its key, rule, schedule, the cycles that are
    predicted, the symbols of its kernels, candidates, and whether there may be more of these. Groups with one
    key are one. Then the same of what is decided between calls and has candidates: in place of symbols the
    nodes of each step whose time that changes.

    Args:
        names: of the model's nodes, by index.
    """
    found: dict[str, dict[str, Any]] = {}
    pending: dict[str, Iterator[Candidate]] = {}
    between = {one.key: one for one in between_calls(program, selector.target)}
    wanted = sorted(asked.wanted or _worth_looking(program, selector, between.values()))
    looked_at = set(wanted[asked.part :: asked.parts])
    for call in program.calls:
        made = call.implementation
        if made is None or made.schedule is None or (rule := rule_of(made)) is None:
            continue
        key = group_key(call.fused_groups)
        if key in found:
            found[key]["symbols"] = sorted({*found[key]["symbols"], *call.symbols})
            continue
        if key in looked_at:
            constants = [selector.constants_of(group) for group in call.fused_groups]
            known = asked.tried.get(key, ())
            pending[key] = each_candidate(call.fused_groups, made, selector.target, constants, known)
            if call.first is not None:
                pending[key] = chain(apart(call, selector, known), pending[key])
        cycles = predicted_cycles(made, selector.target) if key in looked_at else 0.0
        now = Candidate(rule.name, plain_schedule(made.schedule), cycles)
        found[key] = {**_entry(key, call.fused.title, now), "symbols": sorted(call.symbols)}
    for key in looked_at & between.keys():
        pending[key] = between[key].candidates(selector, asked.tried.get(key, ()))
    made_of, cut_short = _in_turns(pending, asked.seconds)
    for key, others in made_of.items():
        if key in between and others:
            decided = between[key]
            nodes = sorted([names[i] for i in step if i < len(names)] for step in decided.nodes)
            found[key] = {**_entry(key, decided.title, decided.now(selector)), "nodes": nodes}
        if key in found:
            found[key]["candidates"] = [_plain(one) for one in others]
            found[key]["more"] = key in cut_short
    asked.path.write_text(json.dumps(list(found.values()), indent=1), encoding="utf-8", newline="\n")


def _entry(key: str, title: str, now: Candidate) -> dict[str, Any]:
    """A group without its candidates, and ``now`` of it."""
    return {"group": key, "title": title, **_plain(now), "candidates": [], "more": False}


def _plain(one: Candidate) -> dict[str, Any]:
    return {"rule": one.rule, "schedule": one.schedule, "cycles": round(one.cycles, 1)}


def _in_turns(
    pending: Mapping[str, Iterator[Candidate]], seconds: float | None
) -> tuple[dict[str, list[Candidate]], set[str]]:
    """The candidates of each group, and the groups for more of which there was no time."""
    found: dict[str, list[Candidate]] = {key: [] for key in pending}
    left, end = dict(pending), None if seconds is None else time.monotonic() + seconds
    for number in range(MOST):
        for key in list(left):
            if end is not None and number >= LEAST and time.monotonic() > end:
                return found, set(left)
            one = next(left[key], None)
            if one is None:
                del left[key]
            else:
                found[key].append(one)
    return found, set()


def _worth_looking(program: Program, selector: KernelSelector, between: Iterable[Between]) -> set[str]:
    """Keys of the groups that are estimated to take a part of a run that is worth it, and of what is decided
    between such."""
    cycles: dict[str, float] = defaultdict(float)
    of_call: dict[int, float] = {}
    for call in program.calls:
        if call.implementation is not None:
            works = [work_of(group.function) for group in call.fused_groups]
            each = [estimated_cycles(call.implementation, work, selector.target) for work in works]
            of_call[id(call)] = sum(each)
            cycles[group_key(call.fused_groups)] += sum(each)
    least = WORTH_LOOKING * sum(of_call.values())
    for one in between:
        cycles[one.key] = sum(of_call.get(id(call), 0.0) for call in one.calls)
    return {key for key, value in cycles.items() if value >= least}
