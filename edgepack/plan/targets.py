"""What kernels are compiled for: a CPU, or a GPU and the CPU beside it."""

from __future__ import annotations

from typing import Any, TypeAlias

from edgepack.errors import InternalError
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.target import CpuTarget

__all__ = ["Target", "target_from_json"]

#: One class for each kind of target.
Target: TypeAlias = CpuTarget | GpuTarget


def target_from_json(data: dict[str, Any]) -> Target:
    """The target of any kind whose ``to_json`` gave ``data``.

    Raises:
        InternalError: no class is of that kind.
    """
    match data.get("kind"):
        case CpuTarget.kind:
            return CpuTarget.from_json(data)
        case GpuTarget.kind:
            return GpuTarget.from_json(data)
        case kind:
            raise InternalError(f"There is no kind of target {kind!r}, only cpu and gpu.")
