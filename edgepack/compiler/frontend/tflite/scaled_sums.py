"""Sums of two tensors of bytes with scales of their own: what the reference kernel computes, and a shorter
form that is the same for all 65,536 pairs of bytes.

The kernel (``AddFunc`` of ``tensorflow/lite/kernels/internal/reference/integer_ops/add.h``) multiplies each
operand by a fixed-point factor, adds, and multiplies the sum by a third one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.fixed_point_reference import multiply, rounding_shift
from edgepack.compiler.frontend.tflite.fixed_point import quantize_multiplier

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SHIFT", "Affine", "ScaledSum", "SumOperand"]

#: By how much the kernel shifts operands of bytes left before it scales them.
SHIFT = 20

#: Sums stay below this.
_LIMIT = 2**31


@dataclass(frozen=True)
class SumOperand:
    """A tensor of bytes.

    Attributes:
        scale: a float32 number.
        low, high: the least and the largest byte less the zero point.
        sign: 1, or -1 where it is subtracted.
    """

    scale: float
    low: int
    high: int
    sign: int = 1


@dataclass(frozen=True)
class Affine:
    """round((factors[0] x + factors[1] y + added) / 2**shift), halves away from zero.

    Attributes:
        largest: a magnitude that no sum exceeds.
    """

    factors: tuple[int, int]
    added: int
    shift: int
    largest: int


class ScaledSum:
    """The sum of two tensors of bytes, as steps of a scale.

    Args:
        x, y: the two.
        scale: of the result, a float32 number.

    Attributes:
        operands: the two.
        factors: what the kernel multiplies them by.
        last: what it multiplies the sum by.
    """

    def __init__(self, x: SumOperand, y: SumOperand, scale: float) -> None:
        self.operands, self.scale = (x, y), scale
        twice = 2 * max(x.scale, y.scale)
        self.factors = x.scale / twice, y.scale / twice
        self.last = twice / ((1 << SHIFT) * scale)

    def affine(self, limits: tuple[int, int]) -> Affine | None:
        """The shorter form, where one is found that is the same for all bytes.

        Args:
            limits: the least and the largest result that is not bounded.
        """
        import numpy as np

        x, y = (np.arange(one.low, one.high + 1, dtype=np.int64) for one in self.operands)
        pair = x[:, None], y[None]
        wanted = np.clip(self._kernel(*pair), *limits)
        exact = [one.sign * one.scale / self.scale for one in self.operands]
        most = [max(abs(one.low), abs(one.high)) for one in self.operands]
        reach = sum(abs(ratio) * n for ratio, n in zip(exact, most, strict=True))
        shift = 30 - int(np.ceil(np.log2(max(reach, 1e-30))))
        if not 1 <= shift <= 30:
            return None
        near = [round(ratio * 2**shift) for ratio in exact]
        for form in _candidates(near, pair, wanted, shift, limits):
            sums = form[0] * pair[0] + form[1] * pair[1] + form[2]
            largest = int(np.abs(sums).max())
            if largest + (1 << shift >> 1) < _LIMIT and _same(sums, shift, wanted, limits):
                return Affine((form[0], form[1]), form[2], shift, largest)
        return None

    def _kernel(self, x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        """What the kernel computes of bytes less their zero points."""
        import numpy as np

        terms = []
        for value, operand, factor in zip((x, y), self.operands, self.factors, strict=True):
            multiplier, shift = (np.asarray(n, np.int32) for n in quantize_multiplier(factor))
            shifted = np.asarray(value << SHIFT, np.int32)
            terms.append(operand.sign * multiply(shifted, multiplier, shift).astype(np.int64))
        multiplier, shift = (np.asarray(n, np.int32) for n in quantize_multiplier(self.last))
        return multiply((terms[0] + terms[1]).astype(np.int32), multiplier, shift).astype(np.int64)


def _same(sums: NDArray[Any], shift: int, wanted: NDArray[Any], limits: tuple[int, int]) -> bool:
    import numpy as np

    return bool((np.clip(rounding_shift(sums, np.asarray(shift)), *limits) == wanted).all())


#: By how much factors, and what is added, are moved from where they would be if nothing were rounded.
_FACTORS, _ADDED = 4, 48

#: Pairs of bytes next to the middle of two results, as a fraction of a step: only these decide.
_NEAR = 2.0**-14


def _candidates(
    near: list[int],
    pair: tuple[NDArray[Any], NDArray[Any]],
    wanted: NDArray[Any],
    shift: int,
    limits: tuple[int, int],
) -> Iterator[tuple[int, int, int]]:
    """Factors and what is added that give what is wanted of the pairs next to the middle of two results."""
    import numpy as np

    fraction = (near[0] * pair[0] + near[1] * pair[1]) / 2.0**shift - 0.5
    places = np.nonzero(np.abs(fraction - np.rint(fraction)) < _NEAR)
    x, y = (np.broadcast_to(one, wanted.shape)[places] for one in pair)
    results, added = wanted[places], np.arange(-_ADDED, _ADDED + 1)
    steps = sorted(range(-_FACTORS, _FACTORS + 1), key=abs)
    for first in steps:
        for second in steps:
            sums = ((near[0] + first) * x + (near[1] + second) * y)[None] + added[:, None]
            made = np.clip(rounding_shift(sums, np.asarray(shift)), *limits)
            fits = added[(made == results[None]).all(1)]
            if fits.size:
                middle = min(fits, key=lambda n: abs(int(n) - int(np.median(fits))))
                yield near[0] + first, near[1] + second, int(middle)
