"""Products and convolutions of bytes less a zero point, as those of the bytes themselves.

Models whose arithmetic is written out in integers subtract the zero point first; dynamic quantisation
computes it from the activations. The sums are those of the bytes and the weights, less the zero point times
the sum of each column of weights::

    (x - zx) w = x w - zx sum(w)

All of it is int32, which wraps around on both sides alike. What a convolution reads outside of an image is
the zero point, which has to be known then.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from tvm import relax
from tvm.ir import IRModule

from edgepack.compiler.graph.integer_operands import BYTES, CONVOLUTIONS
from edgepack.compiler.graph.quantised_rounding import shifted
from edgepack.compiler.graph.quantised_values import ByteProducts
from edgepack.compiler.graph.rewrite import (
    Array,
    OptionalExpr,
    Rewriter,
    constant,
    dtype_of,
    is_constant,
    numpy_of,
    op_name,
    shape_of,
)
from edgepack.compiler.graph.window_rows import row_weights, window_rows

__all__ = ["byte_operands"]

#: What hands its first operand's elements on, whatever these are.
VIEWS = {"relax.reshape", "relax.permute_dims", "relax.expand_dims", "relax.squeeze", "relax.flatten"}


class _ByteOperands(Rewriter):
    def __init__(self, module: IRModule, quads: ByteProducts) -> None:
        super().__init__(module)
        self.quads = quads
        self.calls: dict[relax.Expr, relax.Call] = {}
        #: Sums that were made of products and constants: the two.
        self.corrected: dict[relax.Expr, tuple[relax.Expr, Array]] = {}

    def visit_call(self, call: relax.Call, args: Sequence[relax.Expr]) -> relax.Expr:
        name, new = op_name(call), None
        if name == "relax.matmul":
            new = self._product(call, args)
        elif name in CONVOLUTIONS:
            new = self._convolution(call, args)
        elif name == "relax.add":
            new = self._sum(args)
        made = super().visit_call(call, args) if new is None else new
        self.calls[made] = relax.Call(call.op, list(args), call.attrs, call.ty_args)
        return made

    def _product(self, call: relax.Call, args: Sequence[relax.Expr]) -> OptionalExpr:
        """The product of quads of bytes; None where it is none."""
        left, right = args
        if dtype_of(call) != "int32" or len(shape_of(right)) != 2 or len(shape_of(left)) < 2:
            return None
        weights, found = self._known(right), self._less_zero(left)
        if weights is None or found is None:
            return None
        x, zero = found
        rows = len(weights)
        extra = self.quads.padding(rows)
        padded = np.pad(weights, [(0, extra), (0, 0)])
        if not self.quads.fits(padded):
            return None
        x, moved = self._as_left(x)
        if extra:
            x = self.emit(relax.op.nn.pad(x, [*[0] * (2 * len(shape_of(x)) - 1), extra]))
        sums = self.emit(relax.op.matmul(x, constant(padded.astype(np.int8)), out_dtype="int32"))
        if is_constant(zero):
            return self._added(sums, (-(int(numpy_of(zero)) + moved) * weights.sum(0)).astype(np.int32))
        if moved:
            zero = self.emit(relax.op.add(zero, constant(np.array(moved, np.int32))))
        columns = constant(weights.sum(0).astype(np.int32))
        return self.emit(relax.op.subtract(sums, self.emit(relax.op.multiply(columns, zero))))

    def _convolution(self, call: relax.Call, args: Sequence[relax.Expr]) -> OptionalExpr:
        """The convolution of quads of bytes, channels last; None if it is none."""
        a, found, weights = call.attrs, self._less_zero(args[0]), self._known(args[1])
        if dtype_of(call) != "int32" or str(a.data_layout)[-1] != "C" or str(a.kernel_layout)[-2:] != "IO":
            return None
        if found is None or weights is None or not is_constant(found[1]):
            return None
        x, moved = self._as_left(found[0])
        offset = int(numpy_of(found[1])) + moved
        form = self._of_rows(call, x, weights, offset)
        if form is None:
            form = self._of_channels(call, x, weights, offset)
        if form is None:
            return None
        columns = weights.reshape(-1, weights.shape[-1]).sum(0)
        return self._added(form, (-offset * columns).astype(np.int32)) if offset else form

    def _of_rows(self, call: relax.Call, x: relax.Expr, weights: Array, offset: int) -> OptionalExpr:
        """The sums of an image of one channel, by quads of neighbouring pixels; None of another one."""
        a = call.attrs
        if not self.quads.whole or weights.ndim != 4 or weights.shape[1] < 2 or weights.shape[2] != 1:
            return None
        if int(a.groups) > 1:
            return None
        window = tuple([int(n) for n in values] for values in (a.strides, a.dilation, a.padding))
        if not self.quads.fits(row_weights(weights).reshape(-1, weights.shape[3])):
            return None
        image = window_rows(self, x, weights.shape[1], window, offset)
        strides, dilation = [window[0][0], 1], [window[1][0], 1]
        return self._convolved(call, image, row_weights(weights), (strides, dilation, [0] * 4))

    def _of_channels(self, call: relax.Call, x: relax.Expr, weights: Array, offset: int) -> OptionalExpr:
        """The sums by quads of neighbouring channels; None where there are none."""
        a, inner, rank = call.attrs, weights.shape[-2], weights.ndim - 2
        if not self.quads.takes(inner, int(a.groups), rank):
            return None
        extra = self.quads.padding(inner)
        padded = np.pad(weights, [*[(0, 0)] * rank, (0, extra), (0, 0)])
        if not self.quads.fits(padded.reshape(-1, weights.shape[-1])):
            return None
        pads = [int(n) for n in a.padding]
        if extra:
            x = self.emit(relax.op.nn.pad(x, [*[0] * (2 * rank + 3), extra]))
        if any(pads) and offset:
            widths = [n for i in range(rank) for n in (pads[i], pads[i + rank])]
            x = self.emit(relax.op.nn.pad(x, [0, 0, *widths, 0, 0], pad_value=float(offset)))
            pads = [0] * len(pads)
        return self._convolved(call, x, padded, (list(a.strides), list(a.dilation), pads))

    def _convolved(
        self, call: relax.Call, x: relax.Expr, weights: Array, window: tuple[list[int], list[int], list[int]]
    ) -> relax.Expr:
        a, (strides, dilation, padding) = call.attrs, window
        operator = getattr(relax.op.nn, op_name(call).removeprefix("relax.nn."))
        return self.emit(
            operator(
                x,
                constant(weights.astype(np.int8)),
                strides=strides,
                padding=padding,
                dilation=dilation,
                groups=int(a.groups),
                data_layout=str(a.data_layout),
                kernel_layout=str(a.kernel_layout),
                out_layout=str(a.out_layout),
                out_dtype="int32",
            )
        )

    def _as_left(self, x: relax.Expr) -> tuple[relax.Expr, int]:
        """Bytes as the type that the instruction takes, and what was added to them for it."""
        moved = 128 * (int(self.quads.left == "uint8") - int(dtype_of(x) == "uint8"))
        return shifted(self, x, moved, self.quads.left), moved

    def _added(self, sums: relax.Expr, number: Array) -> relax.Expr:
        """Sums and a constant, which the next one joins."""
        made = self.emit(relax.op.add(sums, constant(number)))
        self.corrected[made] = sums, number
        return made

    def _sum(self, args: Sequence[relax.Expr]) -> OptionalExpr:
        """A further constant that is added to corrected sums."""
        for sums, other in (args, args[::-1]):
            if sums in self.corrected and is_constant(other) and dtype_of(other) == "int32":
                base, number = self.corrected[sums]
                return self._added(base, number + numpy_of(other))
        return None

    def _less_zero(self, expr: relax.Expr) -> tuple[relax.Expr, relax.Expr] | None:
        """The bytes that a wider tensor is, and the scalar of int32 that was subtracted from them."""
        call: OptionalExpr = self.calls.get(expr)
        if op_name(call) in VIEWS:
            inner = self._less_zero(call.args[0])
            if inner is None:
                return None
            args = [inner[0], *call.args[1:]]
            return self.emit(relax.Call(call.op, args, call.attrs, call.ty_args)), inner[1]
        if self._is_widened(call):
            return call.args[0], constant(np.array(0, np.int32))
        if op_name(call) not in {"relax.subtract", "relax.add"} or prod(shape_of(call.args[1])) != 1:
            return None
        widened: OptionalExpr = self.calls.get(call.args[0])
        if not self._is_widened(widened):
            return None
        zero = call.args[1]
        if is_constant(zero):
            number = int(numpy_of(zero).reshape(()))
            number = number if op_name(call) == "relax.subtract" else -number
            return widened.args[0], constant(np.array(number, np.int32))
        if op_name(call) == "relax.add":
            return None
        return widened.args[0], self.emit(relax.op.reshape(zero, ())) if shape_of(zero) else zero

    @staticmethod
    def _is_widened(call: OptionalExpr) -> bool:
        """Whether these are bytes as a wider type."""
        wide = op_name(call) == "relax.astype" and dtype_of(call.args[0]) in BYTES
        return wide and str(call.ty_args[0].dtype if call.ty_args else call.attrs.dtype) in {"int16", "int32"}

    def _known(self, expr: relax.Expr) -> Array | None:
        """The integers of a tensor that depends on constants alone; None for another one."""
        if is_constant(expr):
            values = numpy_of(expr)
            return values.astype(np.int64) if values.dtype.kind in "iu" else None
        call: OptionalExpr = self.calls.get(expr)
        if op_name(call) == "relax.astype":
            return self._known(call.args[0])
        if op_name(call) == "relax.subtract":
            a, b = (self._known(arg) for arg in call.args)
            return None if a is None or b is None else a - b
        return None


def byte_operands(module: IRModule, quads: ByteProducts) -> IRModule:
    """Makes products of bytes by constants of such as are computed less a zero point, where the weights are
    such that the target's instruction does not saturate.

    Args:
        module: before its constants are folded.
        quads: how the target multiplies bytes.
    """
    return _ByteOperands(module, quads).run()
