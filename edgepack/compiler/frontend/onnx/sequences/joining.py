"""What ConcatFromSequence and a choice among all elements need: a list as one tensor."""

from __future__ import annotations

from collections.abc import Sequence

from edgepack.compiler.frontend.onnx.sequences.context import AGAIN, UnknownListError
from edgepack.compiler.frontend.onnx.sequences.scope import Scope
from edgepack.compiler.frontend.onnx.sequences.values import Element, Part, Partition, Run, run_of

__all__ = ["in_order", "joined"]

#: Operands of a Concat: more are joined in steps.
MOST_OPERANDS = 256


def joined(scope: Scope, elements: Sequence[Element], axis: int, *, new: bool, result: str) -> None:
    """Writes the tensor that the elements are when they are joined along an axis, or along a new one."""
    if not elements:
        raise UnknownListError("it joins a list without tensors", AGAIN)
    if (run := run_of(elements)) is not None and _as_a_whole(scope, run, axis, new=new, result=result):
        return
    names = [scope.tensor(one) for one in elements] if new else _pieces(scope, elements, axis)
    if new:
        names = [scope.with_axes("Unsqueeze", name, [axis]) for name in names]
    while len(names) > MOST_OPERANDS:
        groups = [names[i : i + MOST_OPERANDS] for i in range(0, len(names), MOST_OPERANDS)]
        names = [scope.op("Concat", *group, axis=axis) if len(group) > 1 else group[0] for group in groups]
    if len(names) == 1:
        scope.op("Identity", names[0], result=result)
    else:
        scope.op("Concat", *names, axis=axis, result=result)


def _pieces(scope: Scope, elements: Sequence[Element], axis: int) -> list[str]:
    """Names of the elements; parts of a tensor that are neighbours along the axis are one piece."""
    names, start = list[str](), 0
    while start < len(elements):
        first, end = elements[start], start + 1
        if isinstance(first, Part) and first.of.keep and _is_axis(scope, first.of, axis):
            while end < len(elements) and elements[end] == Part(first.of, first.index + end - start):
                end += 1
        run = run_of(elements[start:end]) if end > start + 1 else None
        names.append(scope.tensor(first) if run is None else in_order(scope, run))
        start = end
    return names


def _is_axis(scope: Scope, of: Partition, axis: int) -> bool:
    """Whether an axis of the parts of a tensor is the one that they are parts along."""
    shape = scope.shape(of.source)
    return shape is not None and axis % len(shape) == of.axis


def in_order(scope: Scope, run: Run) -> str:
    """The name of the tensor that neighbouring parts are together."""
    of, (start, end) = run.of, run.bounds
    if run.backwards:
        first, last = end - 1, start - 1 if start else -(2**31)
        step = -1
    elif (start, end) == (0, of.starts[-1]):
        return of.source
    else:
        first, last, step = start, end, 1
    bounds = (scope.numbers(first), scope.numbers(last), scope.numbers(of.axis), scope.numbers(step))
    return scope.op("Slice", of.source, *bounds)


def _as_a_whole(scope: Scope, run: Run, axis: int, *, new: bool, result: str) -> bool:
    """Whether neighbouring parts of a tensor are joined without being taken apart; then that is written."""
    of, shape = run.of, scope.shape(run.of.source)
    if shape is None:
        return False
    rank = len(shape)
    wanted = axis % rank if new or of.keep else axis % (rank - 1) if rank > 1 else 0
    if of.keep:
        if new or wanted != of.axis:
            return False
        scope.op("Identity", in_order(scope, run), result=result)
        return True
    perm = [index for index in range(rank) if index != of.axis]
    perm.insert(wanted, of.axis)
    if not new:
        return _merged(scope, run, perm, wanted, result)
    name = in_order(scope, run)
    if perm == list(range(rank)):
        scope.op("Identity", name, result=result)
    else:
        scope.op("Transpose", name, perm=perm, result=result)
    return True


def _merged(scope: Scope, run: Run, perm: Sequence[int], axis: int, result: str) -> bool:
    """Parts joined along an axis that they have, which lies behind the one that they were parts along when
    this was moved there: both become one."""
    shape = scope.shape(run.of.source)
    assert shape is not None
    start, end = run.bounds
    moved = [end - start if index == run.of.axis else shape[index] for index in perm]
    extents = [*moved[:axis], -1, *moved[axis + 2 :]]
    if len(moved) < 2 or any(not extent for extent in extents) or 0 in moved:
        return False  # not known, or nothing, which a Reshape takes for something else
    name = in_order(scope, run)
    if list(perm) != list(range(len(perm))):
        name = scope.op("Transpose", name, perm=list(perm))
    scope.op("Reshape", name, scope.numbers(*(extent or 0 for extent in extents)), result=result)
    return True
