"""A rule of a GPU: one way to compute a loop nest by one kernel.

As a rule of the CPU (``kernels/rule.py``) it is an object at the top level of the module that writes its
kernel, where the registry finds it. Rules are tried by ``order``, lowest first: products in matrix units,
products in tiles, sums, windows, and last what each work item computes alone, which serves every nest whose
expressions have a form in C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from edgepack.compiler.kernels.gpu.contract import GpuStage
from edgepack.compiler.kernels.gpu.kernel import Kernel
from edgepack.compiler.kernels.gpu.loop_nests import LoopNest
from edgepack.compiler.kernels.schedule import Schedule, ScheduleError
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.opt_level import TILED, OptLevel

__all__ = ["GpuRule", "checked"]

AnySchedule = TypeVar("AnySchedule", bound=Schedule)


@dataclass(frozen=True)
class GpuRule:
    """One way to compute a loop nest.

    Attributes:
        name: unique among the rules of GPUs; it is part of the kernels' names.
        order: unique too; rules are tried lowest first.
        apply: decides what the given schedule leaves open, and writes the kernel; the stage has the whole
            schedule. RuleError if the rule does not serve the nest, ScheduleError if the given one does not
            fit.
        schedule: the class of what it decides.
        level: of optimisation, from which on it is tried.
    """

    name: str
    order: int
    apply: Callable[[Kernel, LoopNest, GpuTarget, Any], GpuStage]
    schedule: type[Schedule]
    level: OptLevel = TILED

    def implement(
        self, kernel: Kernel, nest: LoopNest, target: GpuTarget, given: Schedule | None = None
    ) -> GpuStage:
        """The kernel of a nest. RuleError if the rule does not serve it.

        Args:
            given: what is decided already; ScheduleError if that does not fit.
        """
        return self.apply(kernel, nest, target, checked(given, self.schedule))


def checked(given: Schedule | None, kind: type[AnySchedule]) -> AnySchedule:
    """The given schedule, all open for None. ScheduleError if it is of another class or has wrong values."""
    if given is None:
        return kind()
    if type(given) is not kind:
        raise ScheduleError(f"{type(given).__name__} is no {kind.__name__}")
    given.check_types()
    return given
