"""Products of integers that fit 16 bits, as such: sums of int32 of operands of int16.

Quantised models write products of bytes, less their zero points, as products of int32. CPUs multiply 16 bits
two to four times as fast; many have an instruction that multiplies pairs of them and adds the two products.
The sums are the same: both wrap around at 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax
from tvm.ir import IRModule

from edgepack.compiler.graph.integer_operands import BYTES, CONVOLUTIONS, INT16
from edgepack.compiler.graph.integer_ranges import MOVES, range_of, wider
from edgepack.compiler.graph.rewrite import (
    OptionalExpr,
    Rewriter,
    constant,
    dtype_of,
    is_constant,
    numpy_of,
    op_name,
    shape_of,
)

__all__ = ["int16_operands"]


class _Int16Operands(Rewriter):
    """Remembers what each value was computed by, and rewrites products of what is small enough."""

    def __init__(self, module: IRModule) -> None:
        super().__init__(module)
        self.calls: dict[relax.Expr, relax.Call] = {}

    def visit_call(self, call: relax.Call, args: Sequence[relax.Expr]) -> relax.Expr:
        new = self._product(call, args)
        made = super().visit_call(call, args) if new is None else new
        source = relax.Call(call.op, list(args), call.attrs, call.ty_args)
        self.calls[made] = source
        return made

    def _product(self, call: relax.Call, args: Sequence[relax.Expr]) -> OptionalExpr:
        """The product of int16, or None for any other call."""
        name = op_name(call)
        if name != "relax.matmul" and name not in CONVOLUTIONS:
            return None
        if (
            dtype_of(call) != "int32"
            or dtype_of(args[0]) in BYTES
            or not all(self._fits(arg) and not self._given(arg) for arg in args)
        ):
            return None
        left, right = args
        if name == "relax.matmul":
            if min(len(shape_of(left)), len(shape_of(right))) < 2:
                return None
            left, right = self._even(left, -1), self._even(right, -2)
            return self.emit(relax.op.matmul(left, right, out_dtype="int32"))
        a = call.attrs
        if str(a.data_layout)[-1] != "C" or str(a.kernel_layout)[-2:] != "IO":
            return None
        if int(a.groups) > 1:
            left, right = self._as_int16(left), self._as_int16(right)
        else:
            left, right = self._even(left, -1), self._even(right, -2)
        convolution = getattr(relax.op.nn, name.removeprefix("relax.nn."))
        attributes = {key: list(getattr(a, key)) for key in ("strides", "padding", "dilation")}
        return self.emit(
            convolution(
                left,
                right,
                **attributes,
                groups=int(a.groups),
                data_layout=str(a.data_layout),
                kernel_layout=str(a.kernel_layout),
                out_layout=str(a.out_layout),
                out_dtype="int32",
            )
        )

    def _given(self, expr: relax.Expr) -> bool:
        """Whether the value is a caller's int16, which need not lie where pairs of them may be read."""
        call: OptionalExpr = self.calls.get(expr)
        if op_name(call) in MOVES | {"relax.astype"}:
            return self._given(call.args[0])
        return call is None and dtype_of(expr) == "int16" and not is_constant(expr)

    # Ranges of values --------------------------------------------------------------------------------------

    def _fits(self, expr: relax.Expr) -> bool:
        found = range_of(self.calls, expr)
        return found is not None and INT16[0] <= found[0] and found[1] <= INT16[1]

    # Operands ----------------------------------------------------------------------------------------------

    def _as_int16(self, expr: relax.Expr) -> relax.Expr:
        """The value as int16, and what it is computed from as far as that fits too."""
        if dtype_of(expr) == "int16":
            return expr
        if is_constant(expr):
            return constant(numpy_of(expr).astype(np.int16))
        call: OptionalExpr = self.calls.get(expr)
        name = op_name(call)
        if name == "relax.astype" and wider(dtype_of(call.args[0]), dtype_of(expr)):
            return self._as_int16(call.args[0])
        if name in {"relax.subtract", "relax.add"} and all(self._fits(arg) for arg in call.args):
            a, b = (self._as_int16(arg) for arg in call.args)
            return self.emit(relax.Call(call.op, [a, b], call.attrs, call.ty_args))
        return self.emit(relax.op.astype(expr, "int16"))

    def _even(self, expr: relax.Expr, axis: int) -> relax.Expr:
        """The value as int16, with a zero behind its last element along an axis of odd length."""
        operand, shape = self._as_int16(expr), shape_of(expr)
        if shape[axis] % 2 == 0:
            return operand
        widths = [[0, int(i == axis % len(shape))] for i in range(len(shape))]
        if is_constant(operand):
            return constant(np.pad(numpy_of(operand), widths))
        return self.emit(relax.op.nn.pad(operand, [n for pair in widths for n in pair]))


def int16_operands(module: IRModule) -> IRModule:
    """Makes products of int32 whose operands fit 16 bits products of int16, of an even number of steps.

    Args:
        module: convolutions channels last.
    """
    return _Int16Operands(module).run()
