"""Loop and Scan, alike: what one carries, reads and stacks, and how many trips it makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.origins import origin
from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes

if TYPE_CHECKING:
    import onnx

__all__ = ["Carried", "Loop", "Stacked", "loop_of", "scan_of"]


@dataclass(frozen=True)
class Carried:
    """What a loop carries: its name before a trip and behind it, inside; its start and its end, outside."""

    before: str
    behind: str
    start: str
    end: str


@dataclass(frozen=True)
class Stacked:
    """What a loop stacks: its name inside, and outside; along which axis, and whether from the end on."""

    part: str
    whole: str
    axis: int = 0
    backwards: bool = False


@dataclass(frozen=True)
class Loop:
    """A Loop or a Scan.

    Attributes:
        given: values of the body that are known for each trip: its number, elements of sequences.
        elements: by name inside: sequence, axis, and whether from the end on.
    """

    node: onnx.NodeProto
    body: onnx.GraphProto
    trips: int
    carried: tuple[Carried, ...]
    stacked: tuple[Stacked, ...]
    number: str = ""
    elements: tuple[tuple[str, str, int, bool], ...] = ()


def loop_of(editor: Editor, node: onnx.NodeProto) -> Loop | None:
    """A Loop of which the number of trips is known."""
    body: onnx.GraphProto = attributes(node)["body"]
    given = [*map(str, node.input), "", ""]
    count = editor.constant(given[0]) if given[0] else None
    goes_on = _constant_truth(editor, given[1]) if given[1] else True
    if count is None or not goes_on or not _goes_on(editor, body):
        return None
    trips, number = int(count.reshape(-1)[0]), len(body.input) - 2
    ends = [*map(str, node.output), *[""] * len(body.output)]
    carried = zip(body.input[2:], body.output[1:], node.input[2:], ends, strict=False)
    return Loop(
        node,
        body,
        trips,
        tuple(Carried(before.name, behind.name, start, end) for before, behind, start, end in carried),
        tuple(
            Stacked(part.name, whole)
            for part, whole in zip(body.output[1 + number :], ends[number:], strict=False)
        ),
        number=body.input[0].name,
    )


def _goes_on(editor: Editor, body: onnx.GraphProto) -> bool:
    """Whether the body's condition is the one before, or always true."""
    from onnx import numpy_helper

    name = origin(body, body.output[0].name)
    if name == body.input[1].name:
        return True
    inside = next((tensor for tensor in body.initializer if tensor.name == name), None)
    if inside is not None:
        return bool(numpy_helper.to_array(inside).all())
    return _constant_truth(editor, name)


def _constant_truth(editor: Editor, name: str) -> bool:
    found = editor.constant(name)
    return found is not None and bool(found.all())


def scan_of(editor: Editor, node: onnx.NodeProto) -> Loop | None:
    """A Scan whose sequences have known shapes."""
    values = attributes(node)
    body: onnx.GraphProto = values["body"]
    count = int(values["num_scan_inputs"])
    states, sequences = list(node.input[:-count]), list(node.input[-count:])
    shapes = [editor.shape(name) for name in sequences]
    if any(shape is None or not shape for shape in shapes):
        return None
    known = [shape for shape in shapes if shape is not None]
    axes = [a % len(s) for a, s in zip(values.get("scan_input_axes", [0] * count), known, strict=True)]
    backwards = values.get("scan_input_directions", [0] * count)
    lengths = {shape[axis] for shape, axis in zip(known, axes, strict=True)}
    if len(lengths) != 1:
        return None
    names = [value.name for value in body.input]
    places = zip(names[len(states) :], sequences, axes, map(bool, backwards), strict=True)
    stacked = len(body.output) - len(states)
    out_axes = values.get("scan_output_axes", [0] * stacked)
    out_backwards = values.get("scan_output_directions", [0] * stacked)
    ends = [*map(str, node.output), *[""] * len(body.output)]
    carried = zip(names, (value.name for value in body.output), states, ends, strict=False)
    return Loop(
        node,
        body,
        lengths.pop(),
        tuple(Carried(*one) for one in carried),
        tuple(
            Stacked(part.name, whole, axis, bool(back))
            for part, whole, axis, back in zip(
                body.output[len(states) :], ends[len(states) :], out_axes, out_backwards, strict=False
            )
        ),
        elements=tuple(places),
    )
