"""Channels last: give every tensor that convolutions and poolings touch the layout that vectorises.

ONNX is channels first (N, C, d1, d2, ...). Here each value of rank three or more may exist in two forms,
"first" and "last" (N, d1, d2, ..., C); either is made from the other on demand, once. An operator that
wants channels last asks for that form; one that does not care about layout follows its operands; all others
ask for "first". No transpose is emitted but where a real change of form meets a consumer, so a
convolutional network has one at its input (and one at its output, if that has spatial dimensions).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
from tvm import relax
from tvm.ir import IRModule

from edgepack.compiler.graph.byte_tables import is_look_up, look_up
from edgepack.compiler.graph.conv_transpose import convolution_of_transpose
from edgepack.compiler.graph.dilated import FilteredTiles
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
from edgepack.compiler.graph.sliced_pooling import sliced_pooling
from edgepack.compiler.graph.windows import adaptive_average, convolution, pooling

__all__ = ["Layout", "channels_last"]

#: Of images: channels first or last. Signals and volumes have them in the same place.
Layout = Literal["NCHW", "NHWC"]

#: Operators that work on each element by itself, with broadcasting.
ELEMENTWISE_NAMES = """
    abs add astype ceil clip cos divide equal erf exp floor floor_divide floor_mod greater
    greater_equal isnan less less_equal log logical_and logical_not logical_or logical_xor maximum
    minimum mod multiply negative nn.gelu nn.gelu_tanh nn.leakyrelu nn.relu nn.selu nn.silu
    nn.softplus not_equal power round rsqrt sigmoid sign sin sqrt square subtract tanh where
