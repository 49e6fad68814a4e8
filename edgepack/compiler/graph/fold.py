"""Evaluate in numpy what depends on constants only and is a matter of shape, and write every view as a
reshape.

TVM's FoldConstant compiles one LLVM module for each call that it folds; on a large network that takes
minutes. What is left after this pass (few, small things) goes through it all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax
from tvm.ir import IRModule

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
from edgepack.compiler.graph.views import transposed_base

__all__ = ["fold_views"]

#: Operators that only rename dimensions: the bytes stay as they are.
VIEWS = {
    "relax.reshape",
    "relax.expand_dims",
    "relax.squeeze",
    "relax.flatten",
    "relax.nn.batch_flatten",
}

ELEMENTWISE: dict[str, Callable[..., Array]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.maximum": np.maximum,
    "relax.minimum": np.minimum,
    "relax.negative": np.negative,
    "relax.sqrt": np.sqrt,
}

COMPARISONS: dict[str, Callable[..., Array]] = {"relax.less": np.less, "relax.equal": np.equal}


class _FoldViews(Rewriter):
    """Replaces calls of constants by their value, what has no elements too, and views by reshapes."""

    def visit_call(self, call: relax.Call, args: Sequence[relax.Expr]) -> relax.Expr:
        name = op_name(call)
        if isinstance(call.ty, relax.TensorType) and 0 in shape_of(call):
            # Known whatever it is computed from. TVM's reshape takes a zero for "as before".
            return constant(np.zeros(shape_of(call), dtype_of(call)))
        folded = _evaluate(name, call, args)
        if folded is not None:
            return constant(folded)
        if name in VIEWS:
            if shape_of(args[0]) == shape_of(call):
                return args[0]
            return self.emit(relax.op.reshape(args[0], shape_of(call)))
        if name == "relax.permute_dims":
            return self._transpose(call, args[0])
        if name == "relax.where" and is_constant(args[0]):
            chosen = _chosen(call, args)
            if chosen is not None:
                return chosen
        if name == "relax.astype" and dtype_of(args[0]) == dtype_of(call):
            return args[0]
        return super().visit_call(call, args)

    def _transpose(self, call: relax.Call, data: relax.Expr) -> relax.Expr:
        """A transpose that moves only dimensions of size one is a view."""
        axes = _axes(call, len(shape_of(data)))
        kept = [a for a in axes if shape_of(data)[a] != 1]
        if kept == sorted(kept):
            return self.emit(relax.op.reshape(data, shape_of(call)))
        undone = transposed_base(data, axes, self._definition)
        if undone is not None:
            return self.emit(relax.op.reshape(undone, shape_of(call)))
        return self.emit(relax.op.permute_dims(data, axes))

    def _definition(self, expr: relax.Expr) -> OptionalExpr:
        return self.builder.lookup_binding(expr) if isinstance(expr, relax.Var) else None


def _chosen(call: relax.Call, args: Sequence[relax.Expr]) -> OptionalExpr:
    """The operand that a condition without exceptions chooses: importers write index < 0 for any index, and
    ask of each row of a causal mask whether it is -inf as a whole."""
    condition = numpy_of(args[0])
    if not condition.size or condition.any() != condition.all():
        return None
    chosen = args[1] if condition.all() else args[2]
    return chosen if shape_of(chosen) == shape_of(call) else None


def _axes(call: relax.Call, rank: int) -> list[int]:
    axes = call.attrs.axes
    return list(reversed(range(rank))) if axes is None else [int(a) % rank for a in axes]


def _evaluate(name: str, call: relax.Call, args: Sequence[relax.Expr]) -> Array | None:
    """The call's value if all its tensors are constants and numpy does it exactly; else None."""
    tensors = [a for a in args if not isinstance(a, relax.ShapeExpr)]
    if not tensors or not all(is_constant(a) for a in tensors):
        return None
    values = [numpy_of(a) for a in tensors]
    if name in VIEWS:
        return values[0].reshape(shape_of(call))
    if name == "relax.permute_dims":
        return values[0].transpose(_axes(call, values[0].ndim))
    if name == "relax.astype" and values[0].dtype.kind != "f":
        return values[0].astype(dtype_of(call))
    if name == "relax.broadcast_to":
        return np.broadcast_to(values[0], shape_of(call))
    if name in COMPARISONS:
        return np.asarray(COMPARISONS[name](*values))
    if name == "relax.max" and values[0].size and not np.isnan(values[0]).any():
        axes = call.attrs.axis
        along = None if axes is None else tuple(int(a) for a in axes)
        return np.asarray(values[0].max(axis=along, keepdims=bool(call.attrs.keepdims)))
    if name == "relax.dequantize" and call.attrs.out_dtype == "float32":
        return _dequantized(values, int(call.attrs.axis))
    if name in ELEMENTWISE and values[0].dtype == np.float32:
        return ELEMENTWISE[name](*values)
    return None


def _dequantized(values: Sequence[Array], axis: int) -> Array | None:
    """Integers as TVM's operator makes numbers of them; None for what is no integer of up to 16 bits."""
    x, scale, zero = values
    if x.dtype.kind not in "iu" or x.dtype.itemsize > 2 or zero.dtype.kind not in "iu":
        return None
    if scale.ndim:
        shape = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
        scale, zero = scale.reshape(shape), zero.reshape(shape) if zero.ndim else zero
    return (x.astype(np.int32) - zero.astype(np.int32)).astype(np.float32) * scale.astype(np.float32)


def fold_views(module: IRModule) -> IRModule:
    """Folds constant shape changes and casts; turns squeeze, flatten and the like into ``relax.reshape``."""
    return _FoldViews(module).run()
