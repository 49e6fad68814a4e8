"""Schedules that were measured where a model runs: what a tuner finds and a pack takes. Plain data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["TunedChoice", "schedule_digest"]


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
