"""What instructions of a kernel count for on one CPU, so that schedules can be compared without running them.
Plain data, from a device's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["COMPARED", "NEVER", "InstructionCosts"]

#: A least gain that nothing has: a device's file turns off so what the one that it extends compares.
NEVER = 100.0

#: Rules of kernels whose schedules are compared, by the type of what they multiply.
COMPARED = tuple(
    f"{rule} {dtype}"
    for rule in ("conv2d.depthwise", "conv2d.igemm", "matmul.packed")
    for dtype in ("float32", "int8")
)


@dataclass(frozen=True)
class InstructionCosts:
    """How many instructions of the machine one of a kernel's TIR becomes outside of its inner loop, which is
    read from the machine code itself (``compiler/kernels/predict/counted.py``).

    Attributes:
        multiply_add, arithmetic, load, store, move, scalar, branch: of each kind.
        least_gain: by rule and type (``conv2d.depthwise float32``) how many times as fast a schedule has to
            be by prediction to be taken; what is not named is left as the rule has it.
    """

    multiply_add: float = 1.0
    arithmetic: float = 1.0
    load: float = 1.0
    store: float = 1.0
    move: float = 1.0
    scalar: float = 0.5
    branch: float = 2.0
    least_gain: tuple[tuple[str, float], ...] = ()

    def gain_of(self, rule: str) -> float | None:
        """The least gain of a rule and type; None of one that is not compared."""
        gain = dict(self.least_gain).get(rule, NEVER)
        return gain if gain < NEVER else None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> InstructionCosts:
        """Of plain data, as ``dataclasses.asdict`` and a device's file have them."""
        gains = data["least_gain"]
        pairs = gains.items() if isinstance(gains, Mapping) else gains
        return cls(**{**data, "least_gain": tuple((str(name), float(gain)) for name, gain in pairs)})
