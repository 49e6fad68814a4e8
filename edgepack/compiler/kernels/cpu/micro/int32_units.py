"""What micro-kernels have in common whose units are neighbouring elements in one int32."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel

__all__ = ["Int32Units"]


@dataclass(frozen=True)
class Int32Units(MicroKernel):
    """A micro-kernel for units of int32, so that a tile of sums reads them as it would read numbers.

    Attributes:
        packed: NumPy's type of the elements of a unit of weights, in the byte order of all targets.
    """

    packed: ClassVar[str]

    @property
    def left_unit(self) -> str:
        return "int32"

    @property
    def right_unit(self) -> str:
        return "int32"

    @property
    @abstractmethod
    def layout(self) -> str: ...

    def pack_units(self, weights: Array) -> Array:
        """Neighbouring elements of a column next to each other in memory."""
        rows, taps, elements, columns = weights.shape
        units = np.moveaxis(weights.reshape(rows, taps, elements // self.group, self.group, columns), 3, 4)
        return np.ascontiguousarray(units.astype(self.packed)).view("<i4")[..., 0]
