"""Transposed convolutions of dequantised tensors as plain ones, which then are products of integers.

A transposed convolution is a plain one of more output channels, whose phases are spread over the output
(:mod:`.conv_transpose`). What is computed of each element alone (bias, activation, QuantizeLinear) is the
same before and behind that, so it is done before: the sums are rounded where they are made, and bytes are
spread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from tvm import relax
from tvm.ir import IRModule

from edgepack.compiler.graph.conv_transpose import Transpose, Weights, spread
from edgepack.compiler.graph.quantised_values import aligned
from edgepack.compiler.graph.rewrite import (
    Array,
    OptionalExpr,
    Rewriter,
    constant,
    is_constant,
    numpy_of,
    op_name,
    readers,
    shape_of,
)
from edgepack.compiler.graph.windows import DATA_LAYOUTS, WEIGHT_LAYOUTS

__all__ = ["plain_transposes"]

TRANSPOSES = {f"relax.nn.conv{rank}d_transpose" for rank in (1, 2, 3)}

#: Operators of one tensor, each element alone, whose other operands are numbers.
UNARY = {"relax.nn.relu", "relax.clip", "relax.sigmoid", "relax.tanh", "relax.nn.leakyrelu", "relax.quantize"}
#: Operators of two, one of which may be a constant for each channel.
BINARY = {"relax.add", "relax.multiply", "relax.maximum", "relax.minimum"}

#: Phases of a part, for each dimension the first one and the end.
_Phases = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Wide:
    """What is computed at the positions of a transposed convolution before it is spread.

    Attributes:
        parts: phases that are computed apart, and their values, channels first.
    """

    transpose: Transpose
    parts: tuple[tuple[_Phases, relax.Expr], ...]

    def each(self, made: Callable[[_Phases, relax.Expr], relax.Expr]) -> _Wide:
        """Other values of the same parts."""
        return replace(self, parts=tuple((phases, made(phases, value)) for phases, value in self.parts))

    def along(self, values: Array, phases: _Phases) -> Array:
        """Numbers for each output channel, or one for all, as those of a part's channels."""
        if values.size == 1:
            return values
        groups, out = self.transpose.channels
        count = prod(end - begin for begin, end in phases)
        # Scales of weights are those of a group's channels, the same in each group.
        rows = np.broadcast_to(values.reshape(-1, 1, min(out, values.size)), (groups, count, out))
        return rows.reshape(-1)


