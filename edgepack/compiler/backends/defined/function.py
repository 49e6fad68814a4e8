"""The pass: each operation of a function that LLVM leaves undefined for some numbers, made defined."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call

from edgepack.compiler.backends.defined.known import Known
from edgepack.compiler.backends.defined.operations import converted, quotient, shifted, wrapped
from edgepack.compiler.kernels.expressions.nodes import name_of

__all__ = ["defined"]

#: Bitwise shifts, and whether to the left.
_SHIFTS = {"shift_left": True, "shift_right": False}


def defined(function: Any) -> Any:
    """The function, with the same results wherever those were defined.

    Division, remainder, shift, conversion and, of what the data decide, sums and products stay as they are
    where :class:`Known` proves that their operands are ordinary: constants, positions, what was clamped.
    """
    known = Known(function.body)

    def call(x: Any) -> Any:
        name = name_of(x)
        return shifted(x, *x.args, _SHIFTS[name], known) if name in _SHIFTS else x

    body = tvm_ffi.structural_map(
        function.body,
        [
            ((tirx.Add, tirx.Sub, tirx.Mul), lambda x: wrapped(x, known)),
            ((tirx.Div, tirx.Mod), lambda x: quotient(x, known)),
            (tirx.Cast, lambda x: converted(x, known)),
            (tirx.LShift, lambda x: shifted(x, x.a, x.b, True, known)),
            (tirx.RShift, lambda x: shifted(x, x.a, x.b, False, known)),
            (Call, call),
        ],
    )
    return function.with_body(body)
