"""Replaces loops that are recurrent layers, with all else that they compute."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.recurrent_loops.formulas import Formula
from edgepack.compiler.frontend.onnx.recurrent_loops.layers import Layers
from edgepack.compiler.frontend.onnx.recurrent_loops.loops import Loop, Stacked, loop_of, scan_of
from edgepack.compiler.frontend.onnx.recurrent_loops.masked_steps import MaskedSteps
from edgepack.compiler.frontend.onnx.recurrent_loops.reading import (
    Layer,
    MaskKey,
    Piece,
    Reading,
    float_shape,
)
from edgepack.compiler.frontend.onnx.recurrent_loops.trip import Rows, Value, Written
from edgepack.compiler.frontend.onnx.rewrites.editor import Editor
from edgepack.compiler.frontend.onnx.shapes import all_nodes, inner_graphs

if TYPE_CHECKING:
    import onnx

__all__ = ["recognise_layers"]

#: Steps of the longest layer.
MOST_STEPS = 1 << 20


def recognise_layers(model: onnx.ModelProto) -> bool:
    """Replaces each Loop and Scan that is made of recurrent layers by these, in place; whether there was any.

    Args:
        model: without functions, its constants folded, and trips counted.
    """
    if not any(node.op_type in ("Loop", "Scan") and _is_standard(node) for node in model.graph.node):
        return False
    editor = Editor(model)
    if editor.opset < 11:  # a Slice has operands since 10, and there are CumSums since 11
        return False
    read = {name for node in all_nodes(model.graph) for name in node.input}
    read |= {value.name for value in model.graph.output}
    for inner in (graph for node in all_nodes(model.graph) for graph in inner_graphs(node)):
        read |= {value.name for value in inner.output}

    def rewrite(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
        loop = loop_of(editor, node) if node.op_type == "Loop" else scan_of(editor, node)
        return None if loop is None else _replaced(editor, loop, read)

    editor.run({("", "Loop"): rewrite, ("", "Scan"): rewrite})
    return editor.changed


def _is_standard(node: onnx.NodeProto) -> bool:
    return node.domain in ("", "ai.onnx")


def _replaced(editor: Editor, loop: Loop, read: set[str]) -> Sequence[str] | None:
    """The results of the loop, written out; None where it is more than layers."""
    if not 0 < loop.trips <= MOST_STEPS:
        return None
    batches = {1}
    for one in loop.carried:
        shape = float_shape(editor, one.start)
        if shape is not None and len(shape) > 1 and 0 not in shape:
            batches.add(prod(shape[:-1]))
    for batch in sorted(batches, reverse=True):
        reading = Reading(editor, loop, batch)
        if reading.found():
            names = _written(reading, read)
            if names is not None:
                return names
    return None


def _written(reading: Reading, read: set[str]) -> list[str] | None:
    """Writes the loop's results, in order; None where one that is read is more than layers compute."""
    loop, editor = reading.loop, reading.editor
    ends = [reading.end(place) for place in range(len(loop.carried))]
    parts = [reading.trip.value(one.part) for one in loop.stacked]
    if any(one.end in read and end is None for one, end in zip(loop.carried, ends, strict=True)):
        return None
    if any(one.whole in read and not _is_known(part) for one, part in zip(loop.stacked, parts, strict=True)):
        return None
    writer = Writer(reading, Layers(editor, reading.sequences, steps=loop.trips, batch=reading.batch))
    names = [
        writer.end(end, place) if one.end in read else ""
        for place, (one, end) in enumerate(zip(loop.carried, ends, strict=True))
    ]
    for stacked, part in zip(loop.stacked, parts, strict=True):
        names.append(writer.stacked(stacked, part) if stacked.whole in read else "")
    return [writer.result(name) for name in names]


def _is_known(part: Value) -> bool:
    return isinstance(part, Rows) and all(one.is_known for one in part.parts)


