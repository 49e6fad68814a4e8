"""The constants of a plan: which there are, in which layout, and where they lie in the params data."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from edgepack.compiler.denormals import denormals, warning_of, without_denormals
from edgepack.compiler.kernels.contract import Array
from edgepack.plan.types import Constant

__all__ = ["ConstantPool"]


class ConstantPool:
    """Constants in the layouts that kernels read, each stored once.

    Args:
        sources: the program's constants, as the model has them.
        flush: zeros take the place of denormal numbers.
        alignment: of each constant, in bytes.

    Attributes:
        constants: what is stored, in order, and ``arrays`` their content.
        nbytes: of the params data.
        growth: bytes by which constants are larger than what they were made of.
    """

    def __init__(self, sources: Sequence[Array], *, flush: bool, alignment: int) -> None:
        self._sources, self._flush, self._alignment = sources, flush, alignment
        self._denormals: dict[int, int] = {}
        self.constants: list[Constant] = []
        self.arrays: list[Array] = []
        self.nbytes = 0
        self.growth = 0
        self._by_digest: dict[tuple[str, str, tuple[int, ...]], int] = {}
        self._by_source: dict[tuple[int, str], int] = {}

    def add(self, source: int, key: str = "", transform: Callable[[Array], Array] | None = None) -> int:
        """Index of the constant that ``transform`` makes of the program's constant ``source``.

        Args:
            key: names the transformation; "" is the constant as it is.
        """
        if (source, key) not in self._by_source:
            given = self._source(source)
            array = np.ascontiguousarray(given if transform is None else transform(given))
            array = without_denormals(array) if self._flush and transform is not None else array
            digest = hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest()
            identity = (digest, str(array.dtype), array.shape)
            if identity not in self._by_digest:
                self._by_digest[identity] = len(self.constants)
                name = f"constant{len(self.constants)}"
                offset = -(-self.nbytes // self._alignment) * self._alignment
                self.constants.append(
                    Constant(name, str(array.dtype), array.shape, array.nbytes, digest, offset)
                )
                self.arrays.append(array)
                self.nbytes = offset + array.nbytes
                self.growth += max(0, array.nbytes - given.nbytes)
            self._by_source[(source, key)] = self._by_digest[identity]
        return self._by_source[(source, key)]

    def _source(self, index: int) -> Array:
        given = self._sources[index]
        if not self._flush:
            return given
        if index not in self._denormals:
            self._denormals[index] = denormals(given)
        return without_denormals(given) if self._denormals[index] else given

    def warnings(self) -> tuple[str, ...]:
        """What is said of denormal numbers among the constants that were added."""
        elements = sum(self._sources[index].size for index in self._denormals)
        text = warning_of(sum(self._denormals.values()), elements)
        return (text,) if text else ()
