"""Numbers of entries as sizes: what a Shape of a padded tensor gives, and what makes shapes of it.

With a maximum the size is the maximum, not the number of entries, so it may decide shapes alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgepack.compiler.frontend.onnx.bounded_shapes.data_dependent import Entries
from edgepack.compiler.frontend.onnx.bounded_shapes.node import MixedError, PaddedNode

__all__ = ["of_lengths", "sizes_of"]


def sizes_of(n: PaddedNode) -> None:
    """Shape of a padded tensor."""
    axis, entries = n.graph.axes[n.node.input[0]]
    rank = len(n.shape(n.node.input[0]))
    marks: list[Entries | None] = [None] * rank
    marks[axis] = entries
    lengths_are(n, marks[n.values.get("start", 0) : n.values.get("end", rank)])


def lengths_are(n: PaddedNode, marks: Sequence[Entries | None]) -> None:
    """Makes a constant of the node, whose result holds sizes, of which some are numbers of entries."""
    if not n.graph.becomes_constant(n.node):
        raise MixedError("a size beside the number of entries is known at run time only")
    if any(mark is not None for mark in marks):
        n.graph.lengths[n.node.output[0]] = tuple(marks)


def of_lengths(n: PaddedNode) -> None:
    """A node that reads sizes, some of which are numbers of entries: what makes shapes of them."""
    lengths = n.graph.lengths
    names = [str(name) for name in n.node.input]
    marks = [lengths.get(name) for name in names]
    first = marks[0] if all(mark is None for mark in marks[1:]) else None
    if n.op in ("Identity", "Cast", "Squeeze", "Unsqueeze", "Reshape") and first is not None:
        lengths_are(n, first)
    elif n.op == "Gather" and first is not None:
        lengths_are(n, [first[int(i)] for i in n.constant(1).reshape(-1)])
    elif n.op == "Slice" and first is not None:
        bounds = [n.constant(number) for number in (1, 2, 4)]
        start, end, step = (None if b is None else int(b.reshape(-1)[0]) for b in bounds)
        lengths_are(n, first[slice(start, end, step)])
    elif n.op == "Concat":
        parts = [
            mark if mark is not None else [None] * (n.shape(name)[0])
            for name, mark in zip(names, marks, strict=True)
        ]
        lengths_are(n, [mark for part in parts for mark in part])
    else:
        sized(n, marks)


def sized(n: PaddedNode, marks: Sequence[Sequence[Entries | None] | None]) -> None:
    """A node that gives its result the number of entries as a size."""
    if n.op == "ConstantOfShape":
        sizes = marks[0]
    elif n.op in ("Expand", "Reshape") and n.node.input[0] not in n.graph.lengths:
        sizes = marks[1]
    elif n.op == "Range" and marks[0] is None and marks[2] is None:
        if (int(n.constant(0)), int(n.constant(2))) != (0, 1):
            raise MixedError("it counts the entries from another number than 0, or by another step than 1")
        sizes = marks[1]
    else:
        sizes = None
    found = [(axis, mark) for axis, mark in enumerate(sizes or ()) if mark is not None]
    if len(found) != 1:
        raise MixedError("it computes with the number of entries")
    axis, entries = found[0]
    if n.op == "Expand":
        axis += len(n.shape(n.node.output[0])) - len(sizes or ())
    if n.op == "Reshape":
        raise MixedError("the number of entries decides its shape")
    n.done(axis, entries)
