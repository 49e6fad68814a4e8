"""What the worker is asked for of a model that is prepared: kernels for a target, or which there could be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from edgepack.pipeline.job import absolute_paths
from edgepack.plan.targets import Target
from edgepack.plan.tuned import TunedChoice
from edgepack.system.confinement import Access

__all__ = ["ChoicesJob", "CompileJob"]


@dataclass(frozen=True)
class CompileJob:
    """Compile a prepared model for one target.

    Attributes:
        imported: folder with the results of its :class:`ImportJob`.
        frontend: name of what reads these.
        name: the model's name, a C identifier.
        target: what the kernels are for.
        symbol_prefix: C identifier that starts every kernel's symbol.
        stages: a folder, made by the worker, for texts of what the model becomes on the way
            (:mod:`edgepack.plan.stages`); None for none. They change nothing of the results.
        tuned: schedules that were measured, in place of what the rules would propose.
    """

    model: Path
    imported: Path
    frontend: str
    name: str
    target: Target
    symbol_prefix: str
    stages: Path | None = None
    tuned: Sequence[TunedChoice] = ()

    task: ClassVar[str] = "compile"
    #: ``binaries.json`` lists the files that hold machine code: see :mod:`edgepack.plan.binary`.
    results: ClassVar[tuple[str, ...]] = ("plan.json", "params.bin", "binaries.json")

    @property
    def access(self) -> Access:
        return Access(
            absolute_paths(self.imported), () if self.stages is None else absolute_paths(self.stages)
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "frontend": self.frontend,
            "imported": str(self.imported.absolute()),
            "name": self.name,
            "target": self.target.to_json(),
            "symbol_prefix": self.symbol_prefix,
            "stages": "" if self.stages is None else str(self.stages.absolute()),
            "tuned": [choice.to_json() for choice in self.tuned],
        }


@dataclass(frozen=True)
class ChoicesJob(CompileJob):
    """By which schedules a model's kernels are computed, and what else may be tried: ``choices.json`` has it
    (``compiler/planner/tuning.py``). Nothing is compiled.

    Attributes:
        wanted: the groups of kernels that get candidates; () for those that are worth it.
        seconds: that making candidates for a CPU may take beyond a few of each group; None for any.
        part, parts: of these groups every ``parts``-th gets candidates, from the one of number ``part`` on.
        tried: by group, digests of schedules that are no candidates any more.
    """

    wanted: Sequence[str] = ()
    seconds: float | None = None
    part: int = 0
    parts: int = 1
    tried: Mapping[str, Sequence[str]] = field(default_factory=dict)

    task: ClassVar[str] = "choices"
    results: ClassVar[tuple[str, ...]] = ("choices.json",)

    def to_json(self) -> dict[str, Any]:
        return {
            **super().to_json(),
            "wanted": list(self.wanted),
            "seconds": self.seconds,
            "part": self.part,
            "parts": self.parts,
            "tried": {group: list(digests) for group, digests in self.tried.items()},
        }