"""
ELEMENTWISE = {f"relax.{name}" for name in ELEMENTWISE_NAMES.split()}
#: What emits an operator that slides windows, channels last: (rewriter, data, call).
_Windows: TypeAlias = Callable[[Rewriter, relax.Expr, relax.Call], OptionalExpr]
WINDOWS: dict[str, _Windows] = {
    **{f"conv{rank}d": convolution for rank in (1, 2, 3)},
    **{f"conv{rank}d_transpose": convolution_of_transpose for rank in (1, 2, 3)},
    **{f"{kind}_pool{rank}d": pooling for kind in ("max", "avg") for rank in (1, 2, 3)},
    **{f"adaptive_avg_pool{rank}d": adaptive_average for rank in (1, 2, 3)},
}
REDUCTIONS = {f"relax.{name}" for name in ("max", "mean", "min", "prod", "std", "sum", "variance")}


class _Forms:
    """A value in one or both of its forms."""

    def __init__(self, first: OptionalExpr = None, last: OptionalExpr = None) -> None:
        self.first = first
        self.last = last


#: What an operator becomes: its value in either form or both, or in the channels-first form.
_New: TypeAlias = _Forms | relax.Expr


def _to_last(rank: int) -> list[int]:
    """Axes of the transpose from channels first to channels last."""
    return [0, *range(2, rank), 1]


def _to_first(rank: int) -> list[int]:
    """Axes of the transpose from channels last to channels first."""
    return [0, rank - 1, *range(1, rank - 1)]


def _axis_to_last(axis: int, rank: int) -> int:
    """Where dimension ``axis`` of the channels-first form stands in the channels-last form."""
    return _to_last(rank).index(axis % rank)


class _ChannelsLast(Rewriter):
    """Keeps each value in the form or forms that were made of it, and makes the other on demand."""

    def __init__(self, module: IRModule, *, filtered: FilteredTiles | None, shuffles: bool) -> None:
        super().__init__(module)
        self.shuffles = shuffles
        windows: dict[str, _Windows] = {**WINDOWS, "conv2d": partial(convolution, filtered=filtered)}
        self.forms: dict[relax.Expr, _Forms] = {}
        self.calls: dict[relax.Expr, relax.Call] = {}
        self.handlers: dict[str, Callable[[relax.Call], _New | None]] = {
            "relax.image.resize2d": self._resize2d,
            "relax.concat": self._concat,
            "relax.split": self._split,
            "relax.strided_slice": self._strided_slice,
            "relax.nn.prelu": self._prelu,
            "relax.nn.pad": self._pad,
            "relax.take": self._take,
            "relax.nn.group_norm": self._group_norm,
            **dict.fromkeys(("relax.quantize", "relax.dequantize"), self._quantise),
            "relax.reshape": self._reshape,
            "relax.permute_dims": self._permute,
            **{f"relax.nn.{name}": self._window(emit) for name, emit in windows.items()},
            **dict.fromkeys(ELEMENTWISE, self._elementwise),
            **dict.fromkeys(REDUCTIONS, self._reduce),
        }

    # Forms of values -----------------------------------------------------------------------------------

    def bind(self, old: relax.Expr, new: _New) -> None:
        self.forms[old] = new if isinstance(new, _Forms) else _Forms(first=new)

    def _of(self, expr: relax.Expr) -> _Forms:
        if expr not in self.forms:
            self.forms[expr] = _Forms(first=super().use(expr))
        return self.forms[expr]

    def use(self, expr: relax.Expr) -> relax.Expr:
        """The channels-first form."""
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self.use(field) for field in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            return self.emit(relax.TupleGetItem(self.use(expr.tuple_value), expr.index))
        forms = self._of(expr)
        if forms.first is None:
            forms.first = self._transpose(forms.last, _to_first(len(shape_of(forms.last))))
        return forms.first

    def last(self, expr: relax.Expr) -> relax.Expr:
        """The channels-last form of a value of rank three or more."""
        forms = self._of(expr)
        if forms.last is None:
            forms.last = self._transpose(forms.first, _to_last(len(shape_of(forms.first))))
        return forms.last

    def _is_last(self, expr: relax.Expr) -> bool:
        forms = self.forms.get(expr)
        return forms is not None and forms.last is not None

    def _transpose(self, expr: relax.Expr, axes: list[int]) -> relax.Expr:
        if is_constant(expr):
            return constant(numpy_of(expr).transpose(axes))
        shape = shape_of(expr)
        kept = [a for a in axes if shape[a] != 1]
        if kept == sorted(kept):
            return self.emit(relax.op.reshape(expr, [shape[a] for a in axes]))
        return self.emit(relax.op.permute_dims(expr, axes))

    # Bindings ------------------------------------------------------------------------------------------

    def visit_binding(self, binding: relax.Binding) -> None:
        value = binding.value
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in self.forms:
            forms = self.forms[value.tuple_value]
            if forms.last is not None and forms.first is None:
                self.bind(binding.var, _Forms(last=self.emit(relax.TupleGetItem(forms.last, value.index))))
                return
        if isinstance(value, relax.Call):
            self.calls[binding.var] = value
            handler = self.handlers.get(op_name(value))
            new = handler(value) if handler else None
            if new is None:
                new = self.visit_call(value, [self.use(arg) for arg in value.args])
            self.bind(binding.var, new)
            return
        super().visit_binding(binding)

    # Operators that want channels last -----------------------------------------------------------------

    def _window(self, emit: _Windows) -> Callable[[relax.Call], _New | None]:
        """The handler of an operator that slides windows over its first operand."""

        def handler(call: relax.Call) -> _New | None:
            known = self._of(call.args[0]).last
            if emit is pooling and self.shuffles and known is None:
                sliced = sliced_pooling(self, self.use(call.args[0]), call)
                if sliced is not None:
                    return sliced
            found = emit(self, self.last(call.args[0]), call)
            if found is None:
                self._of(call.args[0]).last = known
                return None
            return _Forms(last=found)

        return handler

    def _resize2d(self, call: relax.Call) -> _New | None:
        a = call.attrs
        if a.layout != "NCHW" or not self._is_last(call.args[0]):
            return None
        resized = relax.op.image.resize2d(
            self.last(call.args[0]),
            relax.ShapeExpr(list(shape_of(call)[2:])),
            roi=list(a.roi),
            layout="NHWC",
            method=a.method,
            coordinate_transformation_mode=a.coordinate_transformation_mode,
            rounding_method=a.rounding_method,
            cubic_alpha=float(a.cubic_alpha),
            cubic_exclude=int(a.cubic_exclude),
            extrapolation_value=float(a.extrapolation_value),
            out_dtype=dtype_of(call),
        )
        return _Forms(last=self.emit(resized))

    # Operators that follow their operands --------------------------------------------------------------

    def _elementwise(self, call: relax.Call) -> _New | None:
        rank = len(shape_of(call))
        if rank < 3 or not any(self._is_last(arg) for arg in call.args):
            return None
        args = [self._broadcast_last(arg, rank) for arg in call.args]
        return _Forms(last=self.emit(relax.Call(call.op, args, call.attrs, call.ty_args)))

    def _broadcast_last(self, arg: relax.Expr, rank: int) -> relax.Expr:
        """An operand of an elementwise operator of this rank, in channels-last form."""
        if not isinstance(arg.ty, relax.TensorType):
            return self.use(arg)
        shape = shape_of(arg)
        if len(shape) == rank:
            return self.last(arg)
        if not shape:
            return self.use(arg)
        full = (1,) * (rank - len(shape)) + shape
        if is_constant(arg):
            return constant(numpy_of(arg).reshape(full).transpose(_to_last(rank)))
        return self._transpose(self.emit(relax.op.reshape(self.use(arg), full)), _to_last(rank))

    def _reduce(self, call: relax.Call) -> _New | None:
        data = call.args[0]
        rank = len(shape_of(data))
        if rank < 3 or not self._is_last(data) or call.attrs.axis is None:
            return None
        axes = [int(axis) % rank for axis in call.attrs.axis]
        op = getattr(relax.op, op_name(call).removeprefix("relax."))
        last_axes = sorted(_axis_to_last(axis, rank) for axis in axes)
        # Without the reduced dimensions the rest stands in channels-last order: a plain value only if that
        # is the plain order too (the channels went away, or only they and the batch are left).
        kept = [axis for axis in _to_last(rank) if axis not in axes]
        if not call.attrs.keepdims and kept != sorted(kept):
            return None
        reduced = self.emit(op(self.last(data), axis=last_axes, keepdims=bool(call.attrs.keepdims)))
        return _Forms(last=reduced) if call.attrs.keepdims else reduced

    def _concat(self, call: relax.Call) -> _New | None:
        fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else None
        rank = len(shape_of(call))
        if fields is None or rank < 3 or not any(self._is_last(f) for f in fields):
            return None
        axis = _axis_to_last(int(call.attrs.axis), rank)
        return _Forms(last=self.emit(relax.op.concat([self.last(f) for f in fields], axis=axis)))

    def _split(self, call: relax.Call) -> _New | None:
        data = call.args[0]
        rank = len(shape_of(data))
        if rank < 3 or not self._is_last(data):
            return None
        sections = call.attrs.indices_or_sections
        sections = [int(i) for i in sections] if hasattr(sections, "__len__") else int(sections)
        axis = _axis_to_last(int(call.attrs.axis), rank)
        return _Forms(last=self.emit(relax.op.split(self.last(data), sections, axis=axis)))

    def _strided_slice(self, call: relax.Call) -> _New | None:
        data, axes = call.args[0], call.args[1]
        rank = len(shape_of(data))
        if rank < 3 or not self._is_last(data) or not isinstance(axes, relax.Tuple):
            return None
        moved = relax.Tuple([relax.prim_value(_axis_to_last(_prim(a), rank)) for a in axes.fields])
        args = [self.last(data), moved, *call.args[2:]]
        return _Forms(last=self.emit(relax.Call(call.op, args, call.attrs, call.ty_args)))

    def _prelu(self, call: relax.Call) -> _New | None:
        data, alpha = call.args
        rank = len(shape_of(data))
        if rank < 3 or not self._is_last(data) or len(shape_of(alpha)) != 1:
            return None
        axis = _axis_to_last(int(call.attrs.axis), rank)
        return _Forms(last=self.emit(relax.op.nn.prelu(self.last(data), self.use(alpha), axis=axis)))

    def _pad(self, call: relax.Call) -> _New | None:
        data, widths = call.args[0], [int(n) for n in call.attrs.pad_width]
        rank = len(shape_of(data))
        if rank < 3 or not self._is_last(data):
            return None
        moved = [widths[2 * axis + i] for axis in _to_last(rank) for i in (0, 1)]
        padded = relax.op.nn.pad(
            self.last(data), moved, str(call.attrs.pad_mode), float(call.attrs.pad_value)
        )
        return _Forms(last=self.emit(padded))

    def _group_norm(self, call: relax.Call) -> _New | None:
        data, a = call.args[0], call.attrs
        rank = len(shape_of(data))
        if not self._is_last(data) or int(a.channel_axis) != 1:
            return None
        weights, axes = (self.use(w) for w in call.args[1:]), list(range(1, rank - 1))
        groups = int(a.num_groups)
        norm = relax.op.nn.group_norm(self.last(data), *weights, groups, rank - 1, axes, epsilon=a.epsilon)
        return _Forms(last=self.emit(norm))

    def _quantise(self, call: relax.Call) -> _New | None:
        data, a = call.args[0], call.attrs
        rank = len(shape_of(data))
        if rank < 3 or not self._is_last(data):
            return None
        op = getattr(relax.op, op_name(call).removeprefix("relax."))
        axis = _axis_to_last(int(a.axis) % rank, rank)
        others = (self.use(arg) for arg in call.args[1:])
        return _Forms(last=self.emit(op(self.last(data), *others, axis=axis, out_dtype=str(a.out_dtype))))

    def _take(self, call: relax.Call) -> _New | None:
        data, indices = call.args
        if is_look_up(call):
            if not self._is_last(indices):
                return None
            return _Forms(last=self.emit(look_up(numpy_of(data), self.last(indices))))
        rank = len(shape_of(data))
        if rank < 3 or not self._is_last(data) or len(shape_of(indices)) != 1 or call.attrs.axis is None:
            return None
        axis = _axis_to_last(int(call.attrs.axis), rank)
        taken = relax.op.take(self.last(data), self.use(indices), axis=axis, mode=str(call.attrs.mode))
        return _Forms(last=self.emit(taken))

    def _reshape(self, call: relax.Call) -> _New | None:
        """(N, C, d1, d2) to (N, C, d1*d2) and back keeps the channels where they are, in both forms."""
        data = call.args[0]
        old, new = shape_of(data), shape_of(call)
        shuffled = self._shuffled(data, new)
        if shuffled is not None:
            return shuffled
        if not self._is_last(data) or len(old) < 3:
            return None
        if int(np.prod(old[2:])) == 1:  # channels last and first are the same bytes
            return self.emit(relax.op.reshape(self._of(data).last, new))
        if len(new) >= 3 and old[:2] == new[:2]:
            return _Forms(last=self.emit(relax.op.reshape(self.last(data), (new[0], *new[2:], new[1]))))
        return None

    def _shuffled(self, swapped: relax.Expr, shape: tuple[int, ...]) -> _Forms | None:
        """Channels that are dealt out anew: (N, C, ...) to (N, a, b, ...), its a and b swapped, and back."""
        permute: OptionalExpr = self.calls.get(swapped)
        split: OptionalExpr = None
        if op_name(permute) == "relax.permute_dims":
            split = self.calls.get(permute.args[0])
        if op_name(split) != "relax.reshape" or not self._is_last(split.args[0]):
            return None
        data, parts, rank = split.args[0], shape_of(split), len(shape)
        axes = permute.attrs.axes
        if shape_of(data) != shape or rank < 3 or parts != (shape[0], *parts[1:3], *shape[2:]):
            return None
        if axes is None or [int(a) for a in axes] != [0, 2, 1, *range(3, rank + 1)]:
            return None
        dealt = self.emit(relax.op.reshape(self.last(data), (shape[0], *shape[2:], *parts[1:3])))
        dealt = self.emit(relax.op.permute_dims(dealt, [*range(rank - 1), rank, rank - 1]))
        return _Forms(last=self.emit(relax.op.reshape(dealt, (shape[0], *shape[2:], shape[1]))))

    def _permute(self, call: relax.Call) -> _New | None:
        """A transpose that asks for channels last takes that form as it is; its result is a plain value."""
        data = call.args[0]
        rank = len(shape_of(data))
        axes = call.attrs.axes
        axes = list(reversed(range(rank))) if axes is None else [int(a) % rank for a in axes]
        if rank < 3 or not self._is_last(data) or self._of(data).first is not None:
            if rank >= 3 and axes == _to_first(rank):  # what was channels last in the model
                return _Forms(last=self.use(data))
            return None
        if axes == _to_last(rank):
            return self.last(data)
        order = _to_last(rank)
        return self.emit(relax.op.permute_dims(self.last(data), [order.index(a) for a in axes]))


def _prim(expr: relax.Expr) -> int:
    return int(expr.value if hasattr(expr, "value") else expr)


def channels_last(
    module: IRModule, *, filtered: FilteredTiles | None = None, shuffles: bool = False
) -> IRModule:
    """Moves a channels-first module to channels last; inputs and outputs keep their layout.

    Args:
        filtered: tiles by which convolutions by 3x3 have Winograd's form (``dilated.py``), if they may.
        shuffles: whether what is pooled channels first may stay so (``sliced_pooling.py``).
    """
    return _ChannelsLast(module, filtered=filtered, shuffles=shuffles).run()
