"""The vector instructions of a statement of a kernel, by kind, as the CPU will see them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from math import ceil
from typing import Any

from tvm import get_global_func, tirx
from tvm.ir import Call, StringImm, TensorLoad

from edgepack.compiler.kernels.expressions.nodes import dtype_of, operands_of, operation_of
from edgepack.compiler.kernels.expressions.operations import Kind
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget

__all__ = ["InstructionCounter", "Instructions"]

Expr = Any

#: Parts of the names of intrinsics that multiply and add.
PRODUCTS = ("fmuladd", "madd", "smlad", "smlabb", "smlatt", "vmldava", "vmull")

#: Parts of the names of intrinsics that become no instruction: they tell LLVM something, or are a part of
#: what reads them (ARM's SXTB16 rotates).
FREE = ("fake.use", "fence", "fshr", "assume", "expect")


@dataclass(frozen=True)
class Instructions:
    """How many there are of each kind.

    Attributes:
        multiply_adds: products that are added to a sum, one instruction where the CPU has it.
        arithmetic: all else that computes.
        loads, stores: of whole vectors, or of numbers where there are no vectors.
        moves: inside and between registers: shuffles, numbers spread over lanes.
        scalars: on whole numbers, for positions and conditions.
        branches: ends of loops and conditions.
        spills: values that are stored on the stack and loaded again, for there are too few registers.
    """

    multiply_adds: float = 0.0
    arithmetic: float = 0.0
    loads: float = 0.0
    stores: float = 0.0
    moves: float = 0.0
    scalars: float = 0.0
    branches: float = 0.0
    spills: float = 0.0

    def __add__(self, other: Instructions) -> Instructions:
        return Instructions(
            self.multiply_adds + other.multiply_adds,
            self.arithmetic + other.arithmetic,
            self.loads + other.loads,
            self.stores + other.stores,
            self.moves + other.moves,
            self.scalars + other.scalars,
            self.branches + other.branches,
            self.spills + other.spills,
        )

    def times(self, count: float) -> Instructions:
        """So many times as many."""
        return Instructions(
            self.multiply_adds * count,
            self.arithmetic * count,
            self.loads * count,
            self.stores * count,
            self.moves * count,
            self.scalars * count,
            self.branches * count,
            self.spills * count,
        )


NAMES = tuple(one.name for one in fields(Instructions))


class InstructionCounter:
    """Counts the instructions of single statements.

    Args:
        target: whose vectors they are of.

    Attributes:
        positions: names of whole numbers that are computed from nothing but counters of loops and tasks: what
            makes of these is for addresses, which instructions that load and store compute beside.
    """

    def __init__(self, target: CpuTarget) -> None:
        self.target = target
        self.positions: set[str] = set()
        self.loaded: set[str] = set()

    def registers(self, dtype: str) -> float:
        """Registers that a value takes, of a type like ``float32x16``; each is an instruction's."""
        name, _, lanes = dtype.partition("x")
        count, nbytes = int(lanes or 1), DTYPE_BYTES.get(name, 4)
        if count == 1:
            return 1.0
        if not self.target.vector_bits:
            return float(count)
        return float(ceil(8 * nbytes * count / self.target.vector_bits))

    def is_position(self, x: Expr) -> bool:
        """Whether a scalar depends on counters alone."""
        pending = [x]
        while pending:
            one = pending.pop()
            if type(one) is tirx.Var and one.name not in self.positions:
                return False
            if type(one) is TensorLoad or dtype_of(one) not in {"int32", "bool", "int64"}:
                return False
            pending.extend(operands_of(one))
        return True

    def of_store(self, statement: Any) -> Instructions:
        """Of a value that is computed and stored."""
        counts = self.of_value(statement.value)
        if is_register(statement.buffer, statement.indices):
            return counts
        return counts + Instructions(stores=self._accesses(statement.indices, dtype_of(statement.value)))

    def of_value(self, x: Expr) -> Instructions:
        """Of an expression."""
        total = dict.fromkeys(NAMES, 0.0)
        for kind, count in self._parts(x):
            total[kind] += count
        return Instructions(**total)

    def _parts(self, x: Expr) -> Iterator[tuple[str, float]]:
        kind, dtype = type(x), dtype_of(x)
        if kind is TensorLoad:
            if not is_register(x.source, x.indices):
                yield "loads", self._accesses(x.indices, dtype)
            return
        if kind is tirx.Broadcast:
            yield from self._parts(x.value)
            if not self._spreads_by_itself(x.value):
                yield "moves", self.registers(dtype)
            return
        if kind is tirx.Shuffle:
            for vector in x.vectors:
                yield from self._parts(vector)
            yield "moves", self.registers(dtype)
            return
        if kind is Call:
            yield from self._call(x, dtype)
            return
        operands = operands_of(x)
        if kind in (tirx.Add, tirx.Sub) and not self.target.separate_multiply_add:
            product = next((one for one in operands if type(one) is tirx.Mul), None)
            if product is not None and not self.is_position(x):
                for operand in (*operands_of(product), *(o for o in operands if o is not product)):
                    yield from self._parts(operand)
                yield "multiply_adds", self.registers(dtype)
                return
        for operand in operands:
            yield from self._parts(operand)
        operation = operation_of(x)
        if operation.cost and operands:
            what = "scalars" if self.is_position(x) else "arithmetic"
            yield what, operation.cost * self.registers(dtype)

    def _spreads_by_itself(self, x: Expr) -> bool:
        """Whether a number comes into every lane without an instruction: as it is loaded, or once."""
        return type(x) in (TensorLoad, tirx.IntImm, tirx.FloatImm) or (
            type(x) is tirx.Var and x.name in self.loaded
        )

    def _call(self, x: Call, dtype: str) -> Iterator[tuple[str, float]]:
        operation = operation_of(x)
        if operation.name in {"address_of", "reinterpret", "likely", "tvm_access_ptr"}:
            if operation.name != "address_of":
                yield from self._parts(x.args[0])
            return
        for operand in x.args:
            if not isinstance(operand, StringImm):
                yield from self._parts(operand)
        if operation.name.startswith("call_llvm"):
            name = _intrinsic(x.args[0])
            if "prefetch" in name:
                yield "loads", 1.0
            elif any(one in name for one in PRODUCTS):
                yield "multiply_adds", self.registers(dtype)
            elif not any(one in name for one in FREE):
                yield "arithmetic", self.registers(dtype)
        elif operation.kind is Kind.SELECT:
            yield ("scalars" if self.is_position(x) else "arithmetic"), self.registers(dtype)
        else:
            yield "arithmetic", operation.cost * self.registers(dtype)

    def _accesses(self, indices: Any, dtype: str) -> float:
        """Instructions that read or write: one for a vector of neighbours, one for each lane elsewhere."""
        (at,) = indices
        lanes = int(dtype.partition("x")[2] or 1)
        if lanes == 1 or (type(at) is tirx.Ramp and _is_one(at.stride)):
            nbytes = DTYPE_BYTES.get(dtype.partition("x")[0], 4)
            if not self.target.vector_bits and nbytes < 4:  # words, which are taken apart
                return float(ceil(nbytes * lanes / 4))
            return self.registers(dtype)
        return float(lanes)


def is_register(buffer: Any, indices: Any) -> bool:
    """Whether a place of an array is a register: one of the kernel's own arrays, at a constant position."""
    if buffer.scope() != "local":
        return False
    return all(type(one.base if type(one) is tirx.Ramp else one) is tirx.IntImm for one in indices)


def _intrinsic(x: Expr) -> str:
    """The name of LLVM's intrinsic that a call begins with, which TVM has as a number."""
    return x.value if isinstance(x, StringImm) else _named(int(x))


@lru_cache(maxsize=1024)
def _named(number: int) -> str:
    return str(get_global_func("target.llvm_get_intrinsic_name")(number))


def _is_one(x: Expr) -> bool:
    return type(x) is tirx.IntImm and int(x) == 1
