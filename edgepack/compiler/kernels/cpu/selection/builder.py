"""What the kernels that choose among elements share: operands by name, numbers that change, orders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Buffer

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.graph.selection import Selection
from edgepack.compiler.kernels.contract import Implementation, Stage
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index, index
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget

__all__ = ["Cell", "SelectionKernel", "ordered", "strided_rows"]

#: Types of which an element's order is a 64-bit number; that of the others has 32 bits.
WIDE = {"int64", "uint64", "float64"}


class Cell:
    """A number of a kernel that changes while it runs: a register."""

    def __init__(self, e: Emitter, value: Index, dtype: str = "int32") -> None:
        self._e, self._buffer = e, e.local(1, dtype)
        self.set(value)

    def set(self, value: Index) -> None:
        """Gives it another value."""
        self._e.vstore(self._buffer, 0, index(value), 1)

    def get(self) -> Expr:
        """Its value now."""
        return self._e.let(self._e.load(self._buffer, 0))

    def now(self) -> Expr:
        """Its value whenever the expression is evaluated: for the condition of a loop."""
        return self._e.load(self._buffer, 0)


class SelectionKernel(ABC):
    """Builds the kernels of one node.

    Attributes:
        form: the node.
        shapes, dtypes: of its operands and results, by name.
        most: entries that its results have room for; 0 for a node whose results have a static size.
    """

    def __init__(self, fused: FusedGroup, form: Selection, target: CpuTarget) -> None:
        self.form, self.target = form, target
        names = (*form.operands, *form.results)
        buffers = dict(zip(names, fused.function.params, strict=True))
        self.shapes = {name: tuple(int(d) for d in buffer.shape) for name, buffer in buffers.items()}
        self.dtypes = {name: str(buffer.dtype) for name, buffer in buffers.items()}
        self.most = form.numbers.get("most", 0)

    @abstractmethod
    def build(self) -> Implementation:
        """Emits the kernels."""

    def emitter(self) -> Emitter:
        """A new kernel."""
        return Emitter(1, self.target)

    def declared(self, e: Emitter, *names: str, dtype: str = "") -> list[Any]:
        """Declares these operands and results as flat buffers; None for those that there are not.

        Args:
            dtype: what their elements are read as, if not as what they are; a bool is a byte.
        """
        return [self._declared(e, name, dtype) for name in names]

    def _declared(self, e: Emitter, name: str, dtype: str) -> Buffer | None:
        own = dtype or self.dtypes.get(name, "")
        own = "uint8" if own == "bool" else own
        elements = prod(self.shapes.get(name, ()))
        if name in self.form.operands:
            return e.param(self.form.operands.index(name), elements, own)
        if name in self.form.results:
            return e.output(self.form.results.index(name), elements, own)
        return None

    def implementation(
        self, stages: Sequence[Stage], scratch: Sequence[int], temps: Sequence[int] = (), **parameters: Any
    ) -> Implementation:
        """The node, computed by these stages."""
        operator = {"operator": self.form.operator}
        return Implementation(
            "selection",
            tuple(stages),
            temps=tuple(temps),
            scratch=tuple(scratch),
            parameters=operator | parameters,
        )


def strided_rows(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """A tensor along an axis as [outer, length, inner]."""
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def ordered(value: Expr, dtype: str, *, reverse: bool = False) -> Expr:
    """A signed integer, of 64 bits for the types of :data:`WIDE`, else of 32, ordered as the value is.

    Both zeros of a float have the same order, and a NaN is greater than all others.
    """
    wide = dtype in WIDE
    kind, bits = ("int64", 63) if wide else ("int32", 31)
    if dtype.startswith("float"):
        positive = tirx.Select(tirx.EQ(value, tirx.const(0.0, dtype)), tirx.const(0.0, dtype), value)
        raw = tirx.reinterpret(kind, positive)
        sign = tirx.shift_right(raw, tirx.const(bits, kind))
        order = tirx.bitwise_xor(raw, tirx.bitwise_and(sign, tirx.const(2**bits - 1, kind)))
        nan = tirx.NE(value, value)
        order = tirx.Select(nan, tirx.const(2**bits - 1, kind), order)
    elif DTYPE_BYTES[dtype] == DTYPE_BYTES[kind] and dtype.startswith("u"):
        order = tirx.bitwise_xor(tirx.reinterpret(kind, value), tirx.const(-(2**bits), kind))
    else:
        order = value if dtype == kind else value.astype(kind)
    return tirx.bitwise_xor(order, tirx.const(-1, kind)) if reverse else order


def fill(e: Emitter, buffer: Buffer, begin: Index, end: Index, value: Expr) -> None:
    """Writes the value into elements ``begin`` to ``end`` - 1."""
    e.loop(begin, end, lambda i: e.vstore(buffer, i, value, 1))


def repeat(e: Emitter, condition: Expr, body: Callable[[], None]) -> None:
    """``while (condition) body``; the condition reads cells by :meth:`Cell.now`."""
    e.add(tirx.While(condition, e.block(body)))
