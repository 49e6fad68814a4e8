"""What would become of a model on a device: what ``edgepack check`` shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from edgepack.plan.types import Copy, Plan
from edgepack.text.operators import plain_operators

__all__ = ["CheckedMemory", "CheckedStep", "ModelCheck", "Refused"]


@dataclass(frozen=True)
class Refused:
    """An operator that cannot be compiled.

    Attributes:
        operator: its name, with its domain if that is not ONNX's own.
        nodes: names of the model's nodes.
        reason: why not.
    """

    operator: str
    nodes: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class CheckedStep:
    """A kernel's run in the plan that the model would get.

    Attributes:
        rule: the schedule rule that serves it.
        operators: what is fused into it.
        nodes: names of the model's nodes that it computes.
        flops: floating point operations (a multiply-add is two).
        bytes_moved: least bytes read and written.
    """

    rule: str
    operators: tuple[str, ...]
    nodes: tuple[str, ...]
    flops: int
    bytes_moved: int


@dataclass(frozen=True)
class CheckedMemory:
    """What a model takes of a microcontroller's memory at least: start code, the C library and the stack are
    known when it is packed.

    Attributes:
        name: ``flash``, ``RAM``, or the name of another one in the device's file.
        parts: bytes by part: ``kernels``, ``params``, ``arena``, ``inputs and outputs``.
        nbytes: of all parts.
        budget: bytes that a model may take of it; 0 is not limited.
    """

    name: str
    parts: Mapping[str, int]
    nbytes: int
    budget: int


@dataclass(frozen=True)
class ModelCheck:
    """What would become of a model on a device.

    Attributes:
        ok: whether it can be compiled.
        model, device: the file's name, the device's.
        fits: whether a microcontroller has room for it: False is certain, None says that only a pack can
            tell. None for devices that limit nothing, and for what cannot be compiled.
        message: why it cannot be compiled, or does not fit, a sentence; "" if it can.
        hint: what to try, with a command for each part that can be compiled.
        refused: operators that cannot be compiled; all that are seen at once.
        cuts: parts of the model that can be compiled, as those of :class:`~edgepack.errors.ModelError`.
        steps: in order.
        params_bytes: of the params' data.
        params_growth: how many of these are there for speed only.
        arena_bytes, arena_lower_bound: memory of a run, and the least that any plan needs.
        memories: of a microcontroller; () where something has room in none of several.
        warnings: what would be slow or is otherwise not as it could be, a sentence each.
    """

    ok: bool
    model: str
    device: str
    message: str = ""
    hint: str = ""
    refused: tuple[Refused, ...] = ()
    cuts: tuple[Mapping[str, Any], ...] = ()
    steps: tuple[CheckedStep, ...] = ()
    params_bytes: int = 0
    params_growth: int = 0
    arena_bytes: int = 0
    arena_lower_bound: int = 0
    warnings: tuple[str, ...] = ()
    fits: bool | None = None
    memories: tuple[CheckedMemory, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def of_plan(cls, plan: Plan, *, model: str, device: str) -> ModelCheck:
        """The check of a model that can be compiled."""
        kernels = {kernel.symbol: kernel for kernel in plan.kernels}
        steps = []
        for step in plan.steps:
            if isinstance(step, Copy):
                continue
            kernel = kernels[step.kernel]
            operators = plain_operators(kernel.ops)
            steps.append(CheckedStep(kernel.rule, operators, step.nodes, kernel.flops, kernel.bytes_moved))
        return cls(
            ok=True,
            model=model,
            device=device,
            steps=tuple(steps),
            params_bytes=plan.params_bytes,
            params_growth=plan.params_growth,
            arena_bytes=plan.arena.nbytes,
            arena_lower_bound=plan.arena.lower_bound,
            warnings=tuple(dict.fromkeys(plan.warnings)),
        )
