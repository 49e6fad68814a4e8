"""Sums of float16 products are accumulated in float32.

A float16 has 11 significant bits: adding up more than some hundred products in it loses the result. CPUs
without float16 arithmetic convert each operand anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax
from tvm.ir import IRModule

from edgepack.compiler.graph.rewrite import Rewriter, dtype_of, op_name

__all__ = ["accumulate_in_float32"]

#: Operators with an ``out_dtype``: they multiply and add in it.
WIDENED = {"relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d"}

#: Operators without: their operands are widened.
REDUCTIONS = {"relax.mean", "relax.sum", "relax.variance", "relax.std", "relax.nn.avg_pool2d"}


class _AccumulateInFloat32(Rewriter):
    """Computes float16 products and sums in float32 and rounds their result."""

    def visit_call(self, call: relax.Call, args: Sequence[relax.Expr]) -> relax.Expr:
        name = op_name(call)
        narrow = name and isinstance(call.ty, relax.TensorType) and dtype_of(call) == "float16"
        if narrow and name == "relax.matmul":
            return self._narrow(relax.op.matmul(*args, out_dtype="float32"))
        if narrow and name in WIDENED:
            a = call.attrs
            op = getattr(relax.op.nn, name.rpartition(".")[2])
            return self._narrow(
                op(
                    *args,
                    strides=list(a.strides),
                    padding=list(a.padding),
                    dilation=list(a.dilation),
                    groups=int(a.groups),
                    data_layout=a.data_layout,
                    kernel_layout=a.kernel_layout,
                    out_dtype="float32",
                )
            )
        if narrow and name in REDUCTIONS:
            wide = self.emit(relax.op.astype(args[0], "float32"))
            return self._narrow(relax.Call(call.op, [wide, *args[1:]], call.attrs, call.ty_args))
        return super().visit_call(call, args)

    def _narrow(self, wide: relax.Call) -> relax.Expr:
        return self.emit(relax.op.astype(self.emit(wide), "float16"))


def accumulate_in_float32(module: IRModule) -> IRModule:
    """Rewrites float16 convolutions, matrix products and reductions."""
    return _AccumulateInFloat32(module).run()
