"""What the builders of kernels have in common.

A builder decides, when it is made, how a kernel is cut into tasks and tiles, and declares the kernel's
operands; :meth:`KernelBuilder.build` emits the code, once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from edgepack.compiler.kernels.contract import Implementation
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget

__all__ = ["KernelBuilder"]


class KernelBuilder(ABC):
    """Builds the kernels of a fused group for a CPU.

    Args:
        dtype: of what the kernel computes.
        lanes: elements of a vector, if not as many as a register of the target holds.
        emitter: of the kernel that this one is a part of; by default a new one.

    Attributes:
        rule: name of the rule, for reports and symbols.
        dtype: of the tensors, and ``element_bytes`` the size of one element.
        lanes: elements of a vector.
        line: elements of a cache line.
        prefetch_bytes: constants of a later call that the kernel fetches into the caches, in bytes.
        e: where the kernel's code is emitted.
    """

    def __init__(
        self,
        rule: str,
        target: CpuTarget,
        *,
        dtype: str,
        lanes: int = 0,
        prefetch_bytes: int = 0,
        emitter: Emitter | None = None,
    ) -> None:
        self.rule, self.target, self.dtype = rule, target, dtype
        self.element_bytes = DTYPE_BYTES[dtype]
        self.lanes = lanes or target.lanes(dtype)
        self.prefetch_bytes = prefetch_bytes
        self.e = emitter or Emitter(self.lanes, target, dtype)
        self.line = self.e.line

    @abstractmethod
    def build(self) -> Implementation:
        """Emits the kernels."""

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """What was chosen, for reports."""
