"""Matrix products of dequantised tensors as products of their integers, for CPUs that multiply these faster.

(sx (x - zx)) @ (sw (w - zw)) = sx sw ((x - zx) @ (w - zw)), for one scale of x, and one of w or of each of
its columns. The sums are exact, so the result is nearer to the model's than float32 would be.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from tvm import relax
from tvm.ir import IRModule

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

__all__ = ["integer_products"]

BYTES = {"int8", "uint8"}

#: Largest difference of two bytes.
LARGEST = 255

#: Length of a reduction from which on sums may exceed int32.
LONGEST = 2**31 // LARGEST**2


class _IntegerProducts(Rewriter):
    def __init__(self, module: IRModule) -> None:
        super().__init__(module)
        #: What dequantises, by its result.
        self.dequantised: dict[relax.Expr, relax.Call] = {}

    def visit_call(self, call: relax.Call, args: Sequence[relax.Expr]) -> relax.Expr:
        if op_name(call) == "relax.matmul" and all(arg in self.dequantised for arg in args):
            made = self._product(call, *(self.dequantised[arg] for arg in args))
            if made is not None:
                return made
        made = super().visit_call(call, args)
        if op_name(call) == "relax.dequantize":
            self.dequantised[made] = relax.Call(call.op, list(args), call.attrs, call.ty_args)
        return made

    def _product(self, call: relax.Call, left: relax.Call, right: relax.Call) -> OptionalExpr:
        """The product of two dequantised matrices; None where scales are not as above, or it is too long."""
        shapes = [shape_of(each.args[0]) for each in (left, right)]
        if dtype_of(call) != "float32" or min(map(len, shapes)) < 2 or shapes[0][-1] >= LONGEST:
            return None
        if not all(dtype_of(each.args[0]) in BYTES for each in (left, right)) or not _single(left):
            return None
        last = len(shapes[1]) - 1
        if not _single(right) and int(right.attrs.axis) % len(shapes[1]) != last:
            return None
        if not all(is_constant(part) for each in (left, right) for part in each.args[1:]):
            return None
        scales = [numpy_of(each.args[1]).astype(np.float64).reshape(-1) for each in (left, right)]
        scale = (scales[0] * scales[1]).astype(np.float32)
        product = self.emit(relax.op.matmul(*(self._shifted(each) for each in (left, right))))
        whole = self.emit(relax.op.astype(product, "float32"))
        return self.emit(relax.op.multiply(whole, constant(scale if scale.size > 1 else scale.reshape(()))))

    def _shifted(self, call: relax.Call) -> relax.Expr:
        """The integers less their zero point, in int32."""
        x, zero = call.args[0], numpy_of(call.args[2]).astype(np.int32)
        if is_constant(x):
            return constant(numpy_of(x).astype(np.int32) - (zero.reshape(()) if zero.size == 1 else zero))
        wide = self.emit(relax.op.astype(x, "int32"))
        zero = zero.reshape(()) if zero.size == 1 else zero
        return self.emit(relax.op.subtract(wide, constant(zero))) if zero.any() else wide


def _single(call: relax.Call) -> bool:
    """Whether a call of dequantize has one scale and one zero point."""
    return all(prod(shape_of(part)) == 1 for part in call.args[1:])


def integer_products(module: IRModule) -> IRModule:
    """Makes matrix products of bytes of those of dequantised bytes whose scales are known.

    Args:
        module: as it was imported: nothing is folded yet.
    """
    return _IntegerProducts(module).run()
