"""Winograd's F(2 x 2, 3 x 3) and F(4 x 4, 3 x 3) of integers, which is exact.

Input and weights are transformed in int16, and pairs of these are multiplied and summed in int32, as the
direct form does with what is not transformed. F(4) interpolates at 0, +-1, +-2 and infinity (Lavin and Gray,
Fast Algorithms for Convolutional Neural Networks, 2016), whose transform of inputs has whole numbers; that
of weights has them times 24::

    24 G = [6 0 0], [-4 -4 -4], [-4 4 -4], [1 2 4], [1 -2 4], [0 0 24]

The last row is halved, and the last column of A^T doubled instead, so that weights of 8 bits fit int16. What
comes out is the convolution times 24 * 24 = 9 * 2^6, modulo 2^32, however often sums wrapped around on the
way: times the inverse of 9 modulo 2^32 it is 2^6 times the convolution, and an arithmetic shift gives that,
if it is less than 2^25. F(2) takes 2 G, and gives 2^2 times the convolution.

The bounds of an input and the weights say when the model is packed whether that holds (:func:`exact_tiles`);
an input of 8 bits less a zero point, |d| <= 255, is at most 100 * 255 = 25500 when transformed, weights of 8
bits 144 * 128 = 18432.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import tirx
from tvm.tirx import IntImm

from edgepack.compiler.graph.filtered_integers import IntegerBounds
from edgepack.compiler.graph.integer_operands import INT16
from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.kernels.cpu.conv.winograd_transforms import Transform
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter

__all__ = ["INPUTS", "IntegerOutputs", "exact_tiles", "transformed_integers"]

#: G times a whole number, by m.
G = {
    2: np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]]),
    4: np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 12]]),
}

#: B^T, by m.
B = {
    2: np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]),
    4: np.array(
        [
            [4, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ]
    ),
}

#: What comes out is the convolution times an odd number and 2 to a power, by m.
ODD, SHIFT = {2: 1, 4: 9}, {2: 2, 4: 6}


def exact_tiles(bounds: IntegerBounds) -> tuple[int, ...]:
    """m of the tiles by which a convolution within such bounds is exact."""
    found = []
    for m, shift in SHIFT.items():
        sums = 2 ** (31 - shift)
        whole = -sums <= bounds.sums[0] and bounds.sums[1] < sums
        if whole and _fits(B[m], bounds.left) and _fits(G[m], bounds.right):
            found.append(m)
    return tuple(found)


def _fits(matrix: Array, limits: tuple[int, int]) -> bool:
    """Whether ``matrix x matrix^T`` fits int16 for all x of elements within ``limits``."""
    factors = np.einsum("ik,jl->ijkl", matrix, matrix).reshape(len(matrix) ** 2, -1)
    ends = factors * limits[0], factors * limits[1]
    least, most = np.minimum(*ends).sum(1).min(), np.maximum(*ends).sum(1).max()
    return bool(INT16[0] <= least and most <= INT16[1])


def transformed_integers(weights: Array, m: int) -> Array:
    """HWIO (3, 3, IC, OC) to int16 (a * a, IC, OC), which fits (:func:`exact_tiles`)."""
    u = np.einsum("ik,klco,jl->ijco", G[m], weights.astype(np.int64), G[m])
    made: Array = u.reshape(-1, *weights.shape[2:]).astype(np.int16)
    return made


class _Integers(Transform):
    """Vector arithmetic modulo a power of 2, in which None is a vector of zeros.

    Attributes:
        dtype: of the elements, of which a vector has ``count``.
    """

    dtype = "int32"

    def __init__(self, e: Emitter, lanes: int) -> None:
        super().__init__(e, lanes)
        self.count = lanes

    def sub(self, x: Any, y: Any) -> Any:
        if x is None and y is not None:
            x = self.e.splat(IntImm(self.dtype, 0), self.count)
        return super().sub(x, y)

    def times_power(self, x: Any, power: int) -> Any:
        """x * 2^power."""
        if x is None:
            return None
        return self.e.let(tirx.shift_left(x, self.e.splat(IntImm(self.dtype, power), self.count)))


class IntegerInputs(_Integers):
    """Transforms of inputs: vectors of int16, which lie in memory as pairs, a lane of int32 each.

    Attributes:
        image: type of the elements of an image: int16, or bytes, pairs of which are a lane of int16.
    """

    dtype = "int16"
    image = "int16"

    def __init__(self, e: Emitter, lanes: int) -> None:
        super().__init__(e, lanes)
        self.count = 2 * lanes

    def loaded(self, vector: Any) -> Any:
        return self.e.let(tirx.reinterpret(f"int16x{self.count}", vector))

    def read(self, vector: Any) -> Any:
        if self.image == "int16":
            return self.loaded(vector)
        taken = tirx.reinterpret(f"{self.image}x{self.count}", vector)
        return self.e.let(tirx.Cast(f"int16x{self.count}", taken))

    def beside(self, outside: int) -> Any:
        return self.e.splat(IntImm("int16", outside), self.count) if outside else None

    def kept(self, value: Any) -> Any:
        if value is None:
            return self.e.splat(IntImm("int32", 0), self.lanes)
        return tirx.reinterpret("int32" if self.lanes == 1 else f"int32x{self.lanes}", value)

    def input_rows(self, m: int, rows: Sequence[int], d: Sequence[Any]) -> list[Any]:
        if m == 2:
            return super().input_rows(m, rows, d)
        found: dict[int, Any] = {}
        if 1 in rows or 2 in rows:
            even = self.sub(d[4], self.times_power(d[2], 2))
            odd = self.sub(d[3], self.times_power(d[1], 2))
            found[1], found[2] = self.add(even, odd), self.sub(even, odd)
        if 3 in rows or 4 in rows:
            even, odd = self.sub(d[4], d[2]), self.times_power(self.sub(d[3], d[1]), 1)
            found[3], found[4] = self.add(even, odd), self.sub(even, odd)
        for row, at in ((0, 0), (5, 1)):
            if row in rows:
                near = self.times_power(self.sub(d[at], d[at + 2]), 2)
                found[row] = self.add(near, self.sub(d[at + 4], d[at + 2]))
        return [found[r] for r in rows]


class Uint8Inputs(IntegerInputs):
    """The same of an image of uint8."""

    image = "uint8"


class Int8Inputs(IntegerInputs):
    """The same of an image of int8."""

    image = "int8"


#: The transforms of inputs, by type of an image's elements.
INPUTS = {one.image: one for one in (IntegerInputs, Uint8Inputs, Int8Inputs)}


class IntegerOutputs(_Integers):
    """Transforms of products, vectors of int32."""

    def output_rows(self, m: int, rows: Sequence[int], x: Sequence[Any]) -> list[Any]:
        if m == 2:
            return super().output_rows(m, rows, x)
        found: dict[int, Any] = {}
        if 0 in rows or 2 in rows:
            near, far = self.add(x[1], x[2]), self.add(x[3], x[4])
            if 0 in rows:
                found[0] = self.add(x[0], self.add(near, far))
            found[2] = self.add(near, self.times_power(far, 2))
        if 1 in rows or 3 in rows:
            near, far = self.sub(x[1], x[2]), self.times_power(self.sub(x[3], x[4]), 1)
            found[1] = self.add(near, far)
            if 3 in rows:
                last = self.times_power(self.add(x[5], self.times_power(far, 1)), 1)
                found[3] = self.add(near, last)
        return [found[r] for r in rows]

    def output_lines(self, m: int, count: int, column: Callable[[int], Sequence[Any]]) -> list[list[Any]]:
        if m == 2:
            return super().output_lines(m, count, column)
        pairs = []
        for j in (1, 3):
            x, y = column(j), column(j + 1)
            pairs.append([(self.add(x[n], y[n]), self.sub(x[n], y[n])) for n in range(count)])
        lines, far = [], [self.times_power(pairs[1][n][1], 1) for n in range(count)]
        first = column(0)
        for n in range(count):
            near, sums = pairs[0][n], pairs[1][n][0]
            third = self.add(near[0], self.times_power(sums, 2))
            lines.append([self.add(first[n], self.add(near[0], sums)), self.add(near[1], far[n]), third])
        last = column(5)
        for n in range(count):
            fourth = self.times_power(self.add(last[n], self.times_power(far[n], 1)), 1)
            lines[n].append(self.add(pairs[0][n][1], fourth))
        return lines

    def finished(self, m: int, value: Any) -> Any:
        if ODD[m] > 1:
            inverse = pow(ODD[m], -1, 2**32)
            value = self.e.let(value * self.e.splat(IntImm("int32", inverse), self.count))
        return self.e.let(tirx.shift_right(value, self.e.splat(IntImm("int32", SHIFT[m]), self.count)))