class Writer:
    """Writes what a loop becomes."""

    def __init__(self, reading: Reading, layers: Layers) -> None:
        self.reading, self.layers, self.editor = reading, layers, reading.editor
        self.lasts: dict[int, tuple[str, str]] = {}
        self._steps: dict[MaskKey, MaskedSteps] = {}
        for number, found in enumerate(reading.layers):
            starts = [self._start(piece) for piece in found.pieces]
            if found.mask[0]:
                self.lasts[number] = self._masked(found, starts)
                continue
            hidden, memory = [
                *(self._or_zero(piece, start) for piece, start in zip(found.pieces, starts, strict=True)),
                "",
            ][:2]
            every, *last = layers.layer(found.cell, hidden, memory)
            layers.results[found.result.number] = every
            self.lasts[number] = (last[0], last[1])

    def _masked(self, found: Layer, starts: Sequence[str]) -> tuple[str, str]:
        """Writes a layer of which a mask chooses the steps; its last states."""
        reading, layers, (key, where) = self.reading, self.layers, found.mask
        if found.mask not in self._steps:
            mask, sizes = layers.mask(reading.masks[key]), {"steps": layers.steps, "batch": layers.batch}
            self._steps[found.mask] = MaskedSteps(self.editor, mask, where=where, **sizes)
        steps, size = self._steps[found.mask], found.result.size
        every, _, memory = layers.layer(found.cell, starts[0], "".join(starts[1:]), steps)
        layers.results[found.result.number] = states = steps.behind(every, starts[0], size)
        for piece, result in found.copies:
            layers.results[result.number] = steps.behind(every, self._start(piece), size)
        last = layers.sliced(states, layers.steps - 1, layers.steps, 0)
        return last, steps.last(memory, starts[1]) if memory else ""

    def _or_zero(self, piece: Piece, start: str) -> str:
        """A state before the first step; "" for 0."""
        known = self.editor.constant(self.reading.loop.carried[piece.place].start)
        return "" if known is not None and not known.any() else start

    def _start(self, piece: Piece) -> str:
        """A state before the first step, [1, batch, size]."""
        name = self.reading.loop.carried[piece.place].start
        pieces = self.reading.pieces[piece.place]
        columns = sum(one.atom.size for one in pieces)
        batch = self.reading.batch
        whole = name
        if self.editor.shape(name) != (1, batch, columns):
            whole = self.editor.reshape(name, (1, batch, columns))
        if len(pieces) == 1:
            return whole
        return self.layers.sliced(whole, piece.start, piece.start + piece.atom.size, 2)

    def end(self, value: Any, place: int) -> str:
        """What the loop carries, behind the last trip."""
        import numpy as np

        if isinstance(value, str):
            return value
        if isinstance(value, np.ndarray):
            return self.editor.const(value)
        shape = self.editor.shape(self.reading.loop.carried[place].start)
        assert shape is not None
        if isinstance(value, Written):
            backwards = bool(value.where.numbers[0])
            return self._shaped(self._turned(self._rows(value.row), backwards), shape)
        pieces = [self._piece(one) for one in value]
        whole = self.editor.op("Concat", *pieces, axis=2) if len(pieces) > 1 else pieces[0]
        return self._shaped(whole, shape)

    def _piece(self, value: tuple[Layer, int] | Formula) -> str:
        """[1, batch, size]."""
        if isinstance(value, Formula):
            steps = self.reading.loop.trips
            return self.layers.sliced(self.layers.of(value), steps - 1, steps, 0)
        layer, index = value
        return self.lasts[self.reading.layers.index(layer)][index]

    def _rows(self, rows: Rows) -> str:
        """[steps, batch, columns]."""
        parts = [self.layers.of(part) for part in rows.parts]
        return self.editor.op("Concat", *parts, axis=2) if len(parts) > 1 else parts[0]

    def _turned(self, name: str, backwards: bool) -> str:
        return self.layers.sliced(name, -1, -(2**31), 0, -1) if backwards else name

    def stacked(self, one: Stacked, rows: Rows) -> str:
        """What the loop stacks."""
        name = self._turned(self._rows(rows), one.backwards)
        name = self._shaped(name, (self.reading.loop.trips, *rows.shape))
        rank = len(rows.shape) + 1
        axis = one.axis % rank
        if not axis:
            return name
        return self.editor.op("Transpose", name, perm=[*range(1, axis + 1), 0, *range(axis + 1, rank)])

    def result(self, name: str) -> str:
        """A result, which may be a value that is there already; of one that nobody reads, a number."""
        import numpy as np

        return self.editor.op("Identity", name or self.editor.const(np.zeros((), np.float32)))

    def _shaped(self, name: str, shape: Sequence[int]) -> str:
        return self.editor.reshape(name, shape)
