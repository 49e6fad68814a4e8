"""Instructions of a run of firmware, counted under an emulator whose counter advances with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edgepack.bundle.manifest import Manifest, StepRecord, VariantRecord

__all__ = ["Instructions", "StepInstructions", "read_instructions", "step_instructions"]


@dataclass(frozen=True)
class Instructions:
    """How many instructions firmware executed. They are exact, and no times: on a chip one takes a cycle or
    several.

    Attributes:
        run: of one run of the model, ``ep_session_run`` from its call to its return.
        repeatable: whether all runs that were counted took as many.
        load: to open the model and make a session.
        steps: of each step, in the order of the plan; with what calls its kernel, 50 or so.
    """

    run: int
    repeatable: bool
    load: int
    steps: tuple[int, ...]


@dataclass(frozen=True)
class StepInstructions:
    """A step of a run, and its instructions.

    Attributes:
        step: index into the manifest's steps.
        kernel: its symbol.
        share: of all steps' instructions.
        per_operation: instructions for each of the operations that the kernel's ``flops`` are; None where it
            has none.
    """

    step: int
    instructions: int
    share: float
    kernel: str
    rule: str
    nodes: tuple[str, ...]
    ops: tuple[str, ...]
    per_operation: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def read_instructions(result: Mapping[str, Any]) -> Instructions:
    """What a program printed that counted. KeyError, TypeError or ValueError for something else."""
    runs, steps = _counts(result["run_instructions"]), _counts(result["step_instructions"])
    if not runs:
        raise ValueError("no run was counted")
    (load,) = _counts([result["load_instructions"]])
    return Instructions(runs[-1], len(set(runs)) == 1, load, steps)


def step_instructions(record: Manifest | VariantRecord, counts: Sequence[int]) -> list[StepInstructions]:
    """What each step computes and how many instructions it took, in the order in which they run.

    Args:
        record: what was measured: :meth:`Manifest.code`.
        counts: of each step.
    """
    kernels = {kernel.symbol: kernel for kernel in record.kernels}
    total = sum(counts) or 1

    def entry(index: int, step: StepRecord, count: int) -> StepInstructions:
        kernel = kernels.get(step.kernel)
        flops = kernel.flops if kernel is not None else 0
        return StepInstructions(
            step=index,
            instructions=count,
            share=count / total,
            kernel=step.kernel,
            rule=kernel.rule if kernel is not None else "",
            nodes=step.nodes,
            ops=kernel.ops if kernel is not None else (),
            per_operation=count / flops if flops > 0 else None,
        )

    return [
        entry(index, step, count)
        for index, (step, count) in enumerate(zip(record.steps, counts, strict=True))
    ]


def _counts(values: Any) -> tuple[int, ...]:
    """A list of whole numbers of the program's JSON."""
    if not isinstance(values, list):
        raise TypeError(f"{type(values).__name__} is no list of counts")
    if any(type(value) is not int or value < 0 for value in values):
        raise ValueError("a count of instructions is no whole number")
    return tuple(values)
