"""The micro-kernel of numbers: one multiply-add for each product, of float32, float64 or integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.float16 import FLOAT16_BITS, widened
from edgepack.compiler.kernels.cpu.emit.indices import Index
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.plan.target import CpuTarget

__all__ = ["MultiplyAdd", "multiply_add"]

#: Element types that are multiplied as they are.
NUMBERS = ("float32", "float64", "int8", "uint8", "int32")
#: (left, right, sums) of operands that are widened before they are multiplied.
WIDENED = {("float32", "float16", "float32"), ("int16", "int16", "int32")}


@dataclass(frozen=True)
class MultiplyAdd(MicroKernel):
    """Broadcasts an element of each row, and multiplies it by the columns' weights.

    int16 is widened to int32 (SMLAL of ARM and VWMACC of RISC-V do both), weights of float16 to float32.
    """

    order = 900

    @classmethod
    def of(cls, types: ProductTypes, target: CpuTarget) -> MultiplyAdd | None:
        operands = (types.left, types.right, types.sums)
        same = types.sums in NUMBERS and set(operands) == {types.sums}
        return cls(types, target) if same or operands in WIDENED else None

    @property
    def packs(self) -> bool:
        """Weights of float16 are such in the packed constants only."""
        return self.types.right == "float16"

    @property
    def right_unit(self) -> str:
        return FLOAT16_BITS if self.types.right == "float16" else self.types.right

    @property
    def panel_columns(self) -> int:
        return self.target.panel_columns if self.types.sums == "float32" else 0

    @property
    def layout(self) -> str:
        return "float16" if self.types.right == "float16" else ""

    def pack_units(self, weights: Any) -> Any:
        return weights.astype("float16") if self.types.right == "float16" else weights

    def multiply_add(self, e: Emitter, left: Any, right: Any, sums: Any, lanes: int) -> Any:
        return e.multiply_add(left, right, sums)

    def left_vector(self, e: Emitter, unit: Any, lanes: int) -> Any:
        value = e.splat(unit, lanes)
        return self._as_sums(value, lanes) if self.types.left != self.types.sums else value

    def right_vector(self, e: Emitter, buffer: Any, at: Index, lanes: int) -> Any:
        vector = e.let(e.vload(buffer, at, lanes))
        if self.types.right == "float16":
            return widened(e, vector, lanes, "float16")
        return e.let(self._as_sums(vector, lanes)) if self.types.right != self.types.sums else vector

    def _as_sums(self, vector: Any, lanes: int) -> Any:
        """LLVM makes one instruction of that and the multiplication, where there is one."""
        return tirx.Cast(self.types.sums if lanes == 1 else f"{self.types.sums}x{lanes}", vector)

    def parameters(self) -> dict[str, Any]:
        return {"weights": "float16"} if self.types.right == "float16" else {}


def multiply_add(e: Emitter) -> MultiplyAdd:
    """The micro-kernel of numbers that all have the type of an emitter's kernel."""
    assert e.target is not None
    return MultiplyAdd(ProductTypes.of(e.dtype), e.target)
