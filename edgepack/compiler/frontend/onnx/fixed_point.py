"""Arithmetic of fixed-point numbers, of which ONNX has no operators: what TFLite's reference kernels are
written with (``tensorflow/lite/kernels/internal/common.h``, ``gemmlowp/fixedpoint/fixedpoint.h``).

Frontends write these nodes in the domain ``edgepack``; the importer makes elementwise operators of integers
of them, which fuse like any others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.shapes import inner_graphs

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = [
    "CONVERTERS",
    "DOMAIN",
    "HIGH_MUL",
    "MULTIPLY",
    "MULTIPLY_ONCE",
    "MULTIPLY_UP",
    "ROUNDING_DIVIDE",
    "ROUNDING_SHIFT",
    "SPLIT",
    "is_fixed_point",
    "of_fixed_point",
]

#: Of these operators.
DOMAIN = "edgepack"

#: round(a * b / 2**31), halves towards infinity; a and b int32, not both -2**31.
HIGH_MUL = "SaturatingRoundingDoublingHighMul"
#: round(x / 2**exponent), halves away from zero; x and exponent int32, the exponent from 0 to 31. The
#: attribute ``largest`` bounds x.
ROUNDING_SHIFT = "RoundingDivideByPOT"
#: round(x / divisor), halves away from zero; x and divisor int32, the divisor positive.
ROUNDING_DIVIDE = "RoundingDivide"
#: x times multiplier / 2**31 * 2**shift by the two above, as MultiplyByQuantizedMultiplier (double rounding);
#: x int32, multiplier and shift constants. The attribute ``largest`` bounds x.
MULTIPLY = "MultiplyByQuantizedMultiplier"
#: round(x * multiplier / 2**shift), halves away from zero; x int32, multiplier and shift constants of int64
#: whose product with x stays below 2**62; or, with the attribute ``split`` of 1, that of x and the
#: multiplier's bits from ``SPLIT`` on.
MULTIPLY_ONCE = "MultiplyOnce"
#: The same, halves towards infinity.
MULTIPLY_UP = "MultiplyHalvesUp"

#: Lower bits of a multiplier that is split.
SPLIT = 26

#: Sums stay below this in int32.
_LIMIT = 2**31


def of_fixed_point(node: onnx.NodeProto) -> bool:
    """Whether a node computes with fixed-point numbers."""
    return node.domain == DOMAIN and node.op_type in CONVERTERS


def is_fixed_point(model: onnx.ModelProto) -> bool:
    """Whether a model has operators of fixed-point numbers, if only in a branch or a loop."""
    return _has_fixed_point(model.graph)


def _has_fixed_point(graph: onnx.GraphProto) -> bool:
    return any(of_fixed_point(node) or any(map(_has_fixed_point, inner_graphs(node))) for node in graph.node)


def _elementwise(builder: Any, name: str, function: Callable[..., Any], *operands: Any) -> Any:
    """One operator of each element's expression, so that constants keep their narrow types.

    Args:
        function: of an element of each operand, which are broadcast.
    """
    import numpy as np
    from tvm import te

    from edgepack.compiler.graph.rewrite import shape_of

    extents = [int(n) for n in np.broadcast_shapes(*(shape_of(operand) for operand in operands))]

    def computed(*tensors: te.Tensor) -> te.Tensor:
        def element(*place: Any) -> Any:
            return function(*(_read(tensor, place, extents) for tensor in tensors))

        return te.compute(extents, element, name=name)

    return builder.emit(
        builder.call_te(computed, *(builder.emit(one) for one in operands), primfunc_name_hint=name)
    )


def _read(tensor: Any, place: Sequence[Any], extents: Sequence[int]) -> Any:
    """The element of a tensor that is broadcast to these extents."""
    first = len(extents) - len(tensor.shape)
    pairs = zip(tensor.shape, place[first:], extents[first:], strict=True)
    return tensor(*(i if int(own) == whole else 0 for own, i, whole in pairs))


def _number(value: int, dtype: str) -> Any:
    from tvm import tirx

    return tirx.const(value, dtype)


def _high(a: Any, b: Any, *, small: bool = False) -> Any:
    """High word of the doubled product, rounded; ``small``: 2 a does not overflow, so that it is the rounded
    high word of a product (SMMULR of ARM)."""
    from tvm import tirx

    if small:
        doubled = tirx.Cast("int64", a << _number(1, "int32")) * tirx.Cast("int64", b) + _number(
            1 << 31, "int64"
        )
        return tirx.Cast("int32", doubled >> _number(32, "int64"))
    product = tirx.Cast("int64", a) * tirx.Cast("int64", b) + _number(1 << 30, "int64")
    return tirx.Cast("int32", product >> _number(31, "int64"))


def _shifted(x: Any, exponent: Any) -> Any:
    """By the remainder, which overflows for no number and no exponent up to 31."""
    from tvm import tirx

    one, zero = _number(1, "int32"), _number(0, "int32")
    mask = ~(_number(-1, "int32") << exponent)
    half = (mask >> one) + tirx.Cast("int32", x < zero)
    return (x >> exponent) + tirx.Cast("int32", (x & mask) > half)


def _half(exponent: Any) -> Any:
    """Half of 2**exponent, 0 for an exponent of 0; unsigned, for 2**31 does not fit into int32."""
    from tvm import tirx

    one = _number(1, "uint32")
    return tirx.Cast("int32", (one << tirx.Cast("uint32", exponent)) >> one)


def _high_mul(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any], opset: int) -> Any:
    del attributes, opset
    return _elementwise(builder, "high_mul", _high, *inputs)


def _rounding_shift(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any], opset: int) -> Any:
    from edgepack.compiler.graph.rewrite import is_constant, numpy_of

    del opset
    x, exponent = inputs
    if is_constant(exponent) and numpy_of(exponent).size == 1:
        number = int(numpy_of(exponent).reshape(()))
        by, near = _number(number, "int32"), int(attributes.get("largest", _LIMIT)) + (1 << number >> 1)
        form = _shifted_near if near < _LIMIT and number else _shifted
        return _elementwise(builder, "rounding_shift", lambda value: form(value, by), x)
    return _elementwise(builder, "rounding_shift", _shifted, x, exponent)


def _shifted_near(x: Any, exponent: Any) -> Any:
    """Where the sum of x and half of the divisor does not overflow."""
    return (x + (x >> _number(31, "int32")) + _half(exponent)) >> exponent


def _rounding_divide(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any], opset: int) -> Any:
    """A divisor that all elements share is a number of the expression: a product and a shift for LLVM."""
    from tvm import tirx

    from edgepack.compiler.graph.rewrite import is_constant, numpy_of

    del attributes, opset

    def element(x: Any, divisor: Any) -> Any:
        half = tirx.truncdiv(divisor, _number(2, "int32"))
        return tirx.truncdiv(
            x + tirx.Select(x > _number(0, "int32"), half, _number(0, "int32") - half), divisor
        )

    x, divisor = inputs
    if is_constant(divisor) and numpy_of(divisor).size == 1:
        shared = _number(int(numpy_of(divisor).reshape(())), "int32")
        return _elementwise(builder, "rounding_divide", lambda value: element(value, shared), x)
    return _elementwise(builder, "rounding_divide", element, x, divisor)


def _multiply(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any], opset: int) -> Any:
    """Shifts that all elements share are numbers of the expression."""
    import numpy as np

    from edgepack.compiler.graph.rewrite import constant, numpy_of

    del opset
    x, multiplier, shift = inputs[0], *(numpy_of(value).astype(np.int32) for value in inputs[1:])
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    largest = int(attributes.get("largest", _LIMIT)) << int(left.max())
    near = largest + (1 << int(right.max()) >> 1) < _LIMIT
    small = 2 * largest < _LIMIT
    each = [numbers for numbers in (multiplier, shift) if (numbers != numbers.flat[0]).any()]

    def element(value: Any, *given: Any) -> Any:
        rest = list(given)
        factor, by = (rest.pop(0) if any(n is one for one in each) else n for n in (multiplier, shift))
        if isinstance(factor, np.ndarray):
            factor = _number(int(factor.flat[0]), "int32")
        return _scaled(value, factor, _Shifts(by, left, right), near=near, small=small)

    return _elementwise(builder, "multiply_fixed_point", element, x, *map(constant, each))


class _Shifts:
    """Shifts to the left and to the right of each element.

    Args:
        shift: an expression, or as ``left`` and ``right`` numbers of which each is the same.
    """

    def __init__(self, shift: Any, left: NDArray[Any], right: NDArray[Any]) -> None:
        import numpy as np
        from tvm import tirx

        zero = _number(0, "int32")
        self.any_left, self.any_right, self.all_right = bool(left.any()), bool(right.any()), bool(right.all())
        if isinstance(shift, np.ndarray):
            self.left, self.right = (_number(int(n.flat[0]), "int32") for n in (left, right))
        elif not self.any_left:
            self.left, self.right = zero, zero - shift
        else:
            self.left, self.right = tirx.max(shift, zero), tirx.max(zero - shift, zero)


def _scaled(x: Any, multiplier: Any, shifts: _Shifts, *, near: bool, small: bool) -> Any:
    """Two roundings; ``near``: sums with half of the divisor do not overflow, ``small``: nor does twice x."""
    from tvm import tirx

    product = _high(x << shifts.left if shifts.any_left else x, multiplier, small=small)
    if not shifts.any_right:
        return product
    if not near:
        return _shifted(product, shifts.right)
    sign = product >> _number(31, "int32")
    if not shifts.all_right:
        sign = tirx.Select(shifts.right > _number(0, "int32"), sign, _number(0, "int32"))
    return (product + sign + _half(shifts.right)) >> shifts.right


def _multiply_once(rounded: Callable[..., Any]) -> Callable[..., Any]:
    """Of a function of an element, a multiplier and a shift."""

    def convert(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any], opset: int) -> Any:
        import numpy as np

        from edgepack.compiler.graph.rewrite import constant, numpy_of

        del opset
        x, multiplier, shift = inputs[0], *(numpy_of(value) for value in inputs[1:])
        if int(attributes.get("split", 0)):
            factors = [constant(one) for one in (multiplier >> SPLIT, multiplier & ((1 << SPLIT) - 1))]
            by = constant(shift.astype(np.int32))
            return _elementwise(builder, "multiply_split", _once_in_parts, x, *factors, by)
        narrow = "int32" if int(multiplier.max(initial=0)) < _LIMIT else "int64"
        if multiplier.size == 1:
            factor, by = _number(int(multiplier.flat[0]), narrow), _number(int(shift.flat[0]), "int32")
            return _elementwise(builder, "multiply_once", lambda value: rounded(value, factor, by), x)
        operands = [constant(multiplier.astype(narrow)), constant(shift.astype(np.int32))]
        return _elementwise(builder, "multiply_once", rounded, x, *operands)

    return convert


def _once(x: Any, multiplier: Any, shift: Any) -> Any:
    from tvm import tirx

    wide, one = tirx.Cast("int64", shift), _number(1, "int64")
    product = tirx.Cast("int64", x) * tirx.Cast("int64", multiplier)
    sign = tirx.Cast("int64", x >> _number(31, "int32"))
    return tirx.Cast("int32", (product + ((one << wide) >> one) + sign) >> wide)


def _once_in_parts(x: Any, high: Any, low: Any, shift: Any) -> Any:
    """By a multiplier's higher and lower bits: floors of floors are those of the whole."""
    from tvm import tirx

    wide, one = tirx.Cast("int64", x), _number(1, "int64")
    by = tirx.Cast("int64", shift) - _number(SPLIT, "int64")
    sign = tirx.Cast("int64", x >> _number(31, "int32"))
    carried = (wide * low + sign) >> _number(SPLIT, "int64")
    return tirx.Cast("int32", (wide * high + carried + ((one << by) >> one)) >> by)


def _up(x: Any, multiplier: Any, shift: Any) -> Any:
    from tvm import tirx

    wide, one = tirx.Cast("int64", shift), _number(1, "int64")
    product = tirx.Cast("int64", x) * tirx.Cast("int64", multiplier)
    return tirx.Cast("int32", (product + ((one << wide) >> one)) >> wide)


#: As those of ``converters.py``.
CONVERTERS: dict[str, Callable[..., Any]] = {
    HIGH_MUL: _high_mul,
    ROUNDING_DIVIDE: _rounding_divide,
    ROUNDING_SHIFT: _rounding_shift,
    MULTIPLY: _multiply,
    MULTIPLY_ONCE: _multiply_once(_once),
    MULTIPLY_UP: _multiply_once(_up),
}
