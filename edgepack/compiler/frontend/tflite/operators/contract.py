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


#: Operators that move elements, and that LiteRT refuses if the result has another scale.
_OF_ONE_SCALE = {
    "BATCH_TO_SPACE_ND", "EXPAND_DIMS", "FILL", "MIRROR_PAD", "PACK", "PAD", "PADV2", "SPACE_TO_BATCH_ND",
    "UNPACK",
}  # fmt: skip


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


def same_quantisation(a: Tensor, b: Tensor, off_by: float = 0.0) -> bool:
    """Whether integers of both mean the same; their scales may be off by as much."""
    if a.dtype != b.dtype:
        return False
    if a.quantisation is None or b.quantisation is None:
        return a.quantisation is b.quantisation
    return (
        a.quantisation.single
        and b.quantisation.single
        and abs(float(a.quantisation.scale[0]) - float(b.quantisation.scale[0])) <= off_by
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
    """A result with elements of an operand, as they are: where a file says another scale behind most such
    operators, LiteRT's kernels do not look at it.

    Args:
        source, result: places among the operator's inputs and outputs.

    Raises:
        UnsupportedFormError: their types differ, or their scales where the kernel wants one.
    """
    index = operator.outputs[result]
    given, wanted = emitter.tensors[operator.inputs[source]], emitter.tensors[index]
    if given.dtype != wanted.dtype or (
        operator.kind in _OF_ONE_SCALE and not same_quantisation(given, wanted)
    ):
        raise UnsupportedFormError("another scale behind it than before")
    emitter.result(index, made)
