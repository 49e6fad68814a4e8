"""Scales as fixed-point multipliers, and the nodes that multiply by them: what TFLite's reference kernels
compute with integers, bit for bit.

Sources: ``QuantizeMultiplier`` and ``CalculateActivationRangeQuantized`` of
``tensorflow/lite/kernels/internal/quantization_util.cc`` and ``tensorflow/lite/kernels/kernel_util.cc``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.fixed_point import DOMAIN, MULTIPLY, MULTIPLY_ONCE, MULTIPLY_UP, SPLIT
from edgepack.compiler.frontend.onnx.fixed_point_reference import multiply_once
from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.model import Quantisation, Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "activation_range",
    "bounded",
    "centred",
    "integer_range",
    "multiplied",
    "quantize_multiplier",
    "quantize_multipliers",
    "requantised",
    "rounded_once",
    "zero_of",
]

#: Fused activation functions by the schema's numbers, and their bounds.
BOUNDS = {
    0: (-math.inf, math.inf),
    1: (0.0, math.inf),
    2: (-1.0, 1.0),
    3: (0.0, 6.0),
}


def quantize_multiplier(value: float) -> tuple[int, int]:
    """A positive number as ``multiplier / 2**31 * 2**shift``, the multiplier in [2**30, 2**31)."""
    if value == 0:
        return 0, 0
    fraction, shift = math.frexp(value)
    fixed = math.floor(abs(fraction) * (1 << 31) + 0.5)  # std::round of what is positive
    if fixed == 1 << 31:
        fixed, shift = fixed // 2, shift + 1
    return (0, 0) if shift < -31 else (int(math.copysign(fixed, fraction)), shift)


def quantize_multipliers(values: Sequence[float]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Multipliers and shifts, int32, of several numbers; rank 0 for one."""
    import numpy as np

    found = np.asarray([quantize_multiplier(float(value)) for value in values], np.int32)
    shape = () if len(values) == 1 else (len(values),)
    return found[:, 0].reshape(shape), found[:, 1].reshape(shape)


def integer_range(dtype: str) -> tuple[int, int]:
    """The least and the largest number of an integer type."""
    import numpy as np

    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def activation_range(activation: int, dtype: str, quantisation: Quantisation) -> tuple[int, int]:
    """Between what a quantised result lies behind a fused activation function."""
    import numpy as np

    low, high = integer_range(dtype)
    scale, zero = np.float32(quantisation.scale[0]), int(quantisation.zero[0])

    def quantised(bound: float) -> int:
        exact = float(np.float32(bound) / scale)
        return zero + int(math.copysign(math.floor(abs(exact) + 0.5), exact))

    least, most = BOUNDS[activation]
    if least > -math.inf:
        low = max(low, quantised(least))
    if most < math.inf:
        high = min(high, quantised(most))
    return low, high


def zero_of(tensor: Tensor) -> int:
    """The zero point of a tensor that is quantised as a whole, or of no quantised one, 0."""
    return 0 if tensor.quantisation is None else int(tensor.quantisation.zero[0])


def centred(emitter: Emitter, index: int) -> str:
    """The integers of a quantised tensor less their zero point, int32."""
    import numpy as np

    tensor, name = emitter.tensors[index], emitter.value(index)
    wide = emitter.cast(name, np.int32)
    zero = zero_of(tensor)
    known = emitter.known(wide)
    if known is not None:
        return emitter.const(known - np.int32(zero))
    return emitter.op("Sub", wide, emitter.scalar(zero, wide)) if zero else wide


def multiplied(emitter: Emitter, x: str, multiplier: Any, shift: Any, largest: int = 2**31) -> str:
    """Integers of int32 times ``multiplier / 2**31 * 2**shift``, rounded twice; ``largest`` bounds their
    magnitude."""
    import numpy as np

    factors = [emitter.const(np.asarray(value, np.int32)) for value in (multiplier, shift)]
    most = {} if largest >= 2**31 else {"largest": int(largest)}
    return emitter.op(MULTIPLY, x, *factors, shape=emitter.shape(x), domain=DOMAIN, **most)


def bounded(emitter: Emitter, x: str, low: int, high: int, dtype: str) -> str:
    """Integers between two bounds, as a narrow type."""
    clipped = emitter.op("Clip", x, emitter.scalar(low, x), emitter.scalar(high, x), shape=emitter.shape(x))
    return emitter.cast(clipped, dtype)


#: Results up to this magnitude are compared: all that becomes of bytes, or of words, lies below it.
_COMPARED = {"int8": 520, "uint8": 520, "int16": (1 << 16) + 8}


