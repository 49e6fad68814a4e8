"""What values integers of a TIR function can have, as far as its expressions say: the positions of loads and
stores among them.

Nothing is believed of what is loaded: an element may be any number of its type, unless the function itself
has computed it. So may a float that is converted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from math import inf
from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import PrimFunc

__all__ = ["Bounds", "Range", "dtype_of"]

#: The least and the largest value.
Range = tuple[float, float]

ANY: Range = (-inf, inf)

TRUTH: Range = (0, 1)

Expr = Any


def dtype_of(x: Expr) -> str:
    """The element type of an expression."""
    return str(x.ty.dtype) if hasattr(x.ty, "dtype") else str(x.ty)


def limits_of(dtype: str) -> Range:
    """What an element of a type can be; NaN beside it, if it is a float."""
    if dtype == "bool":
        return TRUTH
    if not dtype.startswith(("int", "uint")):
        return ANY
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


class Bounds:
    """What is known of the expressions of one function.

    Args:
        function: of static shapes; loops, blocks and stores, as TVM legalises and fuses operators.

    Attributes:
        accesses: tensors that are loaded from and stored to, and where.
    """

    def __init__(self, function: PrimFunc) -> None:
        self._variables: dict[Expr, Range] = {}
        self._counted: set[Expr] = set()
        self._stored: dict[Expr, list[Expr]] = {}
        self._buffers: dict[Expr, Range] = {}
        self.accesses: list[tuple[Expr, Sequence[Expr]]] = []
        callbacks = [
            (tirx.For, self._loop),
            (SBlock, self._block),
            (tirx.BufferStore, self._store),
            (TensorLoad, lambda load: self.accesses.append((load.source, load.indices))),
        ]
        tvm_ffi.structural_walk(function.body, callbacks, order="pre")

    def of(self, x: Expr) -> Range:
        """The range of an expression; of floats all numbers."""
        if not dtype_of(x).startswith(("int", "uint", "bool")):
            return ANY
        found = _RULES.get(type(x))
        known = found(self, x) if found else ANY
        limits = limits_of(dtype_of(x))
        return known if limits[0] <= known[0] and known[1] <= limits[1] else limits

    def within(self, ranges: Mapping[Expr, Range]) -> Bounds:
        """The same, where some counters have smaller ranges; of what the function stores nothing is known."""
        inner = copy(self)
        inner._variables, inner._stored, inner._buffers = {**self._variables, **ranges}, {}, {}
        return inner

    def depends_on_data(self, x: Expr) -> bool:
        """Whether the expression loads anything, or has a variable that is no counter of known bounds."""
        if type(x) is tirx.IntImm:
            return False
        if type(x) is tirx.Var:
            return x not in self._counted
        if type(x) in ARITHMETIC:
            return self.depends_on_data(x.a) or self.depends_on_data(x.b)
        found: list[Expr] = []
        variables: list[Expr] = []
        tvm_ffi.structural_walk(x, [(TensorLoad, found.append), (tirx.Var, variables.append)])
        return bool(found) or any(variable not in self._counted for variable in variables)

    # What is known of variables and buffers ---------------------------------------------------------------

    def _loop(self, loop: tirx.For) -> None:
        self._bind(loop.loop_var, loop.min, loop.extent)

    def _block(self, block: SBlock) -> None:
        for one in block.iter_vars:
            self._bind(one.var, one.dom.min, one.dom.extent)

    def _bind(self, variable: Expr, least: Expr, extent: Expr) -> None:
        first, count = self.of(least), self.of(extent)
        self._variables[variable] = (first[0], first[1] + count[1] - 1)  # of no trip: nothing
        if not self.depends_on_data(extent) and not self.depends_on_data(least):
            self._counted.add(variable)

    def _store(self, store: tirx.BufferStore) -> None:
        self._stored.setdefault(store.buffer, []).append(store.value)
        self.accesses.append((store.buffer, store.indices))

    def _variable(self, x: Expr) -> Range:
        return self._variables.get(x, ANY)

    def _load(self, x: Expr) -> Range:
        """What the function has stored in a buffer of its own; of one that it computes from itself, any."""
        if x.source not in self._buffers:
            self._buffers[x.source] = limits_of(dtype_of(x))
            stored = self._stored.get(x.source)
            if stored:
                self._buffers[x.source] = joined([self.of(value) for value in stored])
        return self._buffers[x.source]

    # Rules ------------------------------------------------------------------------------------------------

    def _select(self, x: Expr) -> Range:
        return joined([self.of(x.true_value), self.of(x.false_value)])

    def _call(self, x: Expr) -> Range:
        name = str(getattr(x.op, "name", "")).rpartition(".")[2]
        if name == "if_then_else":
            return joined([self.of(x.args[1]), self.of(x.args[2])])
        if name == "likely":
            return self.of(x.args[0])
        return ANY

    def _and(self, x: Expr) -> Range:
        """Bits of a mask that is not negative."""
        ends = [self.of(part) for part in (x.a, x.b)]
        masks = [high for low, high in ends if low >= 0]
        return (0, min(masks)) if masks else ANY

    def _minimum(self, x: Expr) -> Range:
        (a, b), (c, d) = self.of(x.a), self.of(x.b)
        return min(a, c), min(b, d)

    def _maximum(self, x: Expr) -> Range:
        (a, b), (c, d) = self.of(x.a), self.of(x.b)
        return max(a, c), max(b, d)


def joined(ranges: Sequence[Range]) -> Range:
    """The range of what is one of several."""
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _arithmetic(combine: Callable[[Range, Range], Range]) -> Callable[[Bounds, Expr], Range]:
    """The range of what two operands of these ranges give."""
    return lambda bounds, x: combine(bounds.of(x.a), bounds.of(x.b))


def _product(a: Range, b: Range) -> Range:
    ends = [x * y if x and y else 0 for x in a for y in b]
    return min(ends), max(ends)


def _quotient(a: Range, b: Range) -> Range:
    """Rounded down, by a positive number."""
    if b[0] <= 0 or -inf in a or inf in (*a, b[1]):
        return ANY
    ends = [x // y for x in a for y in b]
    return min(ends), max(ends)


def _rest(a: Range, b: Range) -> Range:
    """Not negative, below a positive number."""
    if b[0] <= 0:
        return ANY
    return (a[0], min(a[1], b[1] - 1)) if 0 <= a[0] <= a[1] < b[0] else (0, b[1] - 1)


def _truncated(rule: Callable[[Range, Range], Range]) -> Callable[[Range, Range], Range]:
    """What rounds towards zero, where that is down."""
    return lambda a, b: rule(a, b) if a[0] >= 0 else ANY


#: Operations on two numbers.
ARITHMETIC = {tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod}

_RULES: Mapping[type, Callable[[Bounds, Expr], Range]] = {
    tirx.IntImm: lambda _, x: (int(x.value), int(x.value)),
    tirx.Var: Bounds._variable,
    TensorLoad: Bounds._load,
    tirx.Cast: lambda bounds, x: bounds.of(x.value),
    tirx.Select: Bounds._select,
    Call: Bounds._call,
    tirx.Min: Bounds._minimum,
    tirx.Max: Bounds._maximum,
    tirx.BitwiseAnd: Bounds._and,
    tirx.Add: _arithmetic(lambda a, b: (a[0] + b[0], a[1] + b[1])),
    tirx.Sub: _arithmetic(lambda a, b: (a[0] - b[1], a[1] - b[0])),
    tirx.Mul: _arithmetic(_product),
    tirx.FloorDiv: _arithmetic(_quotient),
    tirx.FloorMod: _arithmetic(_rest),
    tirx.Div: _arithmetic(_truncated(_quotient)),
    tirx.Mod: _arithmetic(_truncated(_rest)),
}
