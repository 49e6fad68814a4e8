"""The pass: each operation of a function that LLVM leaves undefined for some numbers, made defined."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.tirx.stmt import Bind

from edgepack.compiler.backends.defined.known import Known
from edgepack.compiler.backends.defined.operations import (
    converted,
    is_conversion,
    quotient,
    shifted,
    unequal,
    wrapped,
)
from edgepack.compiler.kernels.expressions.nodes import dtype_of, name_of

__all__ = ["defined"]

#: Bitwise shifts, and whether to the left.
_SHIFTS = {"shift_left": True, "shift_right": False}


def defined(function: Any, *, saturating: bool = True) -> Any:
    """The function, with the same results wherever those were defined.

    Division, remainder, shift, conversion and, of what the data decide, sums and products stay as they are
    where :class:`Known` proves that their operands are ordinary: constants, positions, what was clamped.

    Args:
        saturating: whether the CPU's own conversions of numbers give the nearest integer.
    """
    return function.with_body(_Pass(function.body, saturating).run())


class _Pass:
    def __init__(self, body: Any, saturating: bool) -> None:
        self.body, self.known, self.saturating = body, Known(body), saturating
        self._chooses = False

    def run(self) -> Any:
        """The body made defined."""
        known = self.known
        return tvm_ffi.structural_map(
            self.body,
            [
                ((tirx.Add, tirx.Sub, tirx.Mul), lambda x: wrapped(x, known)),
                ((tirx.Div, tirx.Mod), lambda x: self._noted(x, quotient(x, known))),
                (tirx.Cast, self._cast),
                (tirx.NE, unequal),
                (tirx.LShift, lambda x: self._noted(x, shifted(x, x.a, x.b, True, known))),
                (tirx.RShift, lambda x: self._noted(x, shifted(x, x.a, x.b, False, known))),
                (Call, self._call),
                (Bind, self._bind),
                (tirx.BufferStore, self._store),
            ],
        )

    def _cast(self, x: Any) -> Any:
        # The analyser ends with a failed assertion at some integers that are made of numbers.
        self._chooses = self._chooses or is_conversion(x)
        return converted(x, self.known, self.saturating)

    def _call(self, x: Any) -> Any:
        name = name_of(x)
        if name not in _SHIFTS:
            return x
        a, by = x.args
        return self._noted(x, shifted(x, a, by, _SHIFTS[name], self.known))

    def _noted(self, before: Any, made: Any) -> Any:
        self._chooses = self._chooses or made is not before
        return made

    def _store(self, x: Any) -> Any:
        self._chooses = False
        return x

    def _bind(self, x: Any) -> Any:
        """A name for a value that is chosen now stands for what lies in a local array, which LLVM makes a
        register: TVM's analyser replaces names by what they are bound to, and looks at each side of a choice
        many times."""
        chooses, self._chooses = self._chooses, False
        if not chooses:
            return x
        register = tirx.decl_buffer((1,), dtype_of(x.value), "chosen", scope="local")
        first = [tirx.IntImm("int32", 0)]
        return tirx.SeqStmt(
            [
                tirx.AllocBuffer(register),
                tirx.BufferStore(register, x.value, first),
                Bind(x.var, register.vload(first)),
            ]
        )
