"""What was decided about a fused group on a GPU: which rule computes each of its parts, and its schedule.

A part is what one kernel computes, or what several of Winograd's form do. As JSON it is flat: the fields of
the schedule where there is one part, and ``1.tile`` for the field ``tile`` of the second of several.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from edgepack.compiler.kernels.schedule import Schedule, ScheduleError

__all__ = ["GROUP", "NO_PARTS", "GroupSchedule"]

#: The name under which the schedule of a whole group is given.
GROUP = "group"


@dataclass(frozen=True)
class GroupSchedule(Schedule):
    """Schedules of the parts of a fused group.

    Attributes:
        parts: of each part, in order, the rule's name and its schedule.
    """

    parts: tuple[tuple[str, Schedule], ...] = ()

    @property
    def rule(self) -> str:
        """Names of the rules, which say the group's form: ``contraction+rows+contraction``."""
        return "+".join(name for name, _ in self.parts)

    def with_part(self, number: int, rule: str, schedule: Schedule) -> GroupSchedule:
        """The same but for one part."""
        parts = (*self.parts[:number], (rule, schedule), *self.parts[number + 1 :])
        return replace(self, parts=parts)

    def printed(self) -> dict[str, Any]:
        return self._flat([schedule.printed() for _, schedule in self.parts])

    def to_json(self) -> dict[str, Any]:
        return self._flat([schedule.to_json() for _, schedule in self.parts])

    @staticmethod
    def _flat(fields: list[dict[str, Any]]) -> dict[str, Any]:
        if len(fields) == 1:
            return fields[0]
        return {f"{i}.{name}": value for i, one in enumerate(fields) for name, value in one.items()}

    @classmethod
    def of_rules(
        cls, rule: str, data: Mapping[str, Any], kinds: Mapping[str, type[Schedule]]
    ) -> GroupSchedule:
        """What :attr:`rule` and :meth:`to_json` say.

        Args:
            kinds: the class of schedules of each rule.

        Raises:
            ScheduleError: there is no such rule, part or field (any more), or a value is none of its own.
        """
        names = rule.split("+")
        fields: dict[str, dict[str, Any]] = {str(number): {} for number in range(len(names))}
        for key, value in data.items():
            number, _, name = key.partition(".") if len(names) > 1 else ("0", "", key)
            if number not in fields:
                raise ScheduleError(f"{rule} has no field {key}")
            fields[number][name] = value
        if unknown := [name for name in names if name not in kinds]:
            raise ScheduleError(f"there is no rule {unknown[0]} with schedules")
        pairs = zip(names, fields.values(), strict=True)
        return cls(tuple((name, kinds[name].from_json(one)) for name, one in pairs))

    def check_types(self) -> None:
        for _, schedule in self.parts:
            schedule.check_types()


NO_PARTS = GroupSchedule()
