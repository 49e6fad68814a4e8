"""Schedules: what the builder of a kernel decides, as plain data.

A rule that has decisions to make names its class of schedules (``Rule.schedule``): a frozen dataclass of
numbers, texts and truth values. Its ``propose`` asks the cost model for those that are left open, and refuses
what does not fit the group. So the same function serves a pack, where all is open, and whoever knows better:
a test that wants a form, a benchmark that compares some, a tuner that has measured them. ``inspect`` prints
what a kernel was made with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.errors import ScheduleError
from edgepack.plan.target import CpuTarget

__all__ = [
    "PLANNED",
    "Given",
    "Schedule",
    "ScheduleError",
    "Schedules",
    "by",
    "check_register_tile",
    "nothing_given",
]

#: Fields that the planner decides, not a rule: nobody else has memory for what they ask for.
PLANNED = frozenset({"prefetch_bytes"})

AnySchedule = TypeVar("AnySchedule", bound="Schedule")


@dataclass(frozen=True)
class Schedule:
    """What a builder decides.

    A field is an integer, a text, a truth value, or some integers (``tuple[int, ...]`` or of fixed length).
    One that is None is left open, for the cost model to decide, or has no meaning beside the others. An
    implementation's schedule, given again for the same group and target, makes the same kernels.
    """

    def printed(self) -> dict[str, Any]:
        """What ``inspect`` and reports say of it."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: by(value) for name, value in values.items() if value is not None}

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON has them; those that are open are left out."""
        found: dict[str, Any] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None:
                found[one.name] = list(value) if isinstance(value, tuple) else value
        return found

    @classmethod
    def from_json(cls: type[AnySchedule], data: Mapping[str, Any]) -> AnySchedule:
        """What :meth:`to_json` made.

        Raises:
            ScheduleError: for a field that there is not (any more), or a value that is none of its own.
        """
        known = {one.name for one in fields(cls)}
        if unknown := sorted(set(data) - known):
            raise ScheduleError(f"{cls.__name__} has no field {', '.join(unknown)}")
        found = cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in data.items()})
        found.check_types()
        return found

    def check_types(self) -> None:
        """ScheduleError where a field holds what its type does not allow, or a number below its default: 1 of
        one that may be open."""
        hints = get_type_hints(type(self))
        for one in fields(self):
            value, least = getattr(self, one.name), 1 if one.default is None else 0
            numbers = value if isinstance(value, tuple) else (value,)
            small = any(type(number) is int and number < least for number in numbers)
            if small or not _is_a(value, hints[one.name]):
                raise ScheduleError(f"{value!r} is no {one.name} of {type(self).__name__}")


def by(value: Any) -> Any:
    """A value as reports print it: integers as in ``6x16``."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else value


def _is_a(value: Any, hint: Any) -> bool:
    """Whether a value is one of a field's type."""
    if get_origin(hint) in (Union, UnionType):
        return any(_is_a(value, one) for one in get_args(hint))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        if not isinstance(value, tuple):
            return False
        if parts[-1] is Ellipsis:
            return all(_is_a(one, parts[0]) for one in value)
        return len(value) == len(parts) and all(map(_is_a, value, parts))
    return type(value) is (NoneType if hint is None else hint)


#: What is given for a fused group: by rule its schedule, or None where that rule is not to serve it. Rules
#: that are not named decide for themselves.
Given = Mapping[str, Schedule | None]

#: What is given for the fused groups that one call computes: one, or two in their order.
Schedules = Callable[[Sequence[FusedGroup]], Given]


def nothing_given(groups: Sequence[FusedGroup]) -> Given:
    """The cost models decide."""
    return {}


def check_register_tile(tile: tuple[int, int], target: CpuTarget, columns: int, dtype: str) -> None:
    """ScheduleError where a product of so many columns has no such tile of accumulators on a target."""
    high, wide = tile
    lanes, registers = target.lanes(dtype), target.usable_registers
    if not target.vector_bits and "int" in dtype:  # they are in the registers of pointers and counters
        registers = max(registers, target.pointer_registers)
    if high < 1 or not 1 <= wide <= columns or (wide % lanes and wide != columns):
        raise ScheduleError(f"a register tile of {by(tile)}, of {columns} columns in vectors of {lanes}")
    if high * -(-wide // lanes) > registers:
        raise ScheduleError(f"a register tile of {by(tile)} in {registers} registers of {lanes}")
