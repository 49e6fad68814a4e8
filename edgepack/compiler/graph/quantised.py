"""Quantised models (DequantizeLinear, operator, QuantizeLinear) as products of integers.

A convolution or matrix product of dequantised tensors is that of their integers times their scales::

    (sx (x - zx)) * (sw (w - zw)) = sx sw ((x - zx) * (w - zw))

whose sums of int32 are exact. What follows is one multiplication, as ONNX defines QLinearConv: the sum and
the bias, both int32, times sx sw / sy in float32, rounded half to even, before the zero point is added.
Bounds (of Relu, Clip) become bounds of the integers: rounding is monotonic.

A quantised tensor is kept as the integers that the target multiplies, from the operator that makes it to all
that read it: int16 less its zero point, or bytes (``Integers`` in ``quantised_values.py``).
What only moves elements (reshape, transpose, maximum, slice, concatenation) moves these integers. Any other
operator has the float32 values that the model says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf, prod
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import IRModule

from edgepack.compiler.graph.byte_tables import is_look_up
from edgepack.compiler.graph.filtered_integers import ExactTiles
from edgepack.compiler.graph.integer_operands import BYTES, CONVOLUTIONS, INT16
from edgepack.compiler.graph.quantised_look_up import looked_up, requantised
from edgepack.compiler.graph.quantised_means import mean
from edgepack.compiler.graph.quantised_products import QuantisedProducts
from edgepack.compiler.graph.quantised_rounding import rounded, shifted
from edgepack.compiler.graph.quantised_transposes import plain_transposes
from edgepack.compiler.graph.quantised_values import (
    ByteProducts,
    Integers,
    Scaled,
    aligned,
    evaluated,
    integer_bounds,
    same_scale,
)
from edgepack.compiler.graph.rewrite import (
    Array,
    OptionalExpr,
    Rewriter,
    constant,
    dtype_of,
    is_constant,
    numpy_of,
    op_name,
    readers,
    shape_of,
)

__all__ = ["quantised"]

#: Operators of one tensor whose result has elements of it, and no others, wherever they stand.
MOVES = {
    "relax.reshape",
    "relax.squeeze",
    "relax.expand_dims",
    "relax.flatten",
    "relax.permute_dims",
    "relax.strided_slice",
    "relax.broadcast_to",
    *(f"relax.nn.max_pool{rank}d" for rank in (1, 2, 3)),
}

#: By operator, what no magnitude of its results exceeds, of those of its operands.
MAGNITUDES: Mapping[str, Callable[[Iterable[float]], float]] = {
    **dict.fromkeys(("relax.add", "relax.subtract"), sum),
    "relax.multiply": prod,
}

#: Magnitude from which on float32 is not converted to int32 before it is bounded.
LARGEST = 2.0**30

_Value = Integers | Scaled


class _Quantised(Rewriter):
    """Knows of each value of the model whether it is integers and a scale, and emits it when it is asked
    for."""

    def __init__(
        self, module: IRModule, quads: ByteProducts | None, tiles: ExactTiles | None, *, narrows: bool
    ) -> None:
        super().__init__(module)
        self.narrows = narrows
        self.quads, self.products = quads, QuantisedProducts(self, quads, tiles)
        self.known: dict[relax.Expr, _Value] = {}
        self.readers = readers(module)
        self.largest: dict[relax.Expr, float] = {}
        self.variable: OptionalExpr = None
        self.handlers: dict[str, Callable[[relax.Call], _Value | None]] = {
            "relax.quantize": self._quantize,
            "relax.dequantize": self._dequantize,
            "relax.add": self._add,
            "relax.nn.relu": lambda call: self._within(call.args[0], 0.0, inf),
            "relax.clip": lambda call: self._within(call.args[0], *(float(x.value) for x in call.args[1:])),
            "relax.maximum": self._bound,
            "relax.minimum": self._bound,
            "relax.concat": self._concat,
            **dict.fromkeys([*CONVOLUTIONS, "relax.matmul"], self._product),
            **dict.fromkeys(MOVES, self._moved),
            "relax.take": self._take,
            "relax.mean": lambda call: mean(self, call, self.known, self.readers.get(self.variable, [])),
        }

    def visit_binding(self, binding: relax.Binding) -> None:
        value = getattr(binding, "value", None)
        handler, self.variable = self.handlers.get(op_name(value)), binding.var
        # Another name for a value is that value.
        found = self.known.get(value) if handler is None else handler(value)
        if found is None:
            if combined := MAGNITUDES.get(op_name(value)):
                assert isinstance(value, relax.Call)
                self.largest[binding.var] = float(combined(map(self._largest, value.args)))
            super().visit_binding(binding)
        else:
            self.known[binding.var] = found

    def use(self, expr: relax.Expr) -> relax.Expr:
        known = self.known.get(expr)
        if known is None:
            return super().use(expr)
        if isinstance(known, Integers):
            made = shifted(self, known.expr, known.zero - known.offset, known.dtype)
        else:
            made = self._floats(known)
            if not known.sums:
                return made  # anew for each reader, which so reads the integers
        del self.known[expr]
        self.bind(expr, made)
        return made

    def _centred(self, value: Scaled) -> relax.Expr:
        """The integers of a quantised tensor, of int16; those of sums, int32."""
        if value.sums:
            if value.addend is None:
                return value.expr
            return self.emit(relax.op.add(value.expr, constant(value.addend)))
        return value.expr if is_constant(value.expr) else shifted(self, value.expr, -value.offset, "int16")

    def _floats(self, value: Scaled) -> relax.Expr:
        """The float32 values."""
        whole = self._centred(value)
        if dtype_of(whole) != "float32":
            whole = self.emit(relax.op.astype(whole, "float32"))
        made = self.emit(relax.op.multiply(whole, constant(value.scales())))
        if value.low == 0 and value.high == inf:
            return self.emit(relax.op.nn.relu(made))
        return self.emit(relax.op.clip(made, value.low, value.high)) if value.bounded else made

    # Between integers and floats --------------------------------------------------------------------------

    def _quantize(self, call: relax.Call) -> Integers | None:
        """A tensor that the model quantises by one scale and zero point."""
        x, scale, zero = call.args
        return self._integers(x, scale, zero, dtype_of(call))

    def _integers(self, x: relax.Expr, scale: relax.Expr, zero: relax.Expr, dtype: str) -> Integers | None:
        """round(x / scale), within what ``dtype`` holds beside the zero point."""
        if dtype not in BYTES | {"int16"} or not (is_constant(scale) and is_constant(zero)):
            return None
        if dtype_of(x) != "float32" or prod(shape_of(scale)) != 1 or prod(shape_of(zero)) != 1:
            return None
        step, shift = numpy_of(scale).astype(np.float32).reshape(()), int(numpy_of(zero).reshape(()))
        info = np.iinfo(dtype)
        limits = int(info.min) - shift, int(info.max) - shift
        if limits[0] < INT16[0] or limits[1] > INT16[1]:
            return None
        value = self.known.get(x)
        if isinstance(value, Scaled) and same_scale(value, step, limits):
            return Integers(value.expr, step, shift, dtype, value.limits, value.offset)
        if isinstance(value, Scaled) and self.quads is not None and dtype in BYTES and value.of_bytes:
            return requantised(self, value, step, (shift, dtype))
        if isinstance(value, Scaled) and value.sums:
            low, high = integer_bounds(value, step, limits)
            scaled = self._floats(value.by(step))
        else:
            low, high = limits
            scaled = self.emit(relax.op.divide(self.use(x), constant(step)))
        stored, offset = self._kept(shift, dtype)
        largest = self._largest(x) / float(step)
        expr = rounded(self, scaled, (low, high), (offset, stored), joint=self.narrows and largest < LARGEST)
        return Integers(expr, step, shift, dtype, (low, high), offset)

    def _kept(self, zero: int, dtype: str) -> tuple[str, int]:
        """What a quantised tensor of a type is kept as, and what stands for its zero point."""
        if self.quads is None or dtype == "int16":
            return "int16", 0
        return self.quads.left, zero - int(np.iinfo(dtype).min) + int(np.iinfo(self.quads.left).min)

    def _largest(self, x: relax.Expr) -> float:
        """A magnitude that no element of a float32 tensor exceeds, where it is known."""
        value = self.known.get(x)
        if isinstance(value, Scaled):
            return float(value.scale.max(initial=0)) * max(map(abs, value.limits))
        return self.largest.get(x, inf)

    def _dequantize(self, call: relax.Call) -> Scaled | None:
        x, scale, zero = call.args
        if not (is_constant(scale) and is_constant(zero)) or dtype_of(call) != "float32":
            return None
        rank = len(shape_of(x))
        axis = int(call.attrs.axis) % max(rank, 1)
        factor, shift = numpy_of(scale).astype(np.float32), numpy_of(zero).astype(np.int64)
        if factor.ndim > 1 or shift.size not in {1, factor.size}:
            return None
        value = self.known.get(x)
        if isinstance(value, Integers):
            same = factor.size == 1 and int(shift.reshape(-1)[0]) == value.zero
            if not same:
                return None
            return Scaled(value.expr, factor.reshape(()), 0, value.limits, offset=value.offset)
        if not is_constant(x):
            return self._given(x, factor, shift)
        if numpy_of(x).dtype.kind not in "iu" or not rank:
            return None
        whole = numpy_of(x).astype(np.int64) - aligned(shift, axis, rank)
        limits = int(whole.min(initial=0)), int(whole.max(initial=0))
        narrow = INT16[0] <= limits[0] and limits[1] <= INT16[1]
        if not narrow and dtype_of(x) != "int32":
            return None
        expr = constant(whole.astype(np.int16 if narrow and dtype_of(x) != "int32" else np.int32))
        return Scaled(expr, factor, axis if factor.size > 1 else 0, limits)

    def _given(self, x: relax.Expr, factor: Array, shift: Array) -> Scaled | None:
        """Bytes that come from elsewhere: an input of the model, or an operator of integers."""
        dtype = dtype_of(x)
        if dtype not in BYTES or factor.size != 1:
            return None
        zero, info = int(shift.reshape(-1)[0]), np.iinfo(dtype)
        limits = int(info.min) - zero, int(info.max) - zero
        stored, offset = self._kept(zero, dtype)
        expr = shifted(self, self.use(x), offset - zero, stored)
        return Scaled(expr, factor.reshape(()), 0, limits, offset=offset)

    # Products -----------------------------------------------------------------------------------------------

    def _product(self, call: relax.Call) -> Scaled | None:
        """A convolution or matrix product of two dequantised tensors."""
        left, right = (self.known.get(arg) for arg in call.args)
        if not isinstance(left, Scaled) or not isinstance(right, Scaled) or dtype_of(call) != "float32":
            return None
        if op_name(call) == "relax.matmul":
            return self.products.matmul(left, right)
        return self.products.convolution(call, left, right)

    def _add(self, call: relax.Call) -> Scaled | None:
        """Sums of products and a bias that has their scale."""
        for product, bias in (call.args, call.args[::-1]):
            left, right = self.known.get(product), self.known.get(bias)
            if not isinstance(left, Scaled) or not isinstance(right, Scaled) or left.bounded:
                continue
            if dtype_of(left.expr) != "int32" or not is_constant(right.expr) or is_constant(left.expr):
                continue
            if not np.allclose(_along(left, call), _along(right, call), rtol=1e-6, atol=0):
                continue
            if shape_of(left.expr) != shape_of(call):
                continue
            low, high = (a + b for a, b in zip(left.limits, right.limits, strict=True))
            if low < -(2**31) or high >= 2**31:
                continue
            addend = numpy_of(right.expr).astype(np.int32)
            addend = addend if left.addend is None else addend + left.addend
            return replace(left, addend=addend, limits=(low, high))
        return None

    # What hands integers on -------------------------------------------------------------------------------

    def _bound(self, call: relax.Call) -> Scaled | None:
        """A bound on one side."""
        for x, bound in (call.args, call.args[::-1]):
            if is_constant(bound) and prod(shape_of(bound)) == 1 and shape_of(x) == shape_of(call):
                number = float(numpy_of(bound).reshape(()))
                lower = op_name(call) == "relax.maximum"
                return self._within(x, number if lower else -inf, inf if lower else number)
        return None

    def _within(self, x: relax.Expr, low: float, high: float) -> Scaled | None:
        """Bounds on sums of products, which the quantised tensor has instead; those of another value, which
        is read as it lies, stay an operator."""
        value = self.known.get(x)
        if not isinstance(value, Scaled) or not value.sums or is_constant(value.expr):
            return None
        low, high = max(value.low, low), min(value.high, high)
        return replace(value, low=low, high=high) if low <= high else None

    def _take(self, call: relax.Call) -> _Value | None:
        if not is_look_up(call):
            return self._moved(call)
        value = self.known.get(call.args[1])
        if not isinstance(value, Integers) or self.quads is None:
            return None
        return looked_up(self, call, value, self.readers.get(self.variable, []))

    def _moved(self, call: relax.Call) -> _Value | None:
        value = self.known.get(call.args[0])
        if value is None or (isinstance(value, Scaled) and not value.single and not is_constant(value.expr)):
            return None
        args = [value.expr, *(self.use(arg) for arg in call.args[1:])]
        if not is_constant(value.expr):
            if isinstance(value, Scaled) and value.sums:
                return None
            return replace(value, expr=self.emit(relax.Call(call.op, args, call.attrs, call.ty_args)))
        assert isinstance(value, Scaled)
        axis = self._moved_axis(call, value)
        moved = evaluated(call, numpy_of(value.expr))
        return None if axis is None or moved is None else replace(value, expr=constant(moved), axis=axis)

    def _moved_axis(self, call: relax.Call, value: Scaled) -> int | None:
        """Where the axis of a constant's scales stands behind a change of shape; None if nowhere."""
        old, new = shape_of(call.args[0]), shape_of(call)
        if value.single:
            return 0
        if op_name(call) == "relax.permute_dims":
            axes = call.attrs.axes
            order = list(reversed(range(len(old)))) if axes is None else [int(a) % len(old) for a in axes]
            return order.index(value.axis)
        before = prod(old[: value.axis])
        places = [i for i, n in enumerate(new) if n == old[value.axis] and prod(new[:i]) == before]
        return places[0] if places else None

    def _concat(self, call: relax.Call) -> _Value | None:
        """A concatenation whose parts have one scale, or get it because it is quantised behind it."""
        if not isinstance(call.args[0], relax.Tuple):
            return None
        parts, axis = list(call.args[0].fields), int(call.attrs.axis)
        values = [self.known.get(part) for part in parts]
        if not all(isinstance(value, Scaled | Integers) for value in values):
            return None
        kinds = {type(value) for value in values}
        whole: list[Any] = values
        if len(kinds) != 1 or any(isinstance(value, Scaled) and value.sums for value in whole):
            return None
        first = whole[0]
        limits = min(v.limits[0] for v in whole), max(v.limits[1] for v in whole)
        if isinstance(first, Integers):
            if len({(v.zero, v.dtype, v.offset, dtype_of(v.expr)) for v in whole}) != 1:
                return None
        elif not all(v.single and not v.bounded for v in whole) or len({v.kept_as for v in whole}) > 1:
            return self._requantised(call, axis)
        joined: _Value = replace(
            first, expr=self.emit(relax.op.concat([v.expr for v in whole], axis=axis)), limits=limits
        )
        return joined

    def _requantised(self, call: relax.Call, axis: int) -> Scaled | None:
        """The parts of a concatenation, each quantised as all of it is next; None if it has other readers."""
        readers = self.readers.get(self.variable, [])
        (reader,) = readers if len(readers) == 1 else (None,)
        if reader is None or op_name(reader) != "relax.quantize":
            return None
        scale, zero = reader.args[1:]
        made = [self._integers(part, scale, zero, dtype_of(reader)) for part in call.args[0].fields]
        found = [value for value in made if value is not None]
        if len(found) != len(made):
            return None
        stored, offset = self._kept(found[0].zero, found[0].dtype)
        # A part that has the scale already may have another number that stands for its zero point.
        alike = [shifted(self, v.expr, offset - v.offset, stored) for v in found]
        joined = self.emit(relax.op.concat(alike, axis=axis))
        limits = min(v.limits[0] for v in found), max(v.limits[1] for v in found)
        return Scaled(joined, found[0].scale, 0, limits, offset=offset)


def _along(value: Scaled, call: relax.Call) -> Array:
    """The scales along the dimensions of what an operator with broadcasting makes."""
    return value.scales().reshape((1,) * (len(shape_of(call)) - value.scales().ndim) + value.scales().shape)


def quantised(
    module: IRModule, quads: ByteProducts | None, tiles: ExactTiles | None, *, narrows: bool
) -> tuple[IRModule, QuantisedProducts]:
    """Makes products of integers of those of dequantised tensors whose scales are known.

    Args:
        module: channels first, as it was imported: nothing is folded yet.
        quads: how the target multiplies bytes; None where it has no instruction for that, and products are of
            int16. So they are too where products of bytes might saturate, for all of the model: a tensor
            would be kept in both types.
        tiles: by which convolutions of integers have Winograd's form; None where they may not have it.
        narrows: whether the target rounds to integers, and narrows these, by an instruction.

    Returns:
        the module, and the products of it.
    """
    module = plain_transposes(module)
    rewriter = _Quantised(module, quads, tiles, narrows=narrows)
    made = rewriter.run()
    if quads is not None and quads.saturates and rewriter.products.wide:
        rewriter = _Quantised(module, None, tiles, narrows=narrows)
        made = rewriter.run()
    return made, rewriter.products
