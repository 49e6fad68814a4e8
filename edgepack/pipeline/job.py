"""What the worker is asked for, and the files that it leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgepack.plan.target import CpuTarget

__all__ = ["RESULT_FILES", "WORKER_FILES", "Job"]

#: What a successful worker leaves besides the recorded tensors.
WORKER_FILES = ("plan.json", "kernels.o", "params.bin", "recorded/recorded.json")
#: And what this side adds: a JSON list of the warnings, so that results from the cache give the same ones.
RESULT_FILES = (*WORKER_FILES, "warnings.json")


@dataclass(frozen=True)
class Job:
    """One compilation. ``inputs`` maps an input's name to a .npy file with its value for the recorded
    data."""

    model: Path
    name: str
    target: CpuTarget
    symbol_prefix: str
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    inputs: Mapping[str, Path] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The content of job.json."""
        return {
            "model": str(self.model.absolute()),
            "name": self.name,
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "dims": dict(self.dims),
            "target": self.target.to_json(),
            "symbol_prefix": self.symbol_prefix,
            "seed": self.seed,
            "inputs": {name: str(path.absolute()) for name, path in self.inputs.items()},
            "options": dict(self.options),
        }
