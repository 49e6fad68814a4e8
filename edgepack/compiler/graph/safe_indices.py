"""Positions that a caller hands in at run time, brought into range: kernels read and write where they say.

Gather's are in its own legalisation (``legalize.py``). One that is out of range stands for the nearest
element.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax
from tvm.ir import IRModule

from edgepack.compiler.graph.rewrite import Rewriter, constant, dtype_of, is_constant, op_name, shape_of

__all__ = ["safe_indices"]

#: Operators whose second operand has a position for each element, or one along several dimensions in a row.
BY_ELEMENT = {"relax.gather_elements", "relax.scatter_elements"}
BY_ROW = {"relax.gather_nd", "relax.scatter_nd"}


class _SafeIndices(Rewriter):
    def visit_call(self, call: relax.Call, args: Sequence[relax.Expr]) -> relax.Expr:
        name = op_name(call)
        if name not in BY_ELEMENT | BY_ROW or is_constant(args[1]):
            return super().visit_call(call, args)
        extents = self._extents(name, call, args)
        if 0 in shape_of(args[1]) or min(extents, default=0) == 0:
            return super().visit_call(call, args)
        indices, ends = args[1], np.array(extents if name in BY_ROW else extents[0], dtype_of(args[1]))
        zero, last = constant(np.zeros((), ends.dtype)), constant(np.asarray(ends - 1))
        negative = self.emit(relax.op.less(indices, zero))
        indices = self.emit(
            relax.op.where(negative, self.emit(relax.op.add(indices, constant(ends))), indices)
        )
        indices = self.emit(relax.op.minimum(self.emit(relax.op.maximum(indices, zero)), last))
        return super().visit_call(call, [args[0], indices, *args[2:]])

    def _extents(self, name: str, call: relax.Call, args: Sequence[relax.Expr]) -> tuple[int, ...]:
        """Sizes of the dimensions that the indices are positions along."""
        shape = shape_of(args[0])
        if name in BY_ELEMENT:
            return (shape[int(call.attrs.axis) % len(shape)],)
        first = int(call.attrs.batch_dims) if name == "relax.gather_nd" else 0
        return shape[first : first + shape_of(args[1])[-1]]


def safe_indices(module: IRModule) -> IRModule:
    """Clamps the indices of gathers and scatters that are not constants.

    Args:
        module: before legalisation, of static shapes.
    """
    return _SafeIndices(module).run()
