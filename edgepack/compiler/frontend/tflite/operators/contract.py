"""What a converter of an operator is, and how it says that it cannot."""

from __future__ import annotations

from collections.abc import Callable

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.model import Operator, Tensor

__all__ = ["Converter", "UnsupportedFormError", "is_quantised", "option", "same_quantisation"]

#: Writes the nodes of an operator, and says what its results are (:meth:`Emitter.result`).
Converter = Callable[[Emitter, Operator], None]


class UnsupportedFormError(ValueError):
    """A form of an operator that is not converted; the text says which."""


def option(operator: Operator, name: str, default: int = 0) -> int:
    """A whole number among the operator's options."""
    value = operator.options.get(name)
    return default if value is None else int(value)


def is_quantised(tensor: Tensor) -> bool:
    """Whether a tensor holds integers that mean floats."""
    return tensor.quantisation is not None and tensor.dtype in {"int8", "uint8", "int16"}


def same_quantisation(a: Tensor, b: Tensor) -> bool:
    """Whether integers of both mean the same."""
    if a.dtype != b.dtype:
        return False
    if a.quantisation is None or b.quantisation is None:
        return a.quantisation is b.quantisation
    return (
        a.quantisation.single
        and b.quantisation.single
        and float(a.quantisation.scale[0]) == float(b.quantisation.scale[0])
        and int(a.quantisation.zero[0]) == int(b.quantisation.zero[0])
    )
