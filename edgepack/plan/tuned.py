"""Schedules that were measured where a model runs: what a tuner finds and a pack takes. Plain data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["AHEAD", "APART", "PAIR", "TunedChoice", "schedule_digest", "weights_of"]

#: In place of a rule: that two groups are computed by a kernel each, not by one for both. It has no schedule.
APART = "apart"

#: In place of a rule: how much of a group's weights the kernels before it fetch into the caches, ``percent``
#: of what the planner would have them fetch. Its key is :func:`weights_of` the group's.
AHEAD = "ahead"

#: Between the keys of groups that one call computes.
PAIR = " then "


def weights_of(group: str) -> str:
    """What names the weights of a group in a file of tuned schedules."""
    return f"weights of {group}"


def schedule_digest(rule: str, schedule: Mapping[str, Any]) -> str:
    """What names a rule's schedule, of plain JSON, among those of a group that were tried."""
    text = json.dumps([rule, schedule], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class TunedChoice:
    """The schedule that was the fastest for one fused group on one kind of CPU or GPU.

    Attributes:
        cpu: the kind of CPU, :attr:`edgepack.plan.target.CpuTarget.cpu_kind`, or of GPU,
            :attr:`edgepack.plan.gpu_target.GpuTarget.gpu_kind`.
        group: operators, shapes and types of the fused group, a text that is the same wherever a model has
            such a group (``compiler/kernels/group_key.py``).
        rule: which rule of kernels it is for; on a GPU the rules of all parts of the group (``+`` between).
            Or what is decided between kernels: :data:`APART`, :data:`AHEAD`.
        schedule: its fields, of plain JSON; those that are left out are decided by the rule.
        gain: the time by the rule's own choice, divided by the time with this one, in the network.
        counted: instructions were counted under an emulator, and no time was measured.
        version: of edgepack, by which it was measured.
    """

    cpu: str
    group: str
    rule: str
    schedule: Mapping[str, Any]
    gain: float
    counted: bool = False
    version: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TunedChoice:
        """Inverse of :meth:`to_json`."""
        return cls(**data)
