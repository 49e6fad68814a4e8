"""The rules that there are, and the kernels that they choose for each fused group of operators.

Rules are found by looking into every module of ``kernels/cpu`` and ``kernels/gpu``. A rule that fails is
reported, and the next one is tried: a schedule that does not apply is never a crash and never silent. What
fails for want of memory is no rule's fault and ends the job
(:class:`~edgepack.compiler.kernels.errors.RuleError` has the line).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType, ModuleType
from typing import NoReturn, TypeVar

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels import cpu, gpu
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.errors import defect
from edgepack.compiler.kernels.estimate import estimated_cycles, work_of
from edgepack.compiler.kernels.gpu.rule import GpuRule
from edgepack.compiler.kernels.rule import OTHER_DTYPE, PairRule, Rule
from edgepack.compiler.kernels.schedule import Given, Schedule, ScheduleError
from edgepack.plan.opt_level import ALL
from edgepack.plan.target import CpuTarget

__all__ = ["GPU_RULES", "PAIR_RULES", "RULES", "find_rules", "implement", "implement_pair", "with_prefetch"]

AnyRule = TypeVar("AnyRule", Rule, PairRule, GpuRule)


def find_rules(package: ModuleType, kind: type[AnyRule]) -> tuple[AnyRule, ...]:
    """The rules at the top level of a package's modules, in the order in which they are tried.

    Args:
        package: what its rules' kernels run on: ``cpu`` or ``gpu``.
        kind: :class:`Rule`, :class:`PairRule` or :class:`GpuRule`.

    Raises:
        ValueError: if two rules have the same name or order.
    """
    found: list[AnyRule] = []
    for module in _modules(package):
        for value in vars(module).values():  # a module may also have imported another one's rule
            if isinstance(value, kind) and not any(value is known for known in found):
                found.append(value)
    for rule in found:
        same = [other.name for other in found if rule.name == other.name or rule.order == other.order]
        if len(same) > 1:
            raise ValueError(f"rules {' and '.join(same)} have the same name or order ({rule.order})")
    return tuple(sorted(found, key=lambda rule: rule.order))


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    def fail(_: str) -> NoReturn:
        raise  # noqa: PLE0704 - called where a package could not be imported, which is not to be passed over

    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", onerror=fail):
        yield importlib.import_module(info.name)


#: Reasons that say no more than that a rule is for other groups.
NOT_FOR_SUCH = {"another operator", "not elementwise", "no reduction"}

#: In the order in which they are tried.
RULES = find_rules(cpu, Rule)
PAIR_RULES = find_rules(cpu, PairRule)
GPU_RULES = find_rules(gpu, GpuRule)


def implement(
    fused: FusedGroup,
    target: CpuTarget,
    constants: frozenset[int],
    warn: Callable[[str], None],
    *,
    fast_only: bool = False,
    given: Given = MappingProxyType({}),
) -> Implementation:
    """The implementation of a fused group by the first fast rule that serves it, else by the fastest other.

    Fast are the rules for anchors, and for a group without one those for blocks. Also for one with a row
    stride the first rule that serves it decides: if that one does not heed it, no rule serves the group
    (RuleError), for a slower rule would cost more than a copy.

    Args:
        constants: indices of its parameters that are constant at every call.
        warn: is told in one sentence of a rule that failed in a way that it did not foresee.
        fast_only: RuleError where no fast rule serves it.
        given: schedules in place of those that the rules would propose. One that does not fit is told, and
            the rule proposes its own.
    """
    return _Choice(fused, target, constants, warn, given).made(fast_only)


class _Choice:
    """The choice of a rule for one fused group.

    Attributes:
        rules: those of the target's level of optimisation, in order.
        refused: why the last of the fast rules that are for such groups does not serve it.
    """

    def __init__(
        self,
        fused: FusedGroup,
        target: CpuTarget,
        constants: frozenset[int],
        warn: Callable[[str], None],
        given: Given,
    ) -> None:
        self.fused, self.target, self.constants, self.warn = fused, target, constants, warn
        self.given = given
        self.refused = ""
        self.rules = [
            rule
            for rule in RULES
            if rule.level <= target.opt_level and (rule.heeds_rows or not fused.by_rows)
        ]

    def made(self, fast_only: bool) -> Implementation:
        fused = self.fused
        slow = [rule for rule in self.rules if not self._is_fast(rule)]
        for rule in self.rules:
            if rule in slow:
                continue
            if fused.row_stride is not None and not any(
                r.heeds_row_stride for r in self.rules if r.order >= rule.order
            ):
                break
            found = self._tried(rule)
            if found is not None and fused.row_stride is not None and not rule.heeds_row_stride:
                break
            if found is not None:
                return found
        if fast_only or fused.row_stride is not None:
            raise RuleError(f"no fast rule serves {fused.name}")
        return self._slow(slow)

    def _slow(self, rules: Sequence[Rule]) -> Implementation:
        """The fastest of what a rule for blocks and the first of the rest make of it."""
        work = work_of(self.fused.function)
        candidates: list[tuple[Rule, Implementation]] = []
        for rule in rules:
            if any(known.kind == "fallback" for known, _ in candidates):
                break
            found = self._tried(rule)
            if found is not None:
                candidates.append((rule, found))
        if not candidates:
            raise RuleError(f"no rule serves {self.fused.name}")
        rule, best = min(candidates, key=lambda c: estimated_cycles(c[1], work, self.target))
        if rule.warning and self.target.opt_level == ALL:
            self.warn(f"kernel {self.fused.title}: {rule.warning}")
        return replace(best, refused=self.refused)

    def _is_fast(self, rule: Rule) -> bool:
        return rule.kind == "anchor" or (rule.kind == "blocks" and self.fused.anchor is None)

    def _tried(self, rule: Rule) -> Implementation | None:
        schedule = self.given.get(rule.name)
        if schedule is None and rule.name in self.given:
            return None
        try:
            implement = partial(rule.implement, self.fused, self.target, self.constants)
            return _scheduled(implement, schedule, f"kernel {self.fused.title}: rule {rule.name}", self.warn)
        except RuleError as error:
            self._note(rule, str(error))
        except Exception as error:  # a defect in a rule costs speed, not the model
            reason = defect(error)
            self.warn(f"kernel {self.fused.title}: rule {rule.name} failed ({reason}); a slower rule is used")
            self._note(rule, f"it failed ({reason})")
        return None

    def _note(self, rule: Rule, reason: str) -> None:
        if not self._is_fast(rule) or reason in NOT_FOR_SUCH:
            return
        if not reason.startswith(OTHER_DTYPE):
            self.refused = f"{rule.name}: {reason}"
        elif not self.refused:  # any rule says so, whatever it is for
            self.refused = f"no faster rule takes {reason.removeprefix(OTHER_DTYPE)}"


def with_prefetch(
    implementation: Implementation, nbytes: int, warn: Callable[[str], None]
) -> Implementation | None:
    """The same, which also fetches bytes for a later call; None if that cannot be."""
    if implementation.with_prefetch is None:
        return None
    try:
        return implementation.with_prefetch(nbytes)
    except Exception as error:  # as above
        warn(f"rule {implementation.rule} cannot fetch ahead ({defect(error)}); a later kernel may wait")
        return None


def implement_pair(
    first: FusedGroup,
    second: FusedGroup,
    target: CpuTarget,
    constants: Sequence[frozenset[int]],
    warn: Callable[[str], None],
    given: Given = MappingProxyType({}),
) -> Implementation:
    """One implementation of a fused group and of the only one that reads its result, as its first argument.

    Args:
        constants: of each, the parameters that are constant at every call.
        warn, given: as for :func:`implement`.

    Raises:
        RuleError: if they are better done one after the other.
    """
    for rule in PAIR_RULES:
        schedule = given.get(rule.name)
        if schedule is None and rule.name in given:
            continue
        try:
            implement = partial(rule.implement, first, second, target, constants)
            title = f"kernels {first.name} and {second.name}: rule {rule.name}"
            return _scheduled(implement, schedule, title, warn)
        except RuleError:
            continue
        except Exception as error:  # as above
            reason = defect(error)
            warn(f"kernels {first.name} and {second.name}: no kernel for both ({reason}); they stay two")
    raise RuleError(f"no rule serves {first.name} and {second.name} together")


def _scheduled(
    implement: Callable[[Schedule | None], Implementation],
    schedule: Schedule | None,
    rule: str,
    warn: Callable[[str], None],
) -> Implementation:
    """What a rule makes with the schedule that is given, or, where that does not fit, with its own."""
    try:
        return implement(schedule)
    except ScheduleError as error:
        if schedule is None:
            raise RuntimeError(f"its own schedule does not fit: {error}") from error
        warn(f"{rule} was given a schedule that does not fit ({error}); it has chosen one")
    return _scheduled(implement, None, rule, warn)
