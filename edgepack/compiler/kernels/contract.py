"""What a rule returns: the contract between ``kernels`` and ``planner``.

A kernel is a TIR function whose parameters are plain pointers followed by ``lo`` and ``hi`` (int32):

    int32_t kernel(void *p0, ..., int32_t lo, int32_t hi)

It does tasks ``lo`` to ``hi - 1`` of its task count, in any order, on any thread, and returns 0. Tasks of
one kernel write disjoint memory. It calls nothing but libm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from tvm.tirx import PrimFunc

from edgepack.compiler.kernels.errors import RuleError, is_the_machines
from edgepack.compiler.kernels.schedule import Schedule
from edgepack.plan.cascade import Cascade
from edgepack.plan.custom import CFunction

__all__ = [
    "Array",
    "Implementation",
    "Operand",
    "OperandKind",
    "Overlap",
    "Packing",
    "RowWindow",
    "RuleError",
    "Stage",
    "is_the_machines",
]

Array = np.ndarray[Any, Any]

OperandKind = Literal["param", "output", "packed", "temp", "scratch", "prefetch"]


@dataclass(frozen=True)
class Operand:
    """What one pointer parameter of a kernel is.

    Attributes:
        kind: "param" and "output": a parameter or result of the fused function; "packed": a constant of
            :attr:`Implementation.packed`; "temp": a buffer in the arena that lives from the first to the last
            stage that names it; "scratch": memory of the thread's own, whose content does not outlive the
            stage; "prefetch": constants of a later call, which the kernel only asks the caches to fetch, see
            :attr:`Implementation.with_prefetch`.
        index: which one of its kind.
        offset: bytes from its start to where the pointer points, of a "param", an "output" or a "temp".
        narrowed: type of which the elements of a "param", a constant, are stored; "" for its own.
        beside: of a "param" whose numbers share words with those of another constant, which that is, and what
            is subtracted from it (:func:`edgepack.compiler.kernels.narrow_integers.as_words`).
    """

    kind: OperandKind
    index: int
    offset: int = 0
    narrowed: str = ""
    beside: tuple[int, int] | None = None


@dataclass(frozen=True)
class Stage:
    """One kernel of an implementation; stages run in order. Those with one function share a kernel.

    Attributes:
        function: TIR function with the signature above; ``global_symbol`` is set when symbols are assigned.
        tasks: how many tasks it has, at least 1.
        operands: what each pointer is.
    """

    function: PrimFunc
    tasks: int
    operands: tuple[Operand, ...]


@dataclass(frozen=True)
class Overlap:
    """That the output may lie over a parameter which nothing reads after the kernel.

    Attributes:
        param: which parameter of the fused function.
        most: bytes from the parameter's first to the output's first, at most; negative where the output has
            to begin before. The kernel has one task. None: both begin at one place, and tasks may be many.
    """

    param: int
    most: int | None = None


@dataclass(frozen=True)
class RowWindow:
    """Which rows of a parameter a row of the output is made of: row ``y`` of ``size`` rows from
    ``y * stride - pad`` on, as far as the parameter has them.

    Attributes:
        param: which parameter of the fused function.
    """

    param: int
    size: int = 1
    stride: int = 1
    pad: int = 0


@dataclass(frozen=True)
class Packing:
    """A constant parameter of the fused function in the layout that the kernel reads.

    ``transform`` maps the model's array to the packed one. ``key`` names layout and parameters: two call
    sites with the same constant and key share the packed array.
    """

    param: int
    key: str
    transform: Callable[[Array], Array]


@dataclass(frozen=True)
class Implementation:
    """How a fused group is computed.

    Attributes:
        rule: name of the rule, for reports.
        stages: kernels, in order.
        packed: constants in the kernels' own layouts.
        temps: bytes of each temp.
        scratch: bytes of each scratch buffer of one thread.
        overlaps: where its output may lie over what it reads; it has one stage and one output then.
        rows: of a group by rows (:attr:`FusedGroup.by_rows`) the rows of each parameter of which that is
            known; it has as many tasks for each row of its output. None where tasks are no rows.
        schedule: what the rule decided; None of a rule that has no class of schedules.
        parameters: what reports say beside the schedule.
        flops: floating point operations of one execution, computed directly.
        slow: whether the kernels compute one element at a time, or gather what they read
            (``kernels/estimate.py`` says what that costs).
        refused: why the last of the faster rules that are for such groups did not serve this one.
        multiply_adds, weights: multiply-adds that the kernels really do, and bytes of weights that they
            read; 0 where that is not known.
        rate: how many of these multiply-adds take the time of one of float32.
        c_function: what is called instead of a kernel that is made: there is one stage, of one task, whose
            operands are its pointers; None elsewhere.
        cascade: kernels that are called instead of one that is made, as above; None elsewhere.
        with_prefetch: makes an implementation that computes the same and also fetches a number of bytes at
            its operand "prefetch" into the caches, evenly over its work; None where the rule cannot.
    """

    rule: str
    stages: tuple[Stage, ...]
    packed: tuple[Packing, ...] = ()
    temps: tuple[int, ...] = ()
    scratch: tuple[int, ...] = ()
    overlaps: tuple[Overlap, ...] = ()
    rows: tuple[RowWindow, ...] | None = None
    schedule: Schedule | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    flops: int = 0
    slow: bool = False
    refused: str = ""
    multiply_adds: int = 0
    weights: int = 0
    rate: float = 1.0
    c_function: CFunction | None = None
    cascade: Cascade | None = None
    with_prefetch: Callable[[int], Implementation] | None = None

    @property
    def chosen(self) -> dict[str, Any]:
        """What the rule chose, for reports."""
        return {**(self.schedule.printed() if self.schedule else {}), **self.parameters}
