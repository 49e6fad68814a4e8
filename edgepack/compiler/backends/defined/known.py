"""What is known of a kernel's values: in which interval a number lies, and whether memory decides it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, floor, isinf, isnan, trunc
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad
from tvm.target.codegen import llvm_get_intrinsic_name

from edgepack.compiler.backends.defined import interval
from edgepack.compiler.backends.defined.facts import Fact, apply, facts_of, number_in
from edgepack.compiler.backends.defined.interval import Interval, integer_limits, of_dtype, united
from edgepack.compiler.kernels.expressions.nodes import dtype_of, name_of, operands_of

__all__ = ["Known", "element_type", "is_integer"]

Expr = Any

#: Functions that give a neighbouring whole number.
_ROUNDING = frozenset({"floor", "ceil", "trunc", "round", "nearbyint", "rint", "roundeven"})

#: How many expressions within each other, and how many conditions, are looked into.
DEEPEST, CONDITIONS = 60, 3


@dataclass(frozen=True)
class _Where:
    """What holds at a place, and what was found there.

    Attributes:
        conditions: within how many others.
    """

    facts: tuple[Fact, ...] = ()
    conditions: int = 0
    found: dict[Any, Interval] = field(default_factory=dict)


def element_type(x: Expr) -> str:
    """The type of an expression, of a vector that of its elements."""
    return dtype_of(x).partition("x")[0]


def is_integer(dtype: str) -> bool:
    return dtype.startswith(("int", "uint"))


class Known:
    """Looks through the names and the registers of a kernel.

    Args:
        body: the kernel's, before anything of it is changed.
    """

    def __init__(self, body: Any) -> None:
        self._values: dict[Any, list[Expr]] = {}
        self._loops: dict[Any, list[tuple[Expr, Expr]]] = {}
        self._stored: dict[Any, list[Expr]] = {}
        self._registers: set[Any] = set()
        self._loaded: dict[Any, Interval] = {}
        self._everywhere = _Where()
        self._data: dict[Any, bool] = {}
        shared: list[Any] = []
        callbacks = [
            (tirx.stmt.Bind, lambda x: self._values.setdefault(x.var, []).append(x.value)),
            (tirx.Let, lambda x: self._values.setdefault(x.var, []).append(x.value)),
            (tirx.For, lambda x: self._loops.setdefault(x.loop_var, []).append((x.min, x.extent))),
            (tirx.AllocBuffer, lambda x: self._registers.add(x.buffer)),
            (tirx.BufferStore, lambda x: self._stored.setdefault(x.buffer, []).append(x.value)),
            (tirx.DeclBuffer, shared.append),
            (Call, lambda x: shared.append(x) if name_of(x) == "address_of" else None),
        ]
        tvm_ffi.structural_walk(body, callbacks)
        # What is reached by its address too is not a register.
        for x in shared:
            where = x.data if isinstance(x, tirx.DeclBuffer) else x.args[0]
            tvm_ffi.structural_walk(where, (tirx.Var, self._registers.discard))
            if isinstance(where, TensorLoad):
                self._registers.discard(where.source)

    def named(self, x: Expr) -> Expr:
        """What a name stands for, where that is one expression; any other expression itself."""
        while type(x) is tirx.Var and len(self._values.get(x, ())) == 1:
            x = self._values[x][0]
        return x

    # Data ------------------------------------------------------------------------------------------------

    def is_data(self, x: Expr) -> bool:
        """Whether memory decides what an integer is, rather than positions alone."""
        kind = type(x)
        if kind is tirx.Var:
            if x not in self._data:
                self._data[x] = False
                self._data[x] = any(map(self.is_data, self._values.get(x, ())))
            return self._data[x]
        if kind is TensorLoad:
            return True
        return any(map(self.is_data, _parts(x)))

    # Intervals -------------------------------------------------------------------------------------------

    def interval(self, x: Expr) -> Interval:
        """In what a number, or each of a vector, lies."""
        return self._interval(x, self._everywhere, 0)

    def fits(self, x: Expr) -> bool:
        """Whether the type of a sum, a difference or a product of integers holds it."""
        a, b = (self.interval(part) for part in (x.a, x.b))
        made = _computed(name_of(x), [a, b], element_type(x), [])
        return made is not None and made.within(*integer_limits(element_type(x)))

    def _interval(self, x: Expr, where: _Where, depth: int) -> Interval:
        number = number_in(x)
        if number is not None:
            return of_dtype("float64") if isnan(number) else Interval(number, number)
        if depth > DEEPEST:
            return of_dtype(element_type(x))
        if type(x) is not tirx.Var:
            return apply(where.facts, x, self._found(x, where, depth))
        if x not in where.found:
            where.found[x] = of_dtype(element_type(x))  # where it depends on itself
            where.found[x] = apply(where.facts, x, self._of_variable(x, where, depth))
        return where.found[x]

    def _of_variable(self, x: Any, where: _Where, depth: int) -> Interval:
        if x in self._loops:
            found = [self._of_loop(*loop, where, depth) for loop in self._loops[x]]
        else:
            found = [self._interval(value, where, depth + 1) for value in self._values.get(x, ())]
        return _union(found, element_type(x))

    def _of_loop(self, first: Expr, extent: Expr, where: _Where, depth: int) -> Interval:
        begin, count = (self._interval(end, where, depth + 1) for end in (first, extent))
        return Interval(begin.least, max(begin.least, begin.most + count.most - 1))

    def _found(self, x: Expr, where: _Where, depth: int) -> Interval:
        dtype, name = element_type(x), name_of(x)
        if type(x) is TensorLoad:
            return self._of_load(x, dtype)
        if name in {"select", "if_then_else"}:
            return self._of_select(x, where, depth)
        if name == "ramp" or dtype in {"bool", "handle"}:
            return of_dtype(dtype)
        if name == "call_llvm_pure_intrin":
            return self._of_llvm(x, where, depth, dtype)
        operands = [self._interval(part, where, depth + 1) for part in operands_of(x)]
        made = _computed(name, operands, dtype, [element_type(part) for part in operands_of(x)])
        if made is None:
            return of_dtype(dtype)
        if not is_integer(dtype):
            return interval.rounded(made, dtype)
        limits = integer_limits(dtype)
        return made if made.within(*limits) else of_dtype(dtype)  # it wraps, or is made to

    def _of_load(self, x: Expr, dtype: str) -> Interval:
        buffer = x.source
        if buffer not in self._registers or buffer not in self._stored:
            return of_dtype(dtype)
        if buffer not in self._loaded:
            self._loaded[buffer] = of_dtype(dtype)  # where it depends on itself
            found = [self.interval(value) for value in self._stored[buffer]]
            self._loaded[buffer] = _union(found, dtype)
        return self._loaded[buffer]

    def _of_select(self, x: Expr, where: _Where, depth: int) -> Interval:
        condition, *sides = operands_of(x)
        if where.conditions == CONDITIONS:  # each is looked at as often as it stands in others
            return of_dtype(element_type(x))
        found = []
        for side, holds in zip(sides, (True, False), strict=True):
            facts = (*where.facts, *facts_of(condition, holds, self.named))
            found.append(self._interval(side, _Where(facts, where.conditions + 1), depth + 1))
        return united(*found)

    def _of_llvm(self, x: Expr, where: _Where, depth: int, dtype: str) -> Interval:
        name, *operands = x.args
        name = llvm_get_intrinsic_name(int(name.value)).removeprefix("llvm.")
        if not operands or dtype != element_type(operands[-1]):
            return of_dtype(dtype)
        last = self._interval(operands[-1], where, depth + 1)
        if name == "arithmetic.fence":
            return last
        made = _computed(name, [last], dtype, [dtype])
        return of_dtype(dtype) if made is None or is_integer(dtype) else interval.rounded(made, dtype)


def _parts(x: Expr) -> tuple[Expr, ...]:
    """The operands of any expression, vectors' too."""
    known = operands_of(x)
    if known:
        return known
    if type(x) is tirx.Ramp:
        return x.base, x.stride
    if type(x) is tirx.Shuffle:
        return tuple(x.vectors)
    return (x.value, x.body) if type(x) is tirx.Let else ()