class _PlainTransposes(Rewriter):
    """Keeps what is not spread yet, and spreads it when it is asked for."""

    def __init__(self, module: IRModule) -> None:
        super().__init__(module)
        self.readers = readers(module)
        self.calls: dict[relax.Expr, OptionalExpr] = {}
        self.wide: dict[relax.Expr, _Wide] = {}

    def visit_binding(self, binding: relax.Binding) -> None:
        call = getattr(binding, "value", None)
        self.calls[binding.var] = call
        found = self._plain(call) if op_name(call) in TRANSPOSES else self._behind(call)
        if found is None:
            super().visit_binding(binding)
        else:
            self.wide[binding.var] = found

    def use(self, expr: relax.Expr) -> relax.Expr:
        wide = self.wide.pop(expr, None) if isinstance(expr, relax.Var) else None
        if wide is not None:
            parts = [value for _, value in wide.parts]
            whole = parts[0] if len(parts) == 1 else self.emit(relax.op.concat(parts, axis=1))
            rank = len(shape_of(whole))
            last = self.emit(relax.op.permute_dims(whole, [0, *range(2, rank), 1]))
            image = spread(self, last, wide.transpose)
            self.bind(expr, self.emit(relax.op.permute_dims(image, [0, rank - 1, *range(1, rank - 1)])))
        return super().use(expr)

    # The convolution ----------------------------------------------------------------------------------------

    def _plain(self, call: relax.Call) -> _Wide | None:
        """A transposed convolution of dequantised operands, the weights constant."""
        data, weights = (self.calls.get(arg) for arg in call.args)
        given, rank = _steps(weights), len(shape_of(call)) - 2
        if op_name(data) != "relax.dequantize" or given is None or not is_constant(given.values):
            return None
        if str(call.attrs.data_layout) != DATA_LAYOUTS[rank][0] or (given.axis != 1 and given.scale.size > 1):
            return None
        values = numpy_of(given.values)
        if values.dtype.kind not in "iu":
            return None
        centred = values.astype(np.int64) - aligned(given.zero.astype(np.int64), given.axis, values.ndim)
        wide = _Wide(Transpose.of(call, Weights(self, centred)), ())
        source, dtype = self.use(call.args[0]), values.dtype
        parts = []
        for phases in wide.transpose.parts():
            scale, zero = (wide.along(numbers, phases) for numbers in (given.scale, given.zero))
            made = self._convolution(source, wide.transpose, phases, (scale, zero, dtype))
            parts.append((phases, made))
        return replace(wide, parts=tuple(parts))

    def _convolution(
        self,
        data: relax.Expr,
        t: Transpose,
        phases: _Phases,
        steps: tuple[Array, Array, np.dtype],
    ) -> relax.Expr:
        """The plain convolution that computes some phases.

        Args:
            steps: scale and zero point of its output channels' weights, and the weights' type.
        """
        rank, (scale, zero, dtype) = len(t.strides), steps
        plain = numpy_of(t.plain_weights(phases).expr)
        before, (kept, behind) = t.before(plain.shape[:rank]), t.read(shape_of(data)[2:])
        begins = [max(0, -n) for n in before]
        if kept != shape_of(data)[2:] or any(begins):
            data = self.emit(relax.op.strided_slice(data, [*range(2, rank + 2)], begins, list(kept)))
        plain = plain.transpose([rank + 1, rank, *range(rank)])
        plain = plain + aligned(zero.astype(np.int64), 0, plain.ndim)
        numbers = [constant(values.reshape(() if values.size == 1 else -1)) for values in (scale, zero)]
        weights = relax.op.dequantize(constant(plain.astype(dtype)), *numbers, axis=0, out_dtype="float32")
        return self.emit(
            getattr(relax.op.nn, f"conv{rank}d")(
                data,
                self.emit(weights),
                padding=[*(max(0, n) for n in before), *behind],
                dilation=list(t.dilation),
                groups=t.groups,
                data_layout=DATA_LAYOUTS[rank][0],
                kernel_layout=WEIGHT_LAYOUTS[rank][0],
            )
        )

    # What follows it ----------------------------------------------------------------------------------------

    def _behind(self, call: OptionalExpr) -> _Wide | None:
        """An operator that is the same before the phases are spread."""
        if op_name(call) not in UNARY | BINARY:
            return None
        read = [arg for arg in call.args if isinstance(arg, relax.Var) and arg in self.wide]
        if len(read) != 1 or len(self.readers.get(read[0], [])) != 1:
            return None
        (x,), wide = read, self.wide[read[0]]
        across: Callable[[_Phases], Sequence[relax.Expr]] | None = None
        if op_name(call) in BINARY:
            left = call.args[0].same_as(x)
            constants = self._across(call.args[1 if left else 0], shape_of(call), wide)
            if constants is not None:
                across = lambda phases: [constants(phases)]  # noqa: E731
        elif op_name(call) != "relax.quantize" or all(_is_number(arg) for arg in call.args[1:]):
            across = lambda phases: call.args[1:]  # noqa: E731
        if across is None:
            return None
        del self.wide[x]
        return wide.each(
            lambda phases, value: self.emit(
                relax.Call(call.op, [value, *across(phases)], call.attrs, call.ty_args)
            )
        )

    def _across(
        self, other: relax.Expr, shape: Sequence[int], wide: _Wide
    ) -> Callable[[_Phases], relax.Expr] | None:
        """A constant for each channel of a tensor, dequantised or not, as one for the channels of a part."""
        full = (1,) * (len(shape) - len(shape_of(other))) + shape_of(other)
        channels = shape[1]
        if len(shape) != len(wide.transpose.strides) + 2:  # the other one has a higher rank
            return None
        if prod(full) not in {1, channels} or full[1] != prod(full):
            return None
        view = [1, -1, *[1] * (len(shape) - 2)]
        source = other
        while op_name(self.calls.get(source)) == "relax.reshape":
            source = self.calls[source].args[0]
        if is_constant(source):
            values = numpy_of(source)
            return lambda phases: constant(wide.along(values.reshape(-1), phases).reshape(view))
        given = _steps(self.calls.get(source))
        if given is None or not is_constant(given.values) or len(shape_of(source)) != 1:
            return None
        numbers = numpy_of(given.values), given.scale, given.zero

        def dequantised(phases: _Phases) -> relax.Expr:
            parts = [wide.along(values.reshape(-1), phases) for values in numbers]
            steps = [constant(one.reshape(() if one.size == 1 else -1)) for one in parts[1:]]
            made = relax.op.dequantize(constant(parts[0]), *steps, axis=0, out_dtype="float32")
            return self.emit(relax.op.reshape(self.emit(made), [1, parts[0].size, *view[2:]]))

        return dequantised


def _is_number(expr: relax.Expr) -> bool:
    return is_constant(expr) and prod(shape_of(expr)) == 1


@dataclass(frozen=True)
class _Dequantised:
    """A DequantizeLinear by constants: what it reads, and for all of that or along an axis how."""

    values: relax.Expr
    scale: Array
    zero: Array
    axis: int


def _steps(call: OptionalExpr) -> _Dequantised | None:
    if op_name(call) != "relax.dequantize" or not (is_constant(call.args[1]) and is_constant(call.args[2])):
        return None
    scale, zero = numpy_of(call.args[1]), numpy_of(call.args[2])
    if scale.ndim > 1 or zero.size not in {1, scale.size}:
        return None
    return _Dequantised(call.args[0], scale, zero, int(call.attrs.axis) % max(1, len(shape_of(call))))


def plain_transposes(module: IRModule) -> IRModule:
    """Makes plain convolutions of transposed ones whose operands are dequantised.

    Args:
        module: channels first, as it was imported.
    """
    return _PlainTransposes(module).run()
