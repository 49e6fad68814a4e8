"""Isolate small results: what is computed for a few elements is not fused into an operator that broadcasts it
to many.

A gate of squeeze and excite is a convolution of one pixel, a sigmoid, and a multiplication of the whole image
by it. TVM fuses all three, and the group computes the sigmoid, or worse, anew for each pixel; nor is it a
convolution with an elementwise tail, which kernel rules look for. A view ends a group, so the pass puts
two that cancel each other between the small result and the large operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tvm import relax
from tvm.ir import IRModule

from edgepack.compiler.graph.legalize import ANCHOR
from edgepack.compiler.graph.rewrite import Rewriter, op_name, shape_of

__all__ = ["isolate_small_results"]

#: The largest TVM pattern of an operator that computes each element from elements at its own position.
BROADCAST = 1


class _IsolateSmallResults(Rewriter):
    """Attributes:
    tails: the results of anchors, and of elementwise operators of as many elements behind them.
    """

    def __init__(self, module: IRModule) -> None:
        super().__init__(module)
        self.tails: set[relax.Var] = set()

    def visit_call(self, call: relax.Call, args: Sequence[relax.Expr]) -> relax.Expr:
        if op_name(call) != "relax.call_tir" or not isinstance(call.ty, relax.TensorType):
            return super().visit_call(call, args)
        callee, operands = args[0], list(args[1].fields)
        function = self.module[callee]
        anchor = bool(function.attrs) and ANCHOR in function.attrs
        size = prod(shape_of(call))
        tail = anchor
        if not anchor and int(function.attrs.get("op_pattern", BROADCAST + 1)) <= BROADCAST:
            for i, operand in enumerate(operands):
                if operand not in self.tails:
                    continue
                if prod(shape_of(operand)) == size:
                    tail = True
                else:
                    operands[i] = self.isolated(operand)
        result = self.emit(
            relax.Call(call.op, [callee, relax.Tuple(operands), *args[2:]], call.attrs, call.ty_args)
        )
        if tail:
            self.tails.add(result)
        return result


def isolate_small_results(module: IRModule) -> IRModule:
    """Ends fused groups before a broadcast of what an anchor computed.

    Args:
        module: legalised, with TVM's operator patterns annotated (``AnnotateTIROpPattern``).
    """
    return _IsolateSmallResults(module).run()