def _union(found: list[Interval], dtype: str) -> Interval:
    if not found:
        return of_dtype(dtype)
    made = found[0]
    for other in found[1:]:
        made = united(made, other)
    return made


def _computed(name: str, x: list[Interval], dtype: str, types: list[str]) -> Interval | None:
    """What an operation makes of intervals, without a type's limits; None where nothing is known."""
    if name in {"broadcast", "likely"}:
        return x[0]
    if name == "cast":
        return _converted(x[0], dtype, types[0])
    if name in {"add", "sub"}:
        b = x[1] if name == "add" else Interval(-x[1].most, -x[1].least, x[1].nan)
        return interval.added(x[0], b)
    if name == "mul":
        return interval.multiplied(*x)
    if name in {"min", "max"}:
        return _limited(name, *x)
    if name == "div" and not is_integer(dtype):
        return interval.divided(*x)
    if name in {"div", "floor_div", "mod", "floor_mod"} and is_integer(dtype):
        return _whole_quotient(name, *x)
    if name == "bitwise_and":
        masks = [side.most for side in x if side.least >= 0]
        return Interval(0, min(masks)) if masks else None
    if name == "shift_right" and x[1].within(0, 127):
        ends = [int(a) >> int(b) for a in (x[0].least, x[0].most) for b in (x[1].least, x[1].most)]
        return Interval(min(ends), max(ends))
    if name in _ROUNDING:
        least, most = x[0].least, x[0].most
        return Interval(
            least if isinf(least) else floor(least), most if isinf(most) else ceil(most), x[0].nan
        )
    if name in {"fabs", "abs"}:
        nearest = 0.0 if x[0].has(0) else min(abs(x[0].least), abs(x[0].most))
        return Interval(nearest, x[0].magnitude, x[0].nan)
    return None


def _converted(x: Interval, dtype: str, source: str) -> Interval | None:
    if is_integer(dtype) and not is_integer(source) and source != "bool":
        limits = integer_limits(dtype)
        if not x.within(limits[0] - 1, limits[1] + 1):
            return None
        least, most = (min(max(trunc(end), limits[0]), limits[1]) for end in (x.least, x.most))
        return Interval(least, most)
    return x


def _limited(name: str, a: Interval, b: Interval) -> Interval:
    """The smaller or larger of two, ``a < b ? a : b``: the second where the first is NaN."""
    if name == "min":
        return Interval(min(a.least, b.least), b.most if a.nan else min(a.most, b.most), b.nan)
    return Interval(b.least if a.nan else max(a.least, b.least), max(a.most, b.most), b.nan)


def _whole_quotient(name: str, a: Interval, b: Interval) -> Interval | None:
    if name in {"div", "floor_div"}:
        return Interval(min(a.least, -a.most, 0), max(a.most, -a.least, 0))
    if b.least > 0 and (name == "floor_mod" or a.least >= 0):
        return Interval(0, b.most - 1)
    return Interval(-b.magnitude, b.magnitude)
