"""What micro-kernels have in common whose units are neighbouring elements in one int32."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from tvm import tirx
from tvm.tirx import IntImm

from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel

__all__ = ["Int32Units", "dot4_by_shifts"]


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


def dot4_by_shifts(e: Emitter, units: tuple[Any, Any], sums: Any, lanes: int, left: str) -> Any:
    """``sums`` + the four products of bytes of two units, for vectors of a width that no instruction has.

    Args:
        left: type of the bytes of the first unit; those of the second one are int8.
    """
    a, b = (e.let(unit) for unit in units)

    def byte(x: Any, place: int, signed: bool) -> Any:
        up, down = (e.splat(IntImm("int32", n), lanes) for n in (24 - 8 * place, 24))
        lifted = tirx.shift_left(x, up)
        if signed:
            return tirx.shift_right(lifted, down)
        return tirx.bitwise_and(tirx.shift_right(lifted, down), e.splat(IntImm("int32", 255), lanes))

    for place in range(4):
        sums = e.let(sums + byte(a, place, left == "int8") * byte(b, place, signed=True))
    return sums
