"""What the operators of lists and optional values are, where the lists are known.

A rule gives the list or the optional value that its node makes; or it writes nodes that compute the tensor
which the node gives, and returns None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import attributes
from edgepack.compiler.frontend.onnx.sequences.context import AGAIN, UnknownListError
from edgepack.compiler.frontend.onnx.sequences.joining import joined
from edgepack.compiler.frontend.onnx.sequences.positions import chosen, erased_by_choice, inserted_by_choice
from edgepack.compiler.frontend.onnx.sequences.scope import Scope
from edgepack.compiler.frontend.onnx.sequences.values import (
    Optional,
    Part,
    Partition,
    Tensors,
    Value,
)

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["RULES", "Rule"]

#: Gives the value that a node makes; None where it makes a tensor, which is written.
Rule = Callable[[Scope, "onnx.NodeProto"], Value | None]


def _construct(scope: Scope, node: onnx.NodeProto) -> Value:
    elements = tuple(str(name) for name in node.input)
    return Tensors(elements, next(filter(None, map(scope.dtype, elements)), 0))


def _empty(scope: Scope, node: onnx.NodeProto) -> Value:
    import onnx

    return Tensors((), int(attributes(node).get("dtype", onnx.TensorProto.FLOAT)))


def _split_to_sequence(scope: Scope, node: onnx.NodeProto) -> Value:
    values, source = attributes(node), str(node.input[0])
    shape = scope.shape(source)
    if shape is None:
        raise UnknownListError(f"the rank of {source!r}, which it takes apart, is not known")
    axis = int(values.get("axis", 0))
    if not -len(shape) <= axis < len(shape):
        raise UnknownListError(f"{source!r} has no axis {axis}: its rank is {len(shape)}", AGAIN)
    axis %= len(shape)
    extent = shape[axis]
    given = str(node.input[1]) if len(node.input) > 1 else ""
    if extent is None:
        raise UnknownListError(f"the size of {source!r} along the axis that it takes apart is not known")
    sizes = _sizes(scope, given, extent)
    keep = bool(given) or bool(values.get("keepdims", 1))
    of = Partition(source, axis, sizes, keep)
    return Tensors(tuple(Part(of, index) for index in range(len(sizes))), scope.dtype(source))


def _sizes(scope: Scope, given: str, extent: int) -> tuple[int, ...]:
    """Those of the parts of an extent: 1 each, or what an input says, of which the last part is the rest of a
    single number."""
    if not given:
        return (1,) * _bounded(scope, extent)
    split = scope.constant(given)
    if split is None:
        why = f"into which sizes it takes its input apart, {given!r}, is known at run time only"
        raise UnknownListError(why, scope.pinned(given, 1))
    if split.ndim == 0:
        size = int(split)
        if size <= 0:
            raise UnknownListError(f"its parts have {size} elements along the axis", AGAIN)
        count = _bounded(scope, -(-extent // size))
        return tuple(min(size, extent - size * index) for index in range(count))
    sizes = tuple(int(size) for size in split.reshape(-1))
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        raise UnknownListError(f"its parts, {list(sizes)}, are not all of an axis of {extent}", AGAIN)
    return sizes


def _bounded(scope: Scope, count: int) -> int:
    if count > scope.context.most:
        why = f"its list would have {count} tensors; {scope.context.most} are allowed"
        raise UnknownListError(why, "If that is meant, give --max-nodes.")
    return count


def _insert(scope: Scope, node: onnx.NodeProto) -> Value | None:
    source, tensor = str(node.input[0]), str(node.input[1])
    given = scope.value(source)
    number = _position(scope, node, 2)
    if isinstance(given, Tensors) and given.is_open and (number is None or int(number) == 0):
        one = (tensor,)  # what a loop carries: before or behind all that it has
        return replace(given, elements=(*given.elements, *one) if number is None else (*one, *given.elements))
    known = scope.tensors(source)
    dtype = known.dtype or scope.dtype(tensor)
    if number is None and _has_position(node, 2):
        made = inserted_by_choice(scope, known, tensor, str(node.input[2]))
        return _settled(scope, node, replace(made, dtype=dtype))
    count = len(known.elements)
    place = count if number is None else _in_range(int(number), count, count)
    return Tensors((*known.elements[:place], tensor, *known.elements[place:]), dtype)


def _erase(scope: Scope, node: onnx.NodeProto) -> Value | None:
    known = scope.tensors(node.input[0])
    number = _position(scope, node, 1)
    if number is None and _has_position(node, 1):
        return _settled(scope, node, erased_by_choice(scope, known, str(node.input[1])))
    place = _in_range(-1 if number is None else int(number), len(known.elements), len(known.elements) - 1)
    return replace(known, elements=(*known.elements[:place], *known.elements[place + 1 :]))


def _settled(scope: Scope, node: onnx.NodeProto, value: Tensors) -> Tensors:
    """A list that the node makes as a run chooses: it takes apart the tensor that was written for it."""
    import onnx

    first = value.elements[0] if value.elements else None
    del node.attribute[:]
    if isinstance(first, Part):
        node.op_type, node.input[:] = "SplitToSequence", [first.of.source]
        node.attribute.append(onnx.helper.make_attribute("keepdims", 0))
    else:
        node.op_type, node.input[:] = "SequenceEmpty", []
        node.attribute.append(onnx.helper.make_attribute("dtype", value.dtype or onnx.TensorProto.FLOAT))
    return value


def _at(scope: Scope, node: onnx.NodeProto) -> None:
    known = scope.tensors(node.input[0])
    number = _position(scope, node, 1)
    if number is None:
        chosen(scope, known, str(node.input[1]), str(node.output[0]))
        return
    place = _in_range(int(number), len(known.elements), len(known.elements) - 1)
    scope.op("Identity", scope.tensor(known.elements[place]), result=node.output[0])


def _length(scope: Scope, node: onnx.NodeProto) -> None:
    import numpy as np

    _constant(scope, node, np.asarray(len(scope.tensors(node.input[0]).elements), np.int64))


def _concat(scope: Scope, node: onnx.NodeProto) -> None:
    known, values = scope.tensors(node.input[0]), attributes(node)
    joined(
        scope, known.elements, int(values["axis"]), new=bool(values.get("new_axis", 0)), result=node.output[0]
    )


def _identity(scope: Scope, node: onnx.NodeProto) -> Value | None:
    value = scope.value(node.input[0])
    if value is None:
        scope.keep(node)
    return value


def _optional(scope: Scope, node: onnx.NodeProto) -> Value:
    if not node.input or not node.input[0]:
        return Optional(None)
    name = str(node.input[0])
    value = scope.value(name)
    if isinstance(value, Optional):
        raise UnknownListError(f"{name!r} is an optional value itself")
    if value is None and not _is_tensor(scope, name):
        raise UnknownListError(f"what {name!r} is, is not known")
    if value is not None and value.is_open:
        raise UnknownListError(f"which tensors the list {name!r} has is not known")
    return Optional(name if value is None else value)


def _has_element(scope: Scope, node: onnx.NodeProto) -> None:
    import numpy as np

    name = str(node.input[0]) if node.input else ""
    value = scope.value(name) if name else Optional(None)
    if value is None and not _is_tensor(scope, name) and not scope.is_list(name):
        raise UnknownListError(f"whether {name!r} has a value is known at run time only")
    present = not isinstance(value, Optional) or value.content is not None
    _constant(scope, node, np.asarray(present))


def _get_element(scope: Scope, node: onnx.NodeProto) -> Value | None:
    name = str(node.input[0])
    value = scope.value(name)
    if scope.is_list(name):
        node.op_type = "Identity"  # a list itself, which the operator takes since opset 18 only
    if value is None and not _is_tensor(scope, name):
        raise UnknownListError(f"what the optional value {name!r} has is known at run time only")
    content = value.content if isinstance(value, Optional) else value or name
    if content is None:
        raise UnknownListError(f"the optional value {name!r} has none", AGAIN)
    if isinstance(content, Tensors):
        return content
    scope.op("Identity", content, result=node.output[0])
    return None


def _is_tensor(scope: Scope, name: str) -> bool:
    declared = scope.declared(name)
    if declared is None:
        return scope.constant(name) is not None
    return bool(declared.type.WhichOneof("value") == "tensor_type")


def _constant(scope: Scope, node: onnx.NodeProto, array: NDArray[Any]) -> None:
    from onnx import numpy_helper

    scope.op("Constant", result=node.output[0], value=numpy_helper.from_array(array))


def _has_position(node: onnx.NodeProto, place: int) -> bool:
    return len(node.input) > place and bool(node.input[place])


def _position(scope: Scope, node: onnx.NodeProto, place: int) -> int | None:
    """The number that an input is; None where it is left out, or no constant."""
    array = scope.constant(node.input[place]) if _has_position(node, place) else None
    return None if array is None else int(array.reshape(-1)[0])


def _in_range(number: int, count: int, most: int) -> int:
    """A position from 0 on, of one that may count from the end of so many tensors."""
    place = number + count if number < 0 else number
    if not 0 <= place <= most:
        raise UnknownListError(f"position {number} is outside of its list of {count} tensors", AGAIN)
    return place


#: By operator of the standard domain.
RULES: dict[str, Rule] = {
    "ConcatFromSequence": _concat,
    "Identity": _identity,
    "Optional": _optional,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _empty,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SplitToSequence": _split_to_sequence,
}
