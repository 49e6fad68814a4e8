"""What is known of a list of tensors, and of an optional value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import onnx

__all__ = [
    "LIST_TYPES",
    "MAKERS",
    "Element",
    "Optional",
    "Part",
    "Partition",
    "Rest",
    "Run",
    "Tensors",
    "Value",
    "element_type",
    "run_of",
    "same_form",
]

#: Operators that give lists.
MAKERS = ("SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SplitToSequence")

#: What ONNX calls the types of lists and optional values in a declaration.
LIST_TYPES = ("sequence_type", "optional_type")


@dataclass(frozen=True, eq=False)
class Partition:
    """A tensor that is taken apart along an axis. Each is itself alone: comparing sizes takes long.

    Attributes:
        source: name of the tensor.
        axis: from 0 on.
        sizes: of the parts along the axis, in order.
        keep: whether parts have the axis; parts of size 1 only may lack it.
    """

    source: str
    axis: int
    sizes: tuple[int, ...]
    keep: bool

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where the parts begin along the axis, and where the last one ends."""
        return tuple(accumulate(self.sizes, initial=0))


@dataclass(frozen=True)
class Part:
    """One part of a tensor, which is not computed before somebody reads it."""

    of: Partition
    index: int


@dataclass(frozen=True)
class Rest:
    """What a list that a loop carries has before a trip, in the body of the loop: any number of tensors."""

    name: str


#: A tensor of a list: its name, or what it is a part of.
Element: TypeAlias = str | Part | Rest


@dataclass(frozen=True)
class Tensors:
    """A list.

    Attributes:
        elements: in order.
        dtype: ONNX's number of the element type of its tensors; 0 where nothing says it.
    """

    elements: tuple[Element, ...]
    dtype: int = 0

    @property
    def is_open(self) -> bool:
        """Whether it is not known how many tensors it has."""
        return any(isinstance(one, Rest) for one in self.elements)


@dataclass(frozen=True)
class Optional:
    """An optional value: a tensor by its name, a list, or None where it has none."""

    content: str | Tensors | None


Value: TypeAlias = Tensors | Optional


def same_form(one: Value | None, other: Value | None) -> bool:
    """Whether two values consist of as many tensors in the same way, so that one can stand for the other."""
    if isinstance(one, Optional) and isinstance(other, Optional):
        if isinstance(one.content, str) or isinstance(other.content, str):
            return isinstance(one.content, str) and isinstance(other.content, str)
        both_absent = one.content is None and other.content is None
        return both_absent or same_form(one.content, other.content)
    if isinstance(one, Tensors) and isinstance(other, Tensors):
        return not one.is_open and not other.is_open and len(one.elements) == len(other.elements)
    return False


@dataclass(frozen=True)
class Run:
    """Neighbouring parts of one tensor.

    Attributes:
        first: index of the first of them in the tensor's partition.
        count: how many there are.
        backwards: whether they are in the opposite order.
    """

    of: Partition
    first: int
    count: int
    backwards: bool

    @property
    def size(self) -> int | None:
        """That of each of them along the axis; None where they differ."""
        sizes = set(self.of.sizes[self.first : self.first + self.count])
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def is_all(self) -> bool:
        """Whether they are all parts of the tensor, in its order."""
        return self.count == len(self.of.sizes) and not self.backwards

    @property
    def bounds(self) -> tuple[int, int]:
        """Where they begin and end along the axis."""
        return self.of.starts[self.first], self.of.starts[self.first + self.count]


def run_of(elements: Sequence[Element]) -> Run | None:
    """The elements as neighbouring parts of one tensor; None where they are not that. Parts in the opposite
    order have one element along the axis each."""
    first = elements[0] if elements else None
    if not isinstance(first, Part):
        return None
    indices = []
    for one in elements:
        if not isinstance(one, Part) or one.of is not first.of:
            return None
        indices.append(one.index)
    count = len(indices)
    if indices == list(range(first.index, first.index + count)):
        return Run(first.of, first.index, count, backwards=False)
    if indices == list(range(first.index, first.index - count, -1)):
        run = Run(first.of, indices[-1], count, backwards=True)
        return run if run.size == 1 else None
    return None


def element_type(value: onnx.ValueInfoProto) -> int:
    """ONNX's number of the element type of the tensors of a declared list or optional value."""
    kind = value.type
    while kind.WhichOneof("value") in LIST_TYPES:
        kind = getattr(kind, kind.WhichOneof("value")).elem_type
    return int(kind.tensor_type.elem_type)
