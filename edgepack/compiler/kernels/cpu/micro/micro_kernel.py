"""What a micro-kernel is: one way to compute the product of a register tile on a CPU.

The registry (:mod:`edgepack.compiler.kernels.cpu.micro.registry`) finds the subclasses in the modules of this
package. Whoever builds a kernel asks the micro-kernel for everything that depends on the element types: how
many rows and columns a tile has, how operands lie in memory, how one step is computed, what pixels in the
padding read, and what it costs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index
from edgepack.compiler.kernels.cpu.emit.register_tile import (
    Accumulators,
    LeftOperand,
    Matrix,
    Steps,
    Tile,
    tile_for,
)
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.compiler.kernels.schedule import check_register_tile
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget

__all__ = ["MicroKernel"]


@dataclass(frozen=True)
class MicroKernel(ABC):
    """A micro-kernel for the types of a product on a target.

    Operands lie in memory as *units*: ``group`` neighbouring elements along the reduction, which one
    multiply-add takes together. A tile of sums reads units as it would read numbers, and a convolution is one
    of fewer channels, each of which is a unit.

    Attributes:
        types: of the product.
        target: the CPU, with vectors that are as wide as the micro-kernel uses them.
        order: micro-kernels that serve the same product are tried lowest first.
        group: elements of the reduction in a unit.
        matrix: whether its sums lie in tile registers, which a kernel has to set up: only builders that do
            so use it.
    """

    types: ProductTypes
    target: CpuTarget

    order: ClassVar[int]
    group: ClassVar[int] = 1
    matrix: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def of(cls, types: ProductTypes, target: CpuTarget) -> Self | None:
        """The micro-kernel for these types; None where they or the CPU are not what it is for."""

    def suits(self, run: int, columns: int) -> bool:
        """Whether the sizes are such that it can be used, and pays.

        Args:
            run: elements of the reduction that are neighbours in memory: input channels of a group.
            columns: of the product: output channels of a group.
        """
        return run % self.group == 0

    @property
    def packs(self) -> bool:
        """Whether the right operand must be constant, because :meth:`pack_units` makes what is read of it."""
        return self.group > 1

    # How operands lie in memory ---------------------------------------------------------------------------

    @property
    def left_unit(self) -> str:
        """Element type of a unit of the left operand in memory."""
        return self.types.left

    @property
    def right_unit(self) -> str:
        """Element type of a unit of the packed right operand in memory."""
        return self.types.right

    @property
    def unit_bytes(self) -> int:
        """Bytes that a unit of either operand counts when a product is divided by the caches: those of a sum.

        Operands of 16 bits that are widened, and those of float16, so count twice what they are: how they are
        divided has not been measured apart.
        """
        return DTYPE_BYTES[self.types.sums]

    @property
    def overhang(self) -> int:
        """Units that the last vector of packed weights may be read beyond their end."""
        return self.lanes - 1

    def pack_units(self, weights: Array) -> Array:
        """Weights (rows, taps, elements, columns) of the model's type as (rows, taps, units, columns)."""
        return weights

    @property
    def layout(self) -> str:
        """What :meth:`pack_units` does, as a part of the key of packed constants; "" for nothing."""
        return ""

    @property
    def panel_columns(self) -> int:
        """Columns of the panels in which packed weights lie, whatever the register tile; 0 where those of
        a tile are such a panel, see :mod:`edgepack.compiler.kernels.cpu.conv.weight_panels`."""
        return 0

    @property
    def temporaries(self) -> int:
        """Registers that :meth:`multiply_add` takes beside those of its operands and sums."""
        return 0

    # The tile ---------------------------------------------------------------------------------------------

    @property
    def lanes(self) -> int:
        """Sums in a vector."""
        return self.target.lanes(self.types.sums)

    def emitter(self) -> Emitter:
        """A new emitter of a kernel whose numbers have the sums' type."""
        return Emitter(self.lanes, self.target, self.types.sums)

    def tile(self, rows: int, columns: int) -> Tile:
        """The register tile for a product of ``rows`` by ``columns``."""
        return tile_for(self.target, rows, columns, self.types.sums)

    def check_tile(self, tile: tuple[int, int], columns: int) -> None:
        """ScheduleError where a product of so many columns has no such tile, rows by columns."""
        check_register_tile(tile, self.target, columns, self.types.sums)

    def block_tiles(self, units: int) -> int:
        """Tiles below each other that are multiplied by all columns before the next ones, of a product with
        small weights.

        Args:
            units: of a row of the left operand.
        """
        return 4

    # The product ------------------------------------------------------------------------------------------

    @abstractmethod
    def multiply_add(self, e: Emitter, left: Any, right: Any, sums: Any, lanes: int) -> Any:
        """``sums`` + ``left`` * ``right``, vectors of ``lanes`` sums and units."""

    def left_vector(self, e: Emitter, unit: Any, lanes: int) -> Any:
        """A unit of the left operand in every lane."""
        return e.splat(unit, lanes)

    def right_vector(self, e: Emitter, buffer: Any, at: Index, lanes: int) -> Any:
        """``lanes`` neighbouring units of the right operand, as :meth:`multiply_add` takes them."""
        return e.let(e.vload(buffer, at, lanes))

    def begin(self, e: Emitter, sums: Accumulators) -> Accumulators:
        """What :meth:`add_product` adds several parts of a reduction to, until :meth:`end` adds it to the
        sums of a tile: these themselves, unless the micro-kernel has others on the way."""
        return sums

    def end(self, e: Emitter, inner: Accumulators, sums: Accumulators) -> Accumulators:
        """The sums, to which what :meth:`begin` returned was added."""
        return sums

    def add_product(
        self, e: Emitter, sums: Accumulators, left: LeftOperand, right: Matrix, steps: Steps
    ) -> None:
        """sums[r, c] += sum over k < depth of left(r, k) * right[k, c], a step for each ``k``.

        An iteration is one step in WebAssembly: V8 keeps fewer values in registers than a longer body has,
        and ResNet-18 and MobileNetV2 took 8 % longer with two (benchmarks/web.py).

        Args:
            left: unit ``k`` of row ``r``; given a third argument, that many from there on.
        """
        depth = steps.depth
        unroll = 1 if self.target.virtual_registers else steps.unroll
        while depth % unroll and not steps.remainder:
            unroll -= 1

        def iteration(k: Index) -> None:
            if steps.prefetch is not None:
                steps.prefetch(k * unroll)
            self._steps(e, sums, (k * unroll, unroll), left, right)

        count = depth // unroll
        # LLVM unrolls a short loop and mixes its steps, for which few registers do not suffice.
        e.loop(0, e.opaque_bound(count) if e.few_registers and 1 < count <= 8 else count, iteration)
        self._steps(e, sums, (depth - depth % unroll, depth % unroll), left, right)

    def _steps(
        self, e: Emitter, sums: Accumulators, steps: tuple[Index, int], left: LeftOperand, right: Matrix
    ) -> None:
        """The steps of the reduction from ``steps[0]`` on, ``steps[1]`` of them."""
        first, count = steps
        for u in range(count):
            step = first + u
            places = right.columns or [column for column, _ in sums.chunks]
            strides = right.strides or [right.stride] * len(places)
            loaded = [
                self.right_vector(e, right.buffer, right.at + step * stride + place, lanes)
                for place, stride, (_, lanes) in zip(places, strides, sums.chunks, strict=True)
            ]
            for row in range(sums.rows):
                unit = e.let(left(row, step))
                for (column, lanes), weights in zip(sums.chunks, loaded, strict=True):
                    old, value = sums.get(row, column, lanes), self.left_vector(e, unit, lanes)
                    sums.set(row, column, self.multiply_add(e, value, weights, old, lanes), lanes)

    # What it costs ----------------------------------------------------------------------------------------

    @property
    def rate(self) -> float:
        """Multiply-adds of elements in the time of one of float32."""
        return self.lanes / self.target.word_lanes

    def parameters(self) -> dict[str, Any]:
        """What reports say of it."""
        return {}
