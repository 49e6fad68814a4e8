"""A rule: one way to turn a fused group of operators into kernels.

A rule is an object at the top level of the module that has its kernel. The registry finds it there; nothing
else has to be edited to add one::

    RULE = Rule("conv2d.igemm", order=400, dtypes=PRODUCTS, apply=conv2d, heeds_row_stride=True)

Rules are tried by ``order``, lowest first, and the first that serves a fused group makes its kernels. So a
rule for a special case has a lower order than the one for the general case. Orders are a hundred apart to
leave room:

    100 to 400    convolutions: depthwise, Winograd, grouped, implicit GEMM
    500           pooling
    600           attention
    650           recurrent layers
    670           selection: sorting, and results of varying size
    680, 690      decision trees; probabilities of pairs of classes
    700, 800      matrix products: constant weights, two activations
    850, 870      group norms, cumulative sums
    900, 1000     reductions with what surrounds them, elementwise
    1100 to 1300  what TVM's schedules make of everything else; the last one serves whatever TVM can lower
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.schedule import Schedule, ScheduleError
from edgepack.plan.dtypes import DTYPES
from edgepack.plan.opt_level import TILED, OptLevel
from edgepack.plan.target import CpuTarget

__all__ = ["EVERY_DTYPE", "FLOAT32", "OTHER_DTYPE", "PRODUCTS", "PairRule", "Rule"]

#: How a rule's refusal of an element type starts.
OTHER_DTYPE = "it does not take "

FLOAT32 = frozenset({"float32"})
#: Element types that the buffers of a product by register tiles may have, those of its epilogue too. Which of
#: them are multiplied with which, its micro-kernels say.
PRODUCTS = FLOAT32 | {"float64", "int32", "int16", "int8", "uint8"}
EVERY_DTYPE = frozenset(DTYPES)

#: (fused group, target, indices of its parameters that are constant at every call) -> implementation; of a
#: rule with a class of schedules also the one that is given, if one is.
Apply = Callable[..., Implementation]

#: (first, second fused group, target, for each of them its constant parameters) -> implementation; also the
#: schedule, as above.
ApplyToPair = Callable[..., Implementation]


@dataclass(frozen=True)
class Rule:
    """One way to compute a fused group.

    Attributes:
        name: unique among the CPU's rules.
        order: unique too; rules are tried lowest first.
        dtypes: element types that it takes; on a fused group that reads or writes another it is not tried.
        apply: makes the kernels. RuleError if it does not serve the fused group.
        heeds_row_stride: whether its kernels write rows that lie ``FusedGroup.row_stride`` elements apart.
        heeds_rows: whether tasks are rows where ``FusedGroup.by_rows`` says so; not tried there otherwise.
        warning: what the user is told of a fused group that this rule serves; "" for nothing.
        kind: "anchor": what has this anchor; "blocks": any group whose blocks it understands, which is slow
            for one with an anchor; "fallback": what nothing else serves, slowly.
        schedule: the class of what it decides; None for a rule that takes none.
        level: of optimisation, from which on it is tried: PLAIN for plain loops and for what is the only way
            to compute an operator, TILED for register tiles and vectors, ALL for what computes several
            operators, or one by other arithmetic.
    """

    name: str
    order: int
    dtypes: frozenset[str]
    apply: Apply
    heeds_row_stride: bool = False
    heeds_rows: bool = False
    warning: str = ""
    kind: Literal["anchor", "blocks", "fallback"] = "anchor"
    schedule: type[Schedule] | None = None
    level: OptLevel = TILED

    def implement(
        self,
        fused: FusedGroup,
        target: CpuTarget,
        constants: frozenset[int],
        schedule: Schedule | None = None,
    ) -> Implementation:
        """The fused group's kernels. RuleError if the rule does not serve it.

        Args:
            constants: indices of its parameters that are constant at every call.
            schedule: in place of what the cost model would propose; ScheduleError if it does not fit.
        """
        _check_dtypes(self.dtypes, [fused])
        return self.apply(fused, target, constants, *_checked(schedule, self))


@dataclass(frozen=True)
class PairRule:
    """One way to compute two fused groups by one kernel, the second of which reads the first one's result as
    its first argument, and nothing else does.

    Attributes: as those of :class:`Rule`. Parameters of the implementation are those of the first group, then
    those of the second from its second one on.
    """

    name: str
    order: int
    dtypes: frozenset[str]
    apply: ApplyToPair
    schedule: type[Schedule] | None = None

    def implement(
        self,
        first: FusedGroup,
        second: FusedGroup,
        target: CpuTarget,
        constants: Sequence[frozenset[int]],
        schedule: Schedule | None = None,
    ) -> Implementation:
        """Kernels of both groups. RuleError if they are better done one after the other.

        Args:
            constants: of each group, the parameters that are constant at every call.
            schedule: in place of what the cost model would propose; ScheduleError if it does not fit.
        """
        _check_dtypes(self.dtypes, [first, second])
        return self.apply(first, second, target, constants, *_checked(schedule, self))


def _checked(schedule: Schedule | None, rule: Rule | PairRule) -> tuple[Schedule, ...]:
    """The schedule that is given for a rule, if one is. ScheduleError if it is none of that rule's."""
    if schedule is None:
        return ()
    if type(schedule) is not rule.schedule:
        raise ScheduleError(f"{type(schedule).__name__} is no schedule of {rule.name}")
    schedule.check_types()
    return (schedule,)


def _check_dtypes(dtypes: frozenset[str], groups: Iterable[FusedGroup]) -> None:
    others = {str(buffer.dtype) for group in groups for buffer in group.function.params} - dtypes
    if others:
        raise RuleError(OTHER_DTYPE + ", ".join(sorted(others)))
