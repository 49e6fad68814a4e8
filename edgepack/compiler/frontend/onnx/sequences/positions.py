"""Positions in lists that a run chooses, where all tensors of the list have one shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.sequences.context import AGAIN, UnknownListError
from edgepack.compiler.frontend.onnx.sequences.joining import in_order, joined
from edgepack.compiler.frontend.onnx.sequences.scope import Scope
from edgepack.compiler.frontend.onnx.sequences.values import Element, Part, Partition, Run, Tensors, run_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["chosen", "erased_by_choice", "inserted_by_choice"]


def chosen(scope: Scope, known: Tensors, position: str, result: str) -> None:
    """Writes the element at a position."""
    run = run_of(known.elements) if scope.context.choose != "nothing" else None
    if run is not None and _from_the_whole(scope, run, position, result):
        return
    stack = _stacked(scope, known.elements, "which of its tensors it takes", position)
    scope.op("Gather", stack, _scalar(scope, position), axis=0, result=result)


def inserted_by_choice(scope: Scope, known: Tensors, tensor: str, position: str) -> Tensors:
    """The list with a tensor before the one at a position."""
    count = len(known.elements)
    what = "where in its list it inserts a tensor"
    stack = _stacked(scope, [*known.elements, tensor], what, position)
    place = _from_the_start(scope, position, count)
    numbers = _numbers(range(count + 1))
    behind = scope.op(
        "Where", *_compared(scope, "Less", numbers, place), *_consts(scope, numbers, numbers - 1)
    )
    here = _compared(scope, "Equal", numbers, place)
    order = scope.op("Where", *here, *_consts(scope, _numbers([count] * (count + 1))), behind)
    return replace(known, elements=_parts(scope.op("Gather", stack, order, axis=0), count + 1))


def erased_by_choice(scope: Scope, known: Tensors, position: str) -> Tensors:
    """The list without the tensor at a position."""
    count = len(known.elements)
    stack = _stacked(scope, known.elements, "which tensor of its list it erases", position)
    if count == 1:
        return replace(known, elements=())
    place, numbers = _from_the_start(scope, position, count), _numbers(range(count - 1))
    order = scope.op(
        "Where", *_compared(scope, "Less", numbers, place), *_consts(scope, numbers, numbers + 1)
    )
    return replace(known, elements=_parts(scope.op("Gather", stack, order, axis=0), count - 1))


def _from_the_whole(scope: Scope, run: Run, position: str, result: str) -> bool:
    """Whether one of neighbouring parts is gathered from the tensor that they are parts of; then that is
    written."""
    of, size = run.of, run.size
    if not of.keep:
        scope.op("Gather", in_order(scope, run), _scalar(scope, position), axis=of.axis, result=result)
        return True
    shape = scope.static(of.source)
    if not size or (size > 1 and (shape is None or 0 in shape)):
        return False
    name = in_order(scope, run)
    if size == 1:
        place = scope.op("Reshape", position, scope.numbers(1))
        scope.op("Gather", name, place, axis=of.axis, result=result)
        return True
    assert shape is not None
    apart = [*shape[: of.axis], run.count, size, *shape[of.axis + 1 :]]
    name = scope.op("Reshape", name, scope.numbers(*apart))
    scope.op("Gather", name, _scalar(scope, position), axis=of.axis, result=result)
    return True


def _stacked(scope: Scope, elements: Sequence[Element], what: str, position: str) -> str:
    """The name of all elements along a new first axis."""
    shapes = {scope.static(one) for one in elements}
    why = f"{what} ({position!r}) is known at run time only"
    if not elements:
        raise UnknownListError(f"{what} is known at run time only, and it has none", AGAIN)
    if len(shapes) > 1 and None not in shapes:
        listed = " and ".join(str(list(shape or ())) for shape in sorted(shapes, key=str)[:2])
        raise UnknownListError(f"{why}, and they differ in shape: {listed}", scope.pinned(position))
    if shapes == {None} or len(shapes) > 1:
        raise UnknownListError(f"{why}, and the shape of its tensors is not known", scope.pinned(position))
    if scope.context.choose != "all":
        raise UnknownListError(why, scope.pinned(position))
    result = scope.fresh_like([scope.tensor(elements[0])], "stacked")
    joined(scope, elements, 0, new=True, result=result)
    return result


def _parts(source: str, count: int) -> tuple[Part, ...]:
    of = Partition(source, 0, (1,) * count, keep=False)
    return tuple(Part(of, index) for index in range(count))


def _scalar(scope: Scope, position: str) -> str:
    """A position of rank 0."""
    if scope.shape(position) == ():
        return position
    return scope.op("Reshape", position, scope.numbers())


def _from_the_start(scope: Scope, position: str, count: int) -> str:
    """A position, int64 of rank 0, that counts from the start of so many tensors."""
    import onnx

    wide = scope.op("Cast", _scalar(scope, position), to=onnx.TensorProto.INT64)
    zero, length = _consts(scope, _numbers(0), _numbers(count))
    return scope.op("Where", scope.op("Less", wide, zero), scope.op("Add", wide, length), wide)


def _compared(scope: Scope, op_type: str, numbers: NDArray[Any], place: str) -> tuple[str]:
    return (scope.op(op_type, scope.const(numbers), place),)


def _consts(scope: Scope, *arrays: NDArray[Any]) -> list[str]:
    return [scope.const(array) for array in arrays]


def _numbers(values: Any) -> NDArray[Any]:
    import numpy as np

    return np.asarray(list(values) if isinstance(values, range) else values, np.int64)
