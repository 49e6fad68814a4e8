"""One node that reads padded tensors, while the graph is followed: what the rules are written with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.bounded_shapes.data_dependent import Entries
from edgepack.compiler.frontend.onnx.bounded_shapes.graph import PaddedGraph
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes

if TYPE_CHECKING:
    import onnx

__all__ = ["MixedError", "PaddedNode"]


class MixedError(Exception):
    """The node cannot be computed with padded entries; the text says why."""


class PaddedNode:
    """A node that reads padded tensors, or their lengths; its inputs may be replaced.

    Attributes:
        op: its operator.
        values: its attributes.
    """

    def __init__(self, graph: PaddedGraph, node: onnx.NodeProto) -> None:
        import onnx

        self.graph = graph
        self.node = onnx.NodeProto()
        self.node.CopyFrom(node)
        self.op = str(node.op_type)
        self.values = attributes(node)

    def padded(self, number: int) -> tuple[int, Entries] | None:
        """Axis and entries of an input; None for one without padding."""
        names = self.node.input
        return self.graph.axes.get(names[number]) if number < len(names) else None

    def only(self, *numbers: int) -> None:
        """Refuses padding in other inputs than these."""
        for number, name in enumerate(self.node.input):
            if number not in numbers and (name in self.graph.axes or name in self.graph.lengths):
                raise MixedError(f"it reads {name!r}, some entries of which are padding")

    def shape(self, name: str) -> tuple[int, ...]:
        """The tensor's shape, with the maxima in it."""
        shape = self.graph.shape(name)
        if shape is None:
            raise MixedError(f"the shape of {name!r} cannot be inferred")
        return shape

    def constant(self, number: int) -> Any:
        """An input that must be a constant, as an array; None if it is left out."""
        names = self.node.input
        if number >= len(names) or not names[number]:
            return None
        value = self.graph.constant(names[number])
        if value is None:
            raise MixedError(f"its input {names[number]!r} is known at run time only")
        return value

    def done(self, axis: int, entries: Entries, *, zero: bool = False, results: Sequence[str] = ()) -> None:
        """Keeps the node; its results are padded along the axis, with 0 if ``zero``."""
        self.graph.keep(self.node)
        for name in results or self.node.output:
            if not name:
                continue
            shape = self.shape(name)
            if not 0 <= axis < len(shape) or shape[axis] != entries.most:
                raise MixedError("the dimension of the entries would not be one of its own any more")
            self.graph.axes[name] = (axis, entries)
            if zero:
                self.graph.zero.add(name)

    @property
    def first(self) -> tuple[int, Entries]:
        """Axis and entries of the first input, which must be the only padded one."""
        self.only(0)
        if self.node.input[0] not in self.graph.axes:
            raise MixedError("it reads entries from within a graph of its own")
        return self.graph.axes[self.node.input[0]]

    def first_is_zero(self) -> bool:
        """Whether the first input's padding is 0."""
        return self.node.input[0] in self.graph.zero

    def guard(self, number: int, value: int = 0) -> None:
        """Replaces the padding of an input by a value, unless it is 0 and that is the value."""
        name = self.node.input[number]
        if name in self.graph.axes and (value or name not in self.graph.zero):
            self.node.input[number] = self.graph.replaced(name, value)
