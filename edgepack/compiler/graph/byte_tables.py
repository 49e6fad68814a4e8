"""A table of 256 bytes, of which each element of a tensor of bytes chooses one.

In Relax it is ``take`` of a constant by bytes: the one whose position is a byte's bits, read as a number
without a sign. It is elementwise, and fuses as such.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx
from tvm.ir import IRModule
from tvm.tirx import PrimFunc

from edgepack.compiler.graph.rewrite import Array, constant, dtype_of, is_constant, op_name, shape_of

__all__ = ["BYTES", "is_look_up", "legalise_look_up", "look_up", "look_ups_as_elementwise"]

BYTES = frozenset({"int8", "uint8"})

#: Attribute of the functions that look bytes up.
_MARK = "edgepack.look_up"

#: TVM's pattern of elementwise operators.
ELEMENTWISE = 0


def look_up(table: Array, x: relax.Expr) -> relax.Expr:
    """The elements of a table that bytes choose.

    Args:
        table: 256 of int8 or uint8.
        x: of int8 or uint8.
    """
    return relax.op.take(constant(table), x, axis=0, mode="fast")


def is_look_up(call: Any) -> bool:
    """Whether an expression is what :func:`look_up` makes."""
    if op_name(call) != "relax.take" or not is_constant(call.args[0]):
        return False
    table, x = call.args
    return shape_of(table) == (256,) and {dtype_of(table), dtype_of(x)} <= BYTES


def legalise_look_up(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """The call of a function with the loop nest ``table[number of the byte]``."""

    def compute(table: te.Tensor, x: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            number = tirx.Cast("int32", x[at])
            return table[
                number if str(x.dtype) == "uint8" else tirx.bitwise_and(number, tirx.const(255, "int32"))
            ]

        return te.compute(x.shape, element, name="look_up")

    result = builder.call_te(compute, *call.args, primfunc_name_hint="look_up")
    gvar = result.args[0]
    builder.update_func(gvar, builder.get()[gvar].with_attr(_MARK, True))
    return result


def look_ups_as_elementwise(module: IRModule) -> IRModule:
    """Look-ups as operators that fuse behind others; TVM sees a load at a position that it does not know.

    Args:
        module: legalised, with TVM's operator patterns annotated (``AnnotateTIROpPattern``).
    """
    functions = dict(module.functions.items())
    for gvar, function in functions.items():
        if isinstance(function, PrimFunc) and _MARK in function.attrs:
            functions[gvar] = function.with_attr("op_pattern", ELEMENTWISE)
    return IRModule(functions, attrs=module.attrs)
