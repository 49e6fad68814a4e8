"""One node that reads tensors with padding, or sizes that are known at run time only: what the rules are
written with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.growing.extents import Dim, Extent
from edgepack.compiler.frontend.onnx.growing.scope import Scope
from edgepack.compiler.frontend.onnx.growing.values import UnknownError, Value, unknown
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes

if TYPE_CHECKING:
    import onnx

__all__ = ["Node"]


class Node:
    """A node of the model that a rule writes anew.

    Attributes:
        op: its operator.
        about: its attributes.
        given: what it reads; one without a name where an input is left out.
    """

    def __init__(self, scope: Scope, node: onnx.NodeProto) -> None:
        self.scope, self.node = scope, node
        self.op = str(node.op_type)
        self.about = attributes(node)
        self.given = [scope.value(name) if name else Value("") for name in node.input]

    def __getitem__(self, number: int) -> Value:
        """What it reads as an input; one without a name if that is left out."""
        return self.given[number] if number < len(self.given) else Value("")

    def dims(self, number: int) -> tuple[Dim, ...]:
        """The sizes of an input."""
        dims = self[number].dims
        if dims is None:
            raise UnknownError(unknown(self.node.input[number], self[number]))
        return dims

    def axis(self, default: int = 0, number: int = 0) -> int:
        """Its axis, of an input, counted from the first one."""
        return int(self.about.get("axis", default)) % max(1, len(self.dims(number)))

    def whole(self, number: int, default: Sequence[int] | None = None) -> list[int] | None:
        """The whole numbers that an input must be; the default if it is left out."""
        value = self[number]
        if not value.name:
            return None if default is None else list(default)
        known = [n for n in value.numbers or () if isinstance(n, int)]
        if value.numbers is None or len(known) < len(value.numbers):
            raise UnknownError(f"its input {self.node.input[number]!r} is known at run time only")
        return known

    def sizes(self, number: int) -> list[Dim]:
        """The numbers that an input must be, of which some may be sizes that are known at run time only."""
        numbers = self[number].numbers
        known = [n for n in numbers or () if n is not None]
        if numbers is None or len(known) < len(numbers):
            raise UnknownError(f"its input {self.node.input[number]!r} is known at run time only")
        return known

    def axes(self, default: Sequence[int] | None = None) -> list[int]:
        """Axes, as an attribute or as the second input, counted from the first one."""
        rank = len(self.dims(0))
        given = self.about["axes"] if "axes" in self.about else self.whole(1)
        if given is None:
            given = range(rank) if default is None else default
        return [int(axis) % rank for axis in given]

    def plain(self, *numbers: int) -> None:
        """Refuses padding in these inputs."""
        for number in numbers:
            if self[number].padded:
                raise UnknownError(f"the size of {self.node.input[number]!r} changes with each trip")

    def same(self, dims: Sequence[Dim]) -> Dim:
        """The size of an axis of tensors that are combined element by element."""
        wide = {dim for dim in dims if dim != 1}
        if len(wide) > 1:
            texts = " and ".join(map(text_of, sorted(wide, key=str)))
            raise UnknownError(f"it joins sizes of which it is not known that they are the same: {texts}")
        return next(iter(wide), 1)

    def copied(self, given: Sequence[Value] | None = None) -> list[Value]:
        """Writes the node; its results, of static sizes.

        Args:
            given: what it reads, if that was changed.
        """
        copy = type(self.node)()
        copy.CopyFrom(self.node)
        values = self.given if given is None else list(given)
        copy.input[:] = [value.name for value in values]
        made = self.scope.write(copy, [value for value in values if value.name])
        if any(value.dims is None for value in made if value.name):
            raise UnknownError("the shape of its result is not known")
        return made

    def written(
        self,
        dims: Sequence[Dim],
        given: Sequence[Value] | None = None,
        zero: frozenset[int] | set[int] = frozenset(),
    ) -> list[Value]:
        """Writes the node; its results, of these sizes, and axes along which their padding is 0."""
        return [self.described(value, dims, zero) for value in self.copied(given)]

    def described(
        self, value: Value, dims: Sequence[Dim], zero: frozenset[int] | set[int] = frozenset()
    ) -> Value:
        """A value that was written, with the sizes that it has of which some are known at run time only."""
        if value.name and value.dims is None:
            raise UnknownError("the shape of its result is not known")
        if value.name and list(value.dims or ()) != [self.scope.size(dim) for dim in dims]:
            raise UnknownError("the sizes of its result are not those that they seem")
        return replace(value, dims=tuple(dims), zero=frozenset(zero))


def text_of(dim: Dim) -> str:
    """A size for messages."""
    if isinstance(dim, Extent):
        factor = dim.terms[0][1]
        grown = "grows by 1" if factor == 1 else f"changes by {factor}"
        return f"one that {grown} with each trip"
    return str(dim)
