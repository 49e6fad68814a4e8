"""What a model becomes: its plan, and what its kernels and params are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tvm.tirx import PrimFunc

from edgepack.compiler.kernels.contract import Array
from edgepack.plan.types import Plan

__all__ = ["Built"]


@dataclass(frozen=True)
class Built:
    """A plan, its kernels' TIR by symbol, and the constants' bytes in the order of ``plan.constants``.

    Attributes:
        gpu_kernels: the text of the GPU's kernels, by symbol.
    """

    plan: Plan
    functions: Mapping[str, PrimFunc]
    constants: tuple[Array, ...]
    gpu_kernels: Mapping[str, str] = field(default_factory=dict)
