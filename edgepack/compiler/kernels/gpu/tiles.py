"""Tiles of a matrix product's operands on their way from memory by registers to shared memory.

While a group multiplies what is in shared memory, each of its threads holds in registers what it has read of
the next tiles. Where neighbours in memory are neighbouring rows, columns or terms of a operand, 16 bytes are
read at once; what is computed on the way, or lies otherwise, is read one element at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import tvm_ffi
from tvm.ir import TensorLoad

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.gpu.kernel import Kernel
from edgepack.compiler.kernels.gpu.matrix_product import MatrixProduct
from edgepack.compiler.kernels.gpu.operands import contiguous, loaded
from edgepack.compiler.kernels.gpu.split_k import WHOLE, SplitK, split_k
from edgepack.compiler.kernels.schedule import Schedule
from edgepack.plan.gpu_target import GpuTarget

__all__ = [
    "GAP_BYTES",
    "ElementType",
    "ProductSchedule",
    "TilePath",
    "TileShape",
    "chosen_tile",
    "is_half",
    "tile_groups",
]

#: What the elements of a tile are.
ElementType = Literal["float", "ep_half"]

#: By how much a line of a tile is longer than its elements: lines begin at multiples of 16 bytes, and those
#: next to each other in different banks.
GAP_BYTES = 16

#: By type: bytes of an element, its dtype, and 16 bytes of them with zeros.
_TYPES = {
    "float": (4, "float32", "float4", "FLOAT4(0.0f)"),
    "ep_half": (2, "float16", "uint4", "uint4(0)"),
}

#: Components of a vector that are written one by one.
_COMPONENTS = "xyzw"


@dataclass(frozen=True)
class ProductSchedule(Schedule):
    """What is decided about a matrix product.

    Attributes:
        tile: rows and columns that a group computes.
        grid: how many work items, warps or SIMD-groups of it are down and across, which share them evenly.
        split_k: groups that share the terms.
    """

    tile: tuple[int, int] | None = None
    grid: tuple[int, int] | None = None
    split_k: int | None = None


def tile_groups(height: int, width: int, product: MatrixProduct) -> int:
    """Groups that compute a product by tiles of so many rows and columns, its terms not shared."""
    m, n, b = (product.counts[name] for name in "mnb")
    return -(-m // height) * -(-n // width) * b


def is_half(operand: Any, kernel: Kernel) -> bool:
    """Whether nothing is lost by rounding a operand: its largest tensor is float16 in memory."""
    loads: list[Any] = []
    tvm_ffi.structural_walk(operand, (TensorLoad, loads.append))
    loads.sort(key=lambda load: -int(np.prod([int(d) for d in load.source.shape])))
    return bool(loads) and kernel.rounds and kernel.stored(loads[0].source) == "float16"


def chosen_tile(
    tiles: Sequence[tuple[int, int]], large: int, product: MatrixProduct, depth: int, target: GpuTarget
) -> tuple[int, SplitK]:
    """Which tile groups compute, and how they share the terms: the largest that leaves enough groups and is
    not mostly outside; a large one of which groups share the terms; else the smallest.

    Args:
        tiles: rows and columns of those that fit into a group, largest first.
        large: elements of a tile of which what is read is multiplied often enough.
        depth: terms of a tile.

    Returns:
        the tile's index in ``tiles``, and how its terms are shared.
    """
    if not tiles:
        raise RuleError("its tiles need more memory or threads than a group has")
    m, n = product.counts["m"], product.counts["n"]
    groups = [tile_groups(height, width, product) for height, width in tiles]
    inside = [i for i, (height, width) in enumerate(tiles) if m > height // 2 and n > width // 2]
    larger = [i for i in inside if tiles[i][0] * tiles[i][1] >= large]
    for i in larger:
        if groups[i] >= target.least_groups:
            return i, WHOLE
    for i in larger:
        shared = split_k(groups[i], product, depth, target)
        if groups[i] * shared.count >= target.least_groups:
            return i, shared
    for i in inside:
        if groups[i] >= target.least_groups:
            return i, WHOLE
    last = inside[-1] if inside else len(tiles) - 1
    return last, split_k(groups[last], product, depth, target)


@dataclass(frozen=True)
class TileShape:
    """A operand's tile in shared memory.

    Attributes:
        length: rows of the first operand, or columns of the second.
        depth: terms.
        threads: that bring it there, all threads of the group.
        element: what it is made of.
    """

    length: int
    depth: int
    threads: int
    element: ElementType


class TilePath:
    """Writes how a operand's tiles come to shared memory.

    Args:
        kernel: whose code has ``t``, the thread's number, ``m0`` and ``n0``, the group's first row and
            column, ``batch`` and ``k0``, the tile's first term.
        number: 0 for the first operand, 1 for the second.
        along_k: whether the terms of a row (column) lie one after the other in shared memory, not the rows of
            a term; None: as they do in the operand's own.

    Attributes:
        name: of the array in shared memory.
        along_k: as above.
        pitch: elements from one line to the next.
        width: elements that are read at once.
    """

    def __init__(
        self,
        kernel: Kernel,
        product: MatrixProduct,
        number: int,
        shape: TileShape,
        *,
        along_k: bool | None = None,
    ) -> None:
        self.kernel, self.product, self.shape = kernel, product, shape
        self.name, self._side = ("first", "m") if number == 0 else ("second", "n")
        self._operand = product.first if number == 0 else product.second
        terms_first = product.first_along_k if number == 0 else product.second_along_k
        self.along_k = terms_first if along_k is None else along_k
        self._nbytes, self._dtype, self._vector, self._zero = _TYPES[shape.element]
        wide = GAP_BYTES // self._nbytes
        along = {
            side: contiguous(product, kernel, number, side, count=wide, dtype=self._dtype)
            for side in ("k", self._side)
        }
        #: Whether a thread reads, and neighbours read, along the terms.
        self._reads_along_k = along["k"] or (terms_first and not along[self._side])
        split = self._reads_along_k != self.along_k
        serves = along["k" if self._reads_along_k else self._side] and (not split or shape.element == "float")
        self.width = wide if serves else 1
        line, lines = (shape.depth, shape.length) if self.along_k else (shape.length, shape.depth)
        self.pitch = line + wide
        self.nbytes = self.pitch * lines * self._nbytes
        self._steps = -(-shape.length * shape.depth // (self.width * shape.threads))

    def declare(self, memory: str = "") -> None:
        """The array, and the registers in which the next tile waits.

        Args:
            memory: an array that it is in, if it has none of its own.
        """
        code, count, element = self.kernel.code, self.nbytes // self._nbytes, self.shape.element
        if memory:
            code.line(f"SHARED_POINTER({element}) const {self.name} = {memory};")
        else:
            code.line(f"SHARED ALIGNED(16) {element} {self.name}[{count}];")
        ctype = self._vector if self.width > 1 else self.shape.element
        code.line(f"{ctype} {self.name}_next[{self._steps}];")

    def fetch(self) -> None:
        """Reads the tile whose first term is ``k0`` into registers.

        What is behind the last row is that one again, and not stored; behind the depth it is 0.
        """
        code, evaluator = self.kernel.code, self.kernel.evaluator
        code.line("UNROLL")
        with code.block(f"for (int i = 0; i < {self._steps}; ++i)"), evaluator.fresh():
            self._places()
            with code.block(self._inside()):
                self._fetch_one()

    def keep(self) -> None:
        """Writes it into shared memory."""
        code, split = self.kernel.code, self._reads_along_k != self.along_k
        code.line("UNROLL")
        with code.block(f"for (int i = 0; i < {self._steps}; ++i)"):
            self._places()
            row, depth = f"row * {self.pitch} + depth", f"depth * {self.pitch} + row"
            place = f"{self.name} + {row if self.along_k else depth}"
            with code.block(self._inside()):
                if self.width == 1:
                    code.line(f"*({place}) = {self.name}_next[i];")
                elif not split:
                    code.line(f"*(SHARED_POINTER({self._vector}))({place}) = {self.name}_next[i];")
                else:
                    for j in range(self.width):
                        value = f"{self.name}_next[i].{_COMPONENTS[j]}"
                        code.line(f"*({place} + {j * self.pitch}) = {value};")

    def _places(self) -> None:
        """Which row and term a thread serves, as ``row`` and ``depth``: neighbours read neighbours."""
        code, shape = self.kernel.code, self.shape
        line, names = (shape.depth, "depth") if self._reads_along_k else (shape.length, "row")
        other = "row" if names == "depth" else "depth"
        count = line // self.width
        times = f" * {self.width}" if self.width > 1 else ""
        code.line(f"const int e = i * {shape.threads} + t;")
        code.line(f"const int {other} = e / {count}, {names} = e % {count}{times};")

    def _inside(self) -> str:
        total = self.shape.length * self.shape.depth // self.width
        return "" if total % self.shape.threads == 0 else f"if (e < {total})"

    def _fetch_one(self) -> None:
        code, product, shape = self.kernel.code, self.product, self.shape
        count, terms = product.counts[self._side], product.counts["k"]
        step = {"k": 1, self._side: 1}
        step["k" if self._reads_along_k else self._side] = self.width
        at, k = f"{self._side}0 + row", "k0 + depth"
        clamped = at if count % shape.length == 0 else f"min({at}, {count - step[self._side]})"
        whole = terms % shape.depth == 0
        code.line(f"const int at = {clamped};")
        last = terms - step["k"]
        code.line(f"const int k = {k if whole else f'min({k}, {last})'};")
        env = {product.variables[self._side]: "at", product.variables["k"]: "k"}
        env[product.variables["b"]] = "batch"
        inside = [] if whole else [f"{k} < {terms}"]
        kept = f"{self.name}_next[i]"
        if self.width > 1:
            found = loaded(self._operand)
            assert found is not None
            load, condition = found
            tests = [*inside, *(f"({self.kernel.evaluator.value(c, env)})" for c in condition)]
            pointer, place = self.kernel.evaluator.place(load, env)
            if tests:
                code.line(f"{kept} = {self._zero};")
            guard = f"if ({' && '.join(tests)}) " if tests else ""
            code.line(f"{guard}{kept} = *(GLOBAL const {self._vector} *)({pointer} + {place});")
            return
        text = self.kernel.evaluator.value(self._operand, env)
        text = f"{inside[0]} ? {text} : 0.0f" if inside else text
        half = shape.element == "ep_half"
        code.line(f"STORE_HALF({self.name}_next, i, {text});" if half else f"{kept} = {text};")