def rounded_once(
    emitter: Emitter, x: str, factors: Sequence[float], largest: int, result: str = "int8"
) -> str:
    """round(x * factor) as float64 has it, halves away from zero, of int32 by integers alone.

    As many bits of a factor as fit beside those of ``x`` into 62 are taken, or more in two products. Whether
    the results are the same is looked at where they change: both are monotonic.

    Args:
        factors: one for all, or for each place of the last dimension.
        largest: bounds the magnitude of x.
        result: type of what becomes of it.

    Raises:
        UnrepresentableError: no such multiplier gives the same results.
    """
    import numpy as np

    for split in (False, True):
        try:
            found = [_multiplier(factor, largest, _COMPARED[result], split=split) for factor in factors]
            break
        except UnrepresentableError:
            if split:
                raise
    shape = () if len(found) == 1 else (len(found),)
    operands = [
        emitter.const(np.asarray(values, np.int64).reshape(shape)) for values in zip(*found, strict=True)
    ]
    more = {"split": 1} if split else {}
    return emitter.op(MULTIPLY_ONCE, x, *operands, shape=emitter.shape(x), domain=DOMAIN, **more)


def _multiplied_wide(emitter: Emitter, x: str, factors: Sequence[float]) -> str:
    """``MultiplyByQuantizedMultiplier`` of int64, of sums that fit into int32."""
    import numpy as np

    multipliers, shifts = quantize_multipliers(factors)
    reduced = np.where(multipliers < 0x7FFF0000, (multipliers.astype(np.int64) + (1 << 15)) >> 16, 0x7FFF)
    operands = (reduced.astype(np.int64), 15 - shifts.astype(np.int64))
    given = [emitter.const(np.asarray(one)) for one in operands]
    return emitter.op(MULTIPLY_UP, x, *given, shape=emitter.shape(x), domain=DOMAIN)


class UnrepresentableError(ValueError):
    """A factor whose rounded products no multiplier of 62 bits has; the text says which."""


def _multiplier(factor: float, largest: int, results: int, *, split: bool) -> tuple[int, int]:
    """Multiplier and shift with ``round(x * multiplier / 2**shift) == round(x * factor)``."""
    if not factor:  # of a channel whose weights are all 0
        return 0, 1
    own = max(largest, 1).bit_length()
    for bits in (min(61 - own + SPLIT, 62),) if split else (31, 61 - own):  # 31: products of 32 bits by 32
        shift = bits - math.frexp(factor)[1]
        if not (SPLIT + 1 <= shift <= SPLIT + 62 if split else 1 <= shift <= 62):
            continue
        exact = round(math.ldexp(factor, shift))
        for multiplier in (exact, exact + 1, exact - 1):
            fits = (multiplier >> SPLIT if split else multiplier) * largest < 1 << 62 and multiplier < 1 << 63
            if fits and _same(factor, (multiplier, shift, int(split)), largest, results):
                return multiplier, shift
    raise UnrepresentableError(f"the factor {factor!r} of sums up to {largest}")


def _same(factor: float, found: tuple[int, int, int], largest: int, results: int) -> bool:
    """Whether both round alike, next to each place where the result changes."""
    import numpy as np

    multiplier, shift = (np.asarray(value, np.int64) for value in found[:2])
    places = np.ceil((np.arange(1, results, dtype=np.float64) - 0.5) / factor)
    places = places[places - 2 <= largest].astype(np.int64)
    x = (places[:, None] + np.arange(-2, 3)).ravel()
    x = x[x >= 0]
    product = x * factor
    below = np.floor(product)
    wanted = below.astype(np.int64) + (product - below >= 0.5)
    up, down = (multiply_once(values, multiplier, shift, found[2]) for values in (x, -x))
    return bool((up == wanted).all() and (down == -wanted).all())


def requantised(
    emitter: Emitter,
    x: str,
    factors: Sequence[float],
    result: Tensor,
    activation: int,
    largest: int = 2**31,
    *,
    how: str = "twice",
) -> str:
    """Sums of int32 as the integers of a quantised tensor.

    Args:
        x: the sums.
        factors: what they are multiplied by, one for all, or for each place of the last dimension.
        activation: the fused activation function.
        largest: bounds the sums' magnitude.
        how: they are rounded ``twice``, or ``once``, as float64 would be, or are ``wide``: those that the
            kernels have as int64, whose multipliers have 15 bits.
    """
    assert result.quantisation is not None
    if how == "once":
        scaled = rounded_once(emitter, x, factors, largest, result.dtype)
    elif how == "wide":
        scaled = _multiplied_wide(emitter, x, factors)
    else:
        scaled = multiplied(emitter, x, *quantize_multipliers(factors), largest)
    zero = int(result.quantisation.zero[0])
    if zero:
        scaled = emitter.op("Add", scaled, emitter.scalar(zero, scaled))
    low, high = activation_range(activation, result.dtype, result.quantisation)
    return bounded(emitter, scaled, low, high, result.dtype)
