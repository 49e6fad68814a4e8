"""What the GPU's rules return: kernels as text, and how they are launched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from edgepack.compiler.kernels.contract import Operand, Packing
from edgepack.compiler.kernels.gpu.group_schedule import NO_PARTS, GroupSchedule
from edgepack.compiler.kernels.schedule import Schedule

__all__ = ["FULL", "GpuImplementation", "GpuStage", "HalfOperands"]


@dataclass(frozen=True)
class HalfOperands:
    """What of a fused group is float32 to its function, and float16 in memory.

    Attributes:
        params: indices of the function's parameters, results among them.
        temps: whether what lies between its nests is, but for what is reduced: a sum may be far larger than
            its terms.
        constants: indices of parameters that are constants, if what is said of them is to be known.
        tf32: whether the operands of products may be rounded to TF32.
    """

    params: frozenset[int] = frozenset()
    temps: bool = False
    constants: frozenset[int] = frozenset()
    tf32: bool = False


#: Everything is in memory as it is computed.
FULL = HalfOperands()


@dataclass(frozen=True)
class GpuStage:
    """One launch of a kernel; stages run in order.

    Attributes:
        text: the kernel, with ``SYMBOL`` for its name (``gpu/code.py``).
        operands: what each pointer is: "param", "output", "temp", or "packed": one of ``packed``.
        groups: work groups (CUDA: blocks) in x, y and z.
        threads: work items (threads) of each.
        local_bytes: memory that the work items of a group share.
        packed: constants in the kernel's own layouts.
        partial_bytes: of the tensor of partial sums that it leaves, which is the temp behind the group's
            own; 0 for none.
        last: the kernel that adds these up, run next.
        schedule: what its rule decided.
    """

    text: str
    operands: tuple[Operand, ...]
    groups: tuple[int, int, int]
    threads: tuple[int, int, int]
    local_bytes: int = 0
    packed: tuple[Packing, ...] = ()
    partial_bytes: int = 0
    last: GpuStage | None = None
    schedule: Schedule | None = None


@dataclass(frozen=True)
class GpuImplementation:
    """How a fused group is computed on a GPU.

    Attributes:
        rules: names of the rules that made its stages, one for each.
        stages: launches, in order.
        temps: bytes of each tensor between stages.
        parameters: what the rules chose, for reports.
        flops: floating point operations of one execution, computed directly.
        schedule: what was decided about all of its parts.
    """

    rules: tuple[str, ...]
    stages: tuple[GpuStage, ...]
    temps: tuple[int, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    flops: int = 0
    schedule: GroupSchedule = NO_PARTS
