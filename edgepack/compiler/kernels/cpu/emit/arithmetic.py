"""Operations on vectors and scalars of the target: constants, conversions, and everything that is computed.

An operation's meaning is its vector form: in ``expressions/operations.py`` where that is one expression, here
where it is more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf, prod
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.float16 import SIXTEEN_BIT_FLOATS, narrowed, number_of, widened
from edgepack.compiler.kernels.cpu.emit.value import Product, Value, product_of
from edgepack.compiler.kernels.cpu.emit.vector_double import CALLED_LANE_BY_LANE, FLOAT64_FUNCTIONS, double
from edgepack.compiler.kernels.cpu.emit.vector_high_product import (
    HIGH,
    high_product,
    rounded_away,
    rounded_high,
)
from edgepack.compiler.kernels.cpu.emit.vector_integers import BEYOND_INT32, divided
from edgepack.compiler.kernels.cpu.emit.vector_look_up import looked_up
from edgepack.compiler.kernels.cpu.emit.vector_math import (
    UNARY,
    elementary,
    is_nan,
    maximum,
    minimum,
)
from edgepack.compiler.kernels.cpu.emit.vector_nearest import nearest_integers
from edgepack.compiler.kernels.cpu.emit.vector_power import power
from edgepack.compiler.kernels.cpu.emit.vector_quotient import exact_quotient, quotient
from edgepack.compiler.kernels.cpu.emit.vector_remainder import remainder
from edgepack.compiler.kernels.cpu.emit.vector_rounded_shift import half_of, rounded_shift
from edgepack.compiler.kernels.cpu.emit.vector_saturation import limits_of, saturated
from edgepack.compiler.kernels.expressions.operations import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    OPERATIONS,
    Kind,
    Operands,
    Operation,
    form_for,
)
from edgepack.plan.dtypes import DTYPE_BYTES

__all__ = ["DTYPES", "Arithmetic", "calls_libm", "vector_form"]

Expr = Any

#: Element types that have vectors on every target; those of half precision are moved and converted only.
DTYPES = NUMBERS | {"bool"} | SIXTEEN_BIT_FLOATS


#: Added to a float32 number of a magnitude of up to 2**22, whose nearest whole number, halves to the even
#: one, is then in the lower bits of the sum.
WHOLE = 1.5 * 2.0**23
LARGEST_WHOLE = 2.0**22
WHOLE_BITS = 0x4B400000

#: What numbers and their quotients stay below which need no check for infinite ones.
FINITE = 2.0**100

#: Operations that give the nearest whole number.
ROUNDING = frozenset({"round", "nearbyint"})

#: Those whose results have no fraction, and those that give such a number of such numbers.
_WITHOUT_FRACTION = ROUNDING | {"floor", "ceil", "trunc"}
_KEEPS_WHOLE = frozenset({"add", "sub", "max", "min"})

#: Integers of 32 bits.
WORDS = frozenset({"int32", "uint32"})

#: A vector form that asks more of the emitter than those of ``expressions/operations.py``.
_Form = Callable[[Emitter, Operands], Expr]


def _divided(name: str) -> dict[str, _Form]:
    """The forms of a division of integers."""

    def form(e: Emitter, x: Operands) -> Expr:
        return divided(e, name, x.exprs[0], x.exprs[1], x.lanes, x.dtype)

    return dict.fromkeys(INTEGERS, form)


def _of_floats(form: _Form) -> dict[str, _Form]:
    return dict.fromkeys(FLOATS, form)


def _power(e: Emitter, x: Operands) -> Expr:
    return power(e, e.let(x.exprs[0]), x.exprs[1], x.lanes, x.numbers[1])


#: Vector forms that are more than one expression, by operation and element type.
_FORMS: Mapping[str, Mapping[str, _Form]] = {
    "max": _of_floats(lambda e, x: maximum(e, x.exprs[0], x.exprs[1])),
    "min": _of_floats(lambda e, x: minimum(e, x.exprs[0], x.exprs[1])),
    "div": {**_divided("div"), "float32": lambda e, x: quotient(e, x.exprs[0], x.exprs[1])},
    "mod": {**_divided("mod"), "float32": lambda e, x: remainder(e, x.exprs[0], x.exprs[1], x.lanes)},
    "floor_div": _divided("floor_div"),
    "floor_mod": _divided("floor_mod"),
    "isnan": _of_floats(lambda e, x: is_nan(e, x.exprs[0], x.lanes)),
    "pow": {"float32": _power},
}


def vector_form(operation: Operation, dtype: str) -> _Form:
    """How an operation on elements of a type is computed.

    Raises:
        RuleError: if it has no vector form.
    """
    if dtype in SIXTEEN_BIT_FLOATS:
        raise RuleError(f"arithmetic on {dtype} has no vector form")
    name = operation.name
    form: _Form | None = _FORMS.get(name, {}).get(dtype) or form_for(operation.vector, dtype)
    if form is not None:
        return form
    if dtype == "float32" and f"tirx.{name}" in UNARY:
        return lambda e, x: elementary(e, f"tirx.{name}", e.let(x.exprs[0]), x.lanes)
    if dtype == "float64" and name in FLOAT64_FUNCTIONS:
        return lambda e, x: double(e, name, x.exprs, x.lanes)
    known = operation.kind not in {Kind.FUNCTION, Kind.OTHER}
    raise RuleError(f"{name} of {dtype} has no vector form" if known else f"{name} has no vector form")


def calls_libm(name: str, dtype: str) -> bool:
    """Whether the vector form of an operation may be a call of libm for each lane."""
    if dtype == "float64":
        return name in CALLED_LANE_BY_LANE
    return dtype == "float32" and name in {"sin", "cos", "tan", "mod"}


class Arithmetic:
    """Computes with values.

    Args:
        e: where to emit.
    """

    def __init__(self, e: Emitter) -> None:
        self.e = e

    def operated(self, operation: Operation, values: Sequence[Value], dtype: str) -> Value:
        """What an operation makes of values.

        Args:
            dtype: of the result.

        Raises:
            RuleError: if it has no vector form.
        """
        form = vector_form(operation, values[0].dtype)
        lanes = max(v.lanes for v in values)
        exprs = [self.expr(v, lanes) for v in values]
        operands = Operands(exprs, values[0].dtype, lanes, [v.number for v in values])
        if operation.name in ROUNDING and values[0].quotient is not None:
            values = [self._divided(values[0])]
            operands = replace(operands, exprs=[self.expr(values[0], lanes)])
        if (operation.name, dtype) == ("shift_right", "int32") and (rounded := self._rounded_shift(*values)):
            return rounded
        if operation.name in {"max", "min"} and (moved := self._bounded_before(operation, values)):
            return moved
        made = Value(form(self.e, operands), lanes, dtype)
        if dtype in WORDS and all(v.origin is not None for v in values):
            made = replace(made, origin=(operation.name, *(v.origin for v in values)))
        if dtype == "int32" and operation.name in {"max", "min"}:
            return _within(made, operation.name, values)
        if dtype == "int16" and operation.name == "add":
            return replace(made, wide=self._wide_sum(*values))
        if (operation.name, dtype) == ("add", "int32"):
            return replace(made, addends=(values[0], values[1]))
        if (operation.name, dtype) == ("sub", "int32") and values[0].rounded and values[1].number is not None:
            return replace(
                made, addends=(values[0], self.literal(tirx.IntImm("int32", -int(values[1].number))))
            )
        if dtype == "int64":
            return replace(made, product=product_of(operation.name, values))
        if (operation.name, dtype) == ("shift_left", "int32") and values[1].number == 1:
            return replace(made, half=values[0])
        if (operation.name, dtype) == ("shift_right", "int32") and values[1].number == 31:
            return replace(made, sign_of=values[0])
        if dtype != "float32":
            return made
        if operation.name == "mul" and any(v.whole for v in values):
            made = replace(made, expr=self._rounded(made))
        return _described(made, operation.name, values)

    def _bounded_before(self, operation: Operation, values: Sequence[Value]) -> Value | None:
        """A bound of a rounded number and a zero point as the sum of a bound and the zero point: int32 holds
        it whatever the number was. None for others."""
        x, bound = values if values[0].number is None else values[::-1]
        if x.addends is None or bound.number is None:
            return None
        value, added = x.addends if x.addends[0].number is None else x.addends[::-1]
        if added.number is None or not value.rounded:
            return None
        limit = bound.number - added.number
        if abs(limit) >= BEYOND_INT32:
            return None
        inner = self.operated(operation, [value, self.literal(tirx.IntImm("int32", int(limit)))], "int32")
        made = self.operated(OPERATIONS["add"], [replace(inner, rounded=True), added], "int32")
        return _within(made, operation.name, [x, bound])

    def _wide_sum(self, a: Value, b: Value) -> Value | None:
        """The sum of bounded integers, which were narrowed to int16, and a number, as int32; None of others,
        and where int16 does not hold it."""
        x, number = (a, b.number) if b.number is not None else (b, a.number)
        if x.wide is None or number is None:
            return None
        least, most = limits_of("int16")
        if x.wide.least + number < least or x.wide.most + number > most:
            return None
        wide = self.e.let(x.wide.expr + self.e.splat(tirx.IntImm("int32", int(number)), x.lanes))
        return Value(wide, x.lanes, "int32", least=x.wide.least + number, most=x.wide.most + number)

    def _rounded_shift(self, x: Value, by: Value) -> Value | None:
        """A sum with half of two to the power of ``by``, shifted by this, where one instruction does both."""
        if x.addends is None:
            return None
        value, added = x.addends
        if by.number is not None:
            halves = by.number > 0 and added.number == 2.0 ** (by.number - 1)
        else:
            halves = by.origin is not None and added.origin == half_of(by.origin)
        lanes = max(value.lanes, by.lanes)
        if not halves or lanes == 1:
            return None
        made = rounded_shift(self.e, self.expr(value, lanes), self.expr(by, lanes), lanes)
        return None if made is None else Value(made, lanes, "int32")

    def _divided(self, x: Value) -> Value:
        """A bounded quotient that is rounded to a whole number next: by a division, where a product would be
        off in the last bit and what lies in the middle of two numbers go to the wrong one."""
        assert x.quotient is not None
        e, lanes = self.e, x.lanes
        dividend, divisor = x.quotient
        finite = dividend.magnitude < FINITE * min(1.0, abs(divisor))
        made = exact_quotient(e, dividend.expr, divisor, lanes, finite=finite)
        if x.most < inf:
            made = e.let(tirx.Min(e.f32(x.most, lanes), made))
        if x.least > -inf:
            made = e.let(tirx.Max(e.f32(x.least, lanes), made))
        return replace(x, expr=made)

    def _rounded(self, x: Value) -> Expr:
        """A scaled integer, rounded before it is added to something: a multiply-add would decide otherwise
        where the sum of two quantised tensors lies in the middle of two steps, which is often."""
        vector = x.dtype if x.lanes == 1 else f"{x.dtype}x{x.lanes}"
        return self.e.let(tirx.call_llvm_pure_intrin(vector, "llvm.arithmetic.fence", self.e.let(x.expr)))

    def expr(self, x: Value, lanes: int) -> Expr:
        """The value as ``lanes`` lanes."""
        return x.expr if x.lanes == lanes else self.e.splat(x.expr, lanes)

    def literal(self, x: Any) -> Value:
        """A constant of TIR."""
        value, dtype = float(x.value), str(x.ty.dtype)
        origin = int(x.value) if dtype in WORDS else None
        written = number_of(value, dtype) if dtype in SIXTEEN_BIT_FLOATS else x
        return Value(written, 1, dtype, value, origin=origin)

    def looked_up(self, table: Any, x: Value) -> Value:
        """The elements of a table of 256 bytes, a flat buffer, whose positions are the bits of bytes."""
        return Value(looked_up(self.e, table, x.expr, x.lanes, x.dtype), x.lanes, str(table.dtype))

    def loaded(self, expr: Expr, lanes: int, dtype: str, place: Any = None) -> Value:
        """Elements as they lie in memory.

        Args:
            place: what is equal where they are the same.
        """
        if dtype == "bool":
            zero = self.e.splat(tirx.IntImm("int8", 0), lanes)
            return Value(tirx.NE(self.e.let(expr), zero), lanes, dtype)
        return Value(self.e.let(expr), lanes, dtype, origin=place if dtype in WORDS else None)

    def cast(self, x: Value, dtype: str) -> Value:
        """A value as one of another element type."""
        if x.wide is not None and dtype == "int32":
            return x.wide
        if x.wide is not None and dtype == "float32":
            return self._cast(x.wide, dtype)
        made = self._cast(x, dtype)
        if x.wide is not None and dtype == "int16" and DTYPE_BYTES[x.dtype] == 1:
            return replace(made, wide=x.wide)
        if x.dtype == "int32" and dtype in INTEGERS and DTYPE_BYTES[dtype] < 4:
            least, most = limits_of(dtype)
            return replace(made, wide=x) if least <= x.least and x.most <= most else made
        return made

    def unbounded(self, x: Value) -> Value:
        """Bytes as int32 of which saturation makes them."""
        wide = self.cast(x, "int32")
        if wide.bounded is None or (wide.least, wide.most) != limits_of(x.dtype):
            return wide
        return Value(wide.bounded, wide.lanes, "int32")

    def _cast(self, x: Value, dtype: str) -> Value:
        if dtype not in DTYPES or x.dtype not in DTYPES:
            raise RuleError(f"{dtype} of {x.dtype} has no vector form")
        if x.dtype in SIXTEEN_BIT_FLOATS:
            wide = Value(widened(self.e, x.expr, x.lanes, x.dtype), x.lanes, "float32", x.number)
            return wide if dtype == "float32" else self.cast(wide, dtype)
        if dtype in SIXTEEN_BIT_FLOATS:
            single = x if x.dtype == "float32" else self.cast(x, "float32")
            return Value(narrowed(self.e, single.expr, x.lanes, dtype), x.lanes, dtype, x.number)
        if dtype == "bool":
            zero = self.e.splat(tirx.const(0, x.dtype), x.lanes)
            return Value(tirx.NE(x.expr, zero), x.lanes, dtype)
        if x.dtype == "bool":
            one, zero = (self.e.splat(tirx.const(v, dtype), x.lanes) for v in (1, 0))
            return Value(self.e.let(tirx.Select(x.expr, one, zero)), x.lanes, dtype)
        if x.nearest is not None and dtype in INTEGERS and (rounded := self._whole(x, dtype)) is not None:
            return rounded
        if x.product is not None and dtype == "int32" and (bits := self._high(x, x.product)) is not None:
            return Value(bits, x.lanes, dtype)
        if x.bounded is not None and dtype in INTEGERS and (x.least, x.most) == limits_of(dtype):
            narrow = saturated(self.e, x.bounded, x.lanes, dtype)
            if narrow is not None:
                return Value(self.e.let(narrow), x.lanes, dtype)
        vector = dtype if x.lanes == 1 else f"{dtype}x{x.lanes}"
        if x.integral and dtype in INTEGERS and DTYPE_BYTES[dtype] <= 2:
            bits = nearest_integers(self.e, x.expr, x.lanes)  # of whole numbers it is these
            if bits is not None:
                return Value(self.e.let(tirx.Cast(vector, bits)), x.lanes, dtype)
        whole = dtype == "float32" and x.dtype in INTEGERS
        made = Value(
            self.e.let(tirx.Cast(vector, x.expr)), x.lanes, dtype, x.number, whole=whole, integral=whole
        )
        if whole:
            made = replace(made, magnitude=max(map(abs, limits_of(x.dtype))))
        if {x.dtype, dtype} == WORDS:
            return replace(made, origin=x.origin)
        return replace(made, narrow=x) if (x.dtype, dtype) == ("int32", "int64") else made

    def _high(self, x: Value, product: Product) -> Expr | None:
        """The lower 32 bits of a shifted product of two vectors of int32; None where LLVM does it as well."""
        added, shift = product.added, product.shift
        operands = self.expr(product.a, x.lanes), self.expr(product.b, x.lanes)
        if product.signed:
            return rounded_away(self.e, *operands, added, shift, x.lanes)
        if product.a.half is not None and shift == HIGH + 1 and not added % 2:
            half = self.expr(product.a.half, x.lanes)
            if (made := rounded_high(self.e, half, operands[1], added // 2, x.lanes)) is not None:
                return made
        return high_product(self.e, *operands, added, shift, x.lanes)

    def _whole(self, x: Value, dtype: str) -> Value | None:
        """The integer of a float32 value that was rounded: by one conversion, or of a bounded one by an
        addition; None where neither can be."""
        e, lanes, wide = self.e, x.lanes, "int32" if x.lanes == 1 else f"int32x{x.lanes}"
        bits = nearest_integers(e, x.nearest, lanes) if DTYPE_BYTES[dtype] <= 4 else None
        if bits is None and max(-x.least, x.most) > LARGEST_WHOLE:
            return None
        if bits is None:
            bits = e.let(tirx.reinterpret(wide, e.let(x.nearest + e.f32(WHOLE, lanes))))
            if DTYPE_BYTES[dtype] > 2:  # two bytes of that number are zero
                bits = e.let(bits - e.splat(tirx.IntImm("int32", WHOLE_BITS), lanes))
        return Value(e.let(tirx.Cast(wide.replace("int32", dtype), bits)), lanes, dtype, rounded=True)


def _is_integral(x: Value) -> bool:
    return x.integral or (x.number is not None and float(x.number).is_integer())


def _described(made: Value, name: str, operands: Sequence[Value]) -> Value:
    """What is known of a float32 value by the operation that made it."""
    magnitudes = [v.magnitude if v.number is None else abs(v.number) for v in operands]
    if name in {"add", "sub", "mul"}:
        made = replace(made, magnitude=prod(magnitudes) if name == "mul" else sum(magnitudes))
    if name in _WITHOUT_FRACTION or (name in _KEEPS_WHOLE and all(map(_is_integral, operands))):
        made = replace(made, integral=True)
    if name in {"max", "min"}:
        return _within(made, name, operands)
    if name == "div" and operands[1].number:
        return replace(made, quotient=(operands[0], operands[1].number))
    if name in ROUNDING:
        rounded = operands[0]
        return replace(made, nearest=rounded.expr, least=rounded.least, most=rounded.most)
    return made


def _within(made: Value, name: str, operands: Sequence[Value]) -> Value:
    """A larger or smaller one of two values, with the bounds that a constant gives it."""
    a, b = operands if operands[0].number is None else operands[::-1]
    if b.number is None:
        return made
    limit = max if name == "max" else min
    least, most = limit(a.least, b.number), limit(a.most, b.number)
    bounded = None if a.dtype == "float32" else a.expr if a.bounded is None else a.bounded
    return replace(made, least=least, most=most, bounded=bounded, quotient=a.quotient)
