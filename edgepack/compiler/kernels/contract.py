"""What a schedule rule returns: the contract between ``kernels`` and ``plan``.

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

__all__ = ["Implementation", "Operand", "Packing", "RuleError", "Stage"]

Array = np.ndarray[Any, Any]


class RuleError(Exception):
    """A rule does not serve this group; the text says why."""


@dataclass(frozen=True)
class Operand:
    """What a stage's pointer parameter is.

    "param" and "output": of the group, by index; "packed": of :attr:`Implementation.packed`; "temp": an arena
    buffer that lives from the first to the last stage that names it; "scratch": memory of the thread's own,
    whose content does not outlive the stage; "ahead": constants of a later call, which the kernel only asks
    the caches to fetch, see :attr:`Implementation.fetching`.
    """

    kind: Literal["param", "output", "packed", "temp", "scratch", "ahead"]
    index: int


@dataclass(frozen=True)
class Stage:
    """One kernel of an implementation; stages run in order.

    Attributes:
        function: TIR function with the signature above; ``global_symbol`` is set when symbols are assigned.
        tasks: how many tasks it has, at least 1.
        operands: what each pointer is.
    """

    function: Any
    tasks: int
    operands: tuple[Operand, ...]


@dataclass(frozen=True)
class Packing:
    """A constant parameter of the group in the layout that the kernel reads.

    ``transform`` maps the model's array to the packed one. ``key`` names layout and parameters: two call
    sites with the same constant and key share the packed array.
    """

    param: int
    key: str
    transform: Callable[[Array], Array]


@dataclass(frozen=True)
class Implementation:
    """How a group is computed.

    Attributes:
        rule: name of the rule, for reports.
        stages: kernels, in order.
        packed: constants in the kernels' own layouts.
        temps: bytes of each temp.
        scratch: bytes of each scratch buffer of one thread.
        parameters: what the rule chose, for reports.
        flops: floating point operations of one execution, computed directly.
        products, weights: multiply-adds that the kernels really do, and bytes of weights that they read; 0
            where that is not known.
        fetching: makes the same that also fetches a number of bytes at its operand "ahead" into the caches,
            evenly over its work; None where the rule cannot.
    """

    rule: str
    stages: tuple[Stage, ...]
    packed: tuple[Packing, ...] = ()
    temps: tuple[int, ...] = ()
    scratch: tuple[int, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    flops: int = 0
    products: int = 0
    weights: int = 0
    fetching: Callable[[int], Implementation] | None = None
