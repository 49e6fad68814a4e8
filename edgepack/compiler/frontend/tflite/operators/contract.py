"""What a converter of an operator is, and how it says that it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.model import Operator, Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Converter",
    "UnsupportedFormError",
    "axis_of",
    "check_scaled",
    "constant",
    "is_quantised",
    "moved",
    "option",
    "same_quantisation",
]

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


def check_scaled(*tensors: Tensor, words: bool = False) -> None:
    """Refuses bytes that are not quantised: LiteRT's kernels take them for numbers with a scale, and end the
    process where there is none.

    Args:
        words: integers of 16 bits too.

    Raises:
        UnsupportedFormError: there are such.
    """
    for tensor in tensors:
        if tensor.quantisation is None and tensor.dtype in {"int8", "uint8", *(["int16"] if words else [])}:
            raise UnsupportedFormError(f"operands of {tensor.dtype} that have no scale")


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


def constant(emitter: Emitter, operator: Operator, place: int) -> NDArray[Any]:
    """The numbers of an operand that has to be a constant.

    Raises:
        UnsupportedFormError: it is computed.
    """
    known = emitter.known(emitter.value(operator.inputs[place]))
    if known is None:
        raise UnsupportedFormError(f"operand {place} that is computed")
    return known


def axis_of(axis: int, rank: int) -> int:
    """A dimension, counted from the first one.

    Raises:
        UnsupportedFormError: there is none.
    """
    if not -rank <= axis < rank:
        raise UnsupportedFormError(f"axis {axis} of {rank} dimensions")
    return axis % rank


def moved(emitter: Emitter, operator: Operator, made: str, source: int = 0, result: int = 0) -> None:
    """A result with elements of an operand, which mean the same.

    Args:
        source, result: places among the operator's inputs and outputs.

    Raises:
        UnsupportedFormError: their scales differ.
    """
    index = operator.outputs[result]
    if not same_quantisation(emitter.tensors[operator.inputs[source]], emitter.tensors[index]):
        raise UnsupportedFormError("another scale behind it than before")
    emitter.result(index, made)
