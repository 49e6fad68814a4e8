"""Long Fourier transforms: products with small matrices of roots of unity, instead of one with a large one.

A length that has factors is transformed factor by factor (J. W. Cooley and J. W. Tukey, "An algorithm for
the machine calculation of complex Fourier series", Mathematics of Computation 19, 1965), any other as a
convolution of a length that is a power of two (L. I. Bluestein, "A linear filtering approach to the
computation of discrete Fourier transform", IEEE Transactions on Audio and Electroacoustics 18 (4), 1970).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor

if TYPE_CHECKING:
    import numpy as np

__all__ = ["LONG", "Fourier", "Planes", "is_long"]

#: Real and imaginary part, [rows, length] each; the imaginary one is "" where it is 0.
Planes = tuple[str, str]

#: Longest part of a transform that is one product, if its length has factors, and if it has none.
DIRECT, LONG = 128, 1024

#: Longest transform that is not taken apart: one of two parts has some fifteen steps more.
WHOLE = 256


def is_long(length: int) -> bool:
    """Whether small products take less time, and less space, than one."""
    return length > LONG or (length > WHOLE and bool(_factors(length)))


def _factors(length: int) -> list[int]:
    return [n for n in range(2, DIRECT + 1) if length % n == 0]


class Fourier:
    """Writes transforms of complex rows; their scale is left out.

    Args:
        rows: how many rows there are.
        sign: of the exponent: -1 for a transform, 1 for its inverse.
    """

    def __init__(self, editor: Editor, rows: int, dtype: np.dtype[np.generic], sign: int) -> None:
        self.editor, self.rows, self.dtype, self.sign = editor, rows, dtype, sign

    def transform(self, x: Planes, length: int) -> Planes:
        """The transform of rows of this length."""
        return self._any(x, self.rows, length, self.sign)

    def _any(self, x: Planes, rows: int, length: int, sign: int) -> Planes:
        factors = _factors(length)
        if length <= DIRECT or (not factors and length <= LONG):
            return self._direct(x, length, sign)
        if not factors:
            return self._as_convolution(x, rows, length, sign)
        near = min(factors, key=lambda n: max(n, length // n))
        return self._by_factors(x, rows, (near, length // near), sign)

    def _direct(self, x: Planes, length: int, sign: int) -> Planes:
        """One product for each part, or two."""
        import numpy as np

        k = np.arange(length)
        angle = sign * 2 * np.pi * (k[:, None] * k % length) / length
        return self._times(x, np.cos(angle), np.sin(angle), "MatMul")

    def _by_factors(self, x: Planes, rows: int, factors: tuple[int, int], sign: int) -> Planes:
        """Columns of an a x b matrix, a turn of each element, and rows; a fits one product."""
        import numpy as np

        a, b = factors
        inner = self._transposed(x, (rows, a, b), a)
        inner = self._any(inner, rows * b, a, sign)
        angle = sign * 2 * np.pi * np.outer(np.arange(b), np.arange(a)) / (a * b)
        inner = self._reshaped(inner, (rows, b, a))
        inner = self._times(inner, np.cos(angle), np.sin(angle), "Mul")
        outer = self._transposed(inner, (rows, b, a), b)
        outer = self._any(outer, rows * a, b, sign)
        return self._transposed(outer, (rows, a, b), a * b)

    def _as_convolution(self, x: Planes, rows: int, length: int, sign: int) -> Planes:
        import numpy as np

        size = 1 << (2 * length - 1).bit_length()
        k = np.arange(length)
        chirp = np.exp(sign * 1j * np.pi * (k * k % (2 * length)) / length)
        around = np.zeros(size, complex)
        around[:length] = chirp.conj()
        around[size - length + 1 :] = chirp.conj()[1:][::-1]
        spectrum = np.fft.fft(around) / size
        turned = self._times(x, chirp.real, chirp.imag, "Mul")
        zeros = self.editor.const(np.zeros((rows, size - length), self.dtype))
        long = tuple(self.editor.op("Concat", part, zeros, axis=1) for part in turned)
        found = self._any((long[0], long[1]), rows, size, -1)
        found = self._any(self._times(found, spectrum.real, spectrum.imag, "Mul"), rows, size, 1)
        bounds = [self.editor.const(np.asarray([n], np.int64)) for n in (0, length, 1)]
        cut = tuple(self.editor.op("Slice", part, *bounds) for part in found)
        return self._times((cut[0], cut[1]), chirp.real, chirp.imag, "Mul")

    def _times(
        self, x: Planes, real: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
        imaginary: np.ndarray[tuple[int, ...], np.dtype[np.float64]], op_type: str,
    ) -> Planes:  # fmt: skip
        """Complex numbers times constants, element by element or as a product of matrices."""
        e = self.editor
        c, s = (e.const(part.astype(self.dtype)) for part in (real, imaginary))
        if not x[1]:
            return e.op(op_type, x[0], c), e.op(op_type, x[0], s)
        return (
            e.op("Sub", e.op(op_type, x[0], c), e.op(op_type, x[1], s)),
            e.op("Add", e.op(op_type, x[0], s), e.op(op_type, x[1], c)),
        )

    def _reshaped(self, x: Planes, shape: tuple[int, ...]) -> Planes:
        real, imaginary = (self.editor.reshape(part, shape) if part else "" for part in x)
        return real, imaginary

    def _transposed(self, x: Planes, shape: tuple[int, int, int], length: int) -> Planes:
        """The last two of the dimensions exchanged, as rows of this length."""
        apart = self._reshaped(x, shape)
        turned = [self.editor.op("Transpose", part, perm=[0, 2, 1]) if part else "" for part in apart]
        return self._reshaped((turned[0], turned[1]), (-1, length))
