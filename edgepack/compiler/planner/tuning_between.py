"""What a tuner may decide between calls: whether one kernel computes two of them, and how much of a call's
weights those before it fetch into the caches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from edgepack.compiler.kernels.candidates import Candidate, pair_candidates
from edgepack.compiler.kernels.group_key import group_key
from edgepack.compiler.planner.fuse_pairs import possible_pairs
from edgepack.compiler.planner.program import Call, Program
from edgepack.compiler.planner.select import KernelSelector
from edgepack.plan.target import CpuTarget
from edgepack.plan.tuned import AHEAD, APART, PAIR, weights_of

__all__ = ["Between", "apart", "between_calls"]

#: Nothing is predicted beside one kernel for both: what differs is traffic, which no instruction shows.
TWO_KERNELS = Candidate(APART, {}, 0.0)

#: Parts of what the planner would have fetched ahead that are tried, in percent.
PARTS = (0, 50, 100)


@dataclass
class Between(ABC):
    """Something that is decided between calls, wherever the model has such.

    Attributes:
        key: names it in the file of tuned schedules.
        calls: whose time it changes, of each place where it is decided.
        nodes: of each step whose time it changes the indices of its nodes: of two calls that one kernel may
            compute those of both.
    """

    key: str
    calls: list[Call] = field(default_factory=list)
    nodes: set[tuple[int, ...]] = field(default_factory=set)

    @property
    @abstractmethod
    def title(self) -> str:
        """For the user."""

    @abstractmethod
    def now(self, selector: KernelSelector) -> Candidate:
        """What is decided by now."""

    @abstractmethod
    def candidates(self, selector: KernelSelector, tried: Collection[str]) -> Iterator[Candidate]:
        """What else may be, but for those of the digests that were tried."""


class _Pair(Between):
    """Two calls with a kernel each, which one might compute: the first two of ``calls``."""

    @property
    def title(self) -> str:
        return PAIR.join(call.fused.title for call in self.calls[:2])

    def now(self, selector: KernelSelector) -> Candidate:
        return TWO_KERNELS

    def candidates(self, selector: KernelSelector, tried: Collection[str]) -> Iterator[Candidate]:
        groups = [call.fused for call in self.calls[:2]]
        constants = [selector.constants_of(group) for group in groups]
        return pair_candidates(groups, selector.target, constants, tried)


class _Ahead(Between):
    """Weights of a call, the first of ``calls``, which calls before it fetch."""

    @property
    def title(self) -> str:
        return f"{self.calls[0].fused.title}: weights fetched ahead"

    def now(self, selector: KernelSelector) -> Candidate:
        return Candidate(AHEAD, {"percent": self._percent(selector)}, 0.0)

    def candidates(self, selector: KernelSelector, tried: Collection[str]) -> Iterator[Candidate]:
        for percent in PARTS:
            one = Candidate(AHEAD, {"percent": percent}, 0.0)
            if percent != self._percent(selector) and one.digest not in tried:
                yield one

    def _percent(self, selector: KernelSelector) -> int:
        return round(100 * selector.measured.ahead(self.calls[0].fused_groups))


def between_calls(program: Program, target: CpuTarget) -> list[Between]:
    """All that may be decided between the calls of a program, whose kernels are selected: each key once. Of
    most pairs no rule makes one kernel: they have no candidates. Nothing on a microcontroller, which has no
    caches to keep anything in."""
    found: dict[str, Between] = {}
    if target.freestanding:
        return []
    for first, second, both in possible_pairs(program):
        if first.implementation is not None and second.implementation is not None:
            pair = found.setdefault(key := group_key(both.fused_groups), _Pair(key))
            pair.calls += [first, second]
            pair.nodes.add(both.nodes)
    for call in program.calls:
        if call.prefetch is not None:
            reader = call.prefetch.call
            key = weights_of(group_key(reader.fused_groups))
            ahead = found.setdefault(key, _Ahead(key, [reader]))
            ahead.calls.append(call)
            ahead.nodes |= {reader.nodes, call.nodes}
    return list(found.values())


def apart(call: Call, selector: KernelSelector, tried: Collection[str]) -> Iterator[Candidate]:
    """A kernel each for the two groups that one kernel computes."""
    served = all(selector.implementation(group) is not None for group in call.fused_groups)
    if served and TWO_KERNELS.digest not in tried:
        yield TWO_KERNELS
