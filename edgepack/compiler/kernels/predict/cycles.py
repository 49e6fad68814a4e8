"""Cycles of a run of instructions without branches, on a core whose data are in its nearest cache."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad

from edgepack.compiler.kernels.expressions.nodes import dtype_of, operands_of
from edgepack.compiler.kernels.predict.instructions import Instructions, is_register
from edgepack.plan.target import CpuTarget

__all__ = ["Block", "BlockCost"]

#: Cycles until the sum of a multiply-add is there for the next one.
LATENCY = 4

#: Instructions that start in a cycle, at most.
ISSUED = 5

#: Of those on whole numbers for positions, the part that is not moved out of loops or folded into addresses.
SCALAR = 0.5

#: Registers of whole numbers that a loop's counter and its end take, and what the loops around it keep.
COUNTERS = 4


@dataclass
class Block:
    """Statements that follow each other without a branch.

    Attributes:
        statements: how many there are.
        updates: how often each register of the kernel's arrays is written, by array and position.
        widths: types of what these hold.
        lets: by name, type of each value that is bound, the number of the statement, and whether it was
            loaded from memory.
        uses: by name the numbers of the statements that use it.
        bases: pointers that it reads and writes from, constants added to which are displacements.
    """

    statements: int = 0
    instructions: Instructions = field(default_factory=Instructions)
    updates: Counter[tuple[str, int]] = field(default_factory=Counter)
    widths: dict[tuple[str, int], str] = field(default_factory=dict)
    lets: dict[str, tuple[int, str, bool]] = field(default_factory=dict)
    uses: dict[str, list[int]] = field(default_factory=dict)
    bases: set[Any] = field(default_factory=set)

    def add_let(self, var: Any, value: Any, counts: Instructions) -> None:
        """``var`` = ``value``."""
        self.add_value(value, counts)
        self.lets[str(var.name)] = (self.statements, dtype_of(value), type(value) is TensorLoad)

    def add_store(self, store: Any, counts: Instructions) -> None:
        """A store to memory, or to a register."""
        self.add_value(store.value, counts)
        (at,) = store.indices
        if is_register(store.buffer, store.indices):
            place = str(store.buffer.name), int(at.base if type(at) is tirx.Ramp else at)
            self.updates[place] += 1
            self.widths[place] = dtype_of(store.value)
        else:
            self.bases.add((str(store.buffer.name), _base(at)))

    def add_value(self, value: Any, counts: Instructions) -> None:
        """A value that is computed."""
        self.statements += 1
        self.instructions += counts
        pending: list[Any] = [value]
        while pending:
            one = pending.pop()
            kind = type(one)
            if kind is tirx.Var:
                self.uses.setdefault(str(one.name), []).append(self.statements)
            elif kind is TensorLoad:
                if not is_register(one.source, one.indices):
                    self.bases.add((str(one.source.name), _base(one.indices[0])))
            else:
                pending.extend(one.vectors if kind is tirx.Shuffle else operands_of(one))


def _base(at: Any) -> Any:
    """What an address is made of beside constants, equal for those that differ in these alone."""
    parts = _multiples(at.base if type(at) is tirx.Ramp else at)
    return frozenset((part, times) for part, times in parts.items() if times)


def _multiples(x: Any) -> dict[Any, int]:
    """A scalar as a sum of multiples, without the constant."""
    kind = type(x)
    if kind is tirx.IntImm:
        return {}
    if kind in (tirx.Add, tirx.Sub):
        found, sign = dict(_multiples(x.a)), 1 if kind is tirx.Add else -1
        for part, times in _multiples(x.b).items():
            found[part] = found.get(part, 0) + sign * times
        return found
    if kind is tirx.Mul and type(x.b) is tirx.IntImm:
        return {part: times * int(x.b) for part, times in _multiples(x.a).items()}
    return {_shape(x): 1}


def _shape(x: Any) -> Any:
    """An expression as plain data."""
    if type(x) is tirx.Var:
        return str(x.name)
    if type(x) is tirx.IntImm:
        return int(x.value)
    return (type(x).__name__, *map(_shape, operands_of(x)))


class BlockCost:
    """What blocks take on a CPU.

    Attributes:
        branch: cycles of the end of a loop's iteration.
    """

    def __init__(self, target: CpuTarget) -> None:
        self.target = target
        self.simple = target.in_order or not target.vector_bits
        self.branch = 2.0 if self.simple else 1.0

    def of(self, block: Block) -> float:
        """Cycles."""
        i = block.instructions
        spills = self.spilled(block)
        loads, stores = i.loads + spills, i.stores + spills
        computing = i.multiply_adds + i.arithmetic
        if self.simple:
            return computing + loads + stores + i.moves + SCALAR * i.scalars
        units = self.target.operations_per_cycle / max(1, (self.target.vector_bits // 32))
        latency = LATENCY * max(block.updates.values(), default=0) if i.multiply_adds else 0
        whole = computing + loads + stores + i.moves + SCALAR * i.scalars
        return max(computing / units, loads / 2, stores, i.moves, whole / ISSUED, float(latency))

    def spilled(self, block: Block) -> float:
        """Registers that a block needs beyond those that there are: of vectors, or of floats where there are
        none, and of whole numbers."""
        if not block.updates:
            return 0.0
        vectors = sum(self._registers(t) for t in block.widths.values() if self._is_vector(t))
        numbers = sum(1 for t in block.widths.values() if not self._is_vector(t))
        beyond = 0.0
        if vectors:
            beyond += max(0.0, vectors + self._alive(block, of_vectors=True) - self.target.usable_registers)
        if numbers:
            numbers += len(block.bases) + COUNTERS + self._alive(block, of_vectors=False)
            beyond += max(0.0, numbers - self.target.pointer_registers)
        return beyond

    def _alive(self, block: Block, *, of_vectors: bool) -> int:
        """Registers of values that are needed again, at most. Where arithmetic reads memory, what is loaded
        and used once has none."""
        changes: Counter[int] = Counter()
        folded = self.target.arithmetic_reads_memory
        for name, (at, dtype, loaded) in block.lets.items():
            uses = block.uses.get(name, ())
            if not uses or "handle" in dtype or self._is_vector(dtype) is not of_vectors:
                continue
            if loaded and folded and len(uses) < 2:
                continue
            changes[at] += self._registers(dtype)
            changes[uses[-1]] -= self._registers(dtype)
        most = now = 0
        for at in sorted(changes):
            now += changes[at]
            most = max(most, now)
        return most

    def _is_vector(self, dtype: str) -> bool:
        return "x" in dtype or (not self.target.vector_bits and dtype.startswith("float"))

    def _registers(self, dtype: str) -> int:
        lanes = dtype.partition("x")[2]
        bits = 32 * int(lanes or 1)
        return max(1, -(-bits // self.target.vector_bits)) if self.target.vector_bits else int(lanes or 1)
