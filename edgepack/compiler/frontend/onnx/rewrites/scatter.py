"""Scatters whose constant indices are a slice of one axis, as concatenations.

Exporters write them for ``x[:, 16:112] = u``. A chain of them, each of which writes into the result of the
one before, is one concatenation: nothing is copied for each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["scatter"]

SCATTERS = ("ScatterElements", "ScatterND")


@dataclass(frozen=True)
class _Place:
    """Where an update is written: elements ``begin`` to ``end - 1`` of an axis, all of every other one."""

    axis: int
    begin: int
    end: int


@dataclass(frozen=True)
class _Piece:
    """Elements ``begin`` to ``end - 1`` along the axis of the tensor ``source``, which go to ``to``."""

    source: str
    begin: int
    end: int
    to: int


def scatter(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """The last scatter of a chain is the concatenation; those before it, which nothing else reads, go."""
    place = _place_of(editor, node)
    if place is None:
        return None
    if _goes_on(editor, node, place):
        return []
    chain = [node]
    while (before := editor.producer(chain[-1].input[0])) is not None:
        found = _place_of(editor, before)
        if found is None or not _goes_on(editor, before, found):
            break
        chain.append(before)
    return [_concatenated(editor, chain[::-1], place.axis)]


def _goes_on(editor: Editor, node: onnx.NodeProto, place: _Place) -> bool:
    """Whether the result is read only by a scatter along the same axis, as what that one writes into."""
    readers = editor.readers(node.output[0])
    if len(readers) != 1 or list(readers[0].input).count(node.output[0]) != 1:
        return False
    if readers[0].input[0] != node.output[0] or _is_output(editor, node.output[0]):
        return False
    after = _place_of(editor, readers[0])
    return after is not None and after.axis == place.axis


def _is_output(editor: Editor, name: str) -> bool:
    return any(value.name == name for value in editor.model.graph.output)


def _concatenated(editor: Editor, chain: Sequence[onnx.NodeProto], axis: int) -> str:
    import numpy as np

    data = chain[0].input[0]
    shape = editor.shape(data)
    assert shape is not None
    pieces = [_Piece(data, 0, shape[axis], 0)]
    lengths = {data: shape[axis]}
    for node in chain:
        place = _place_of(editor, node)
        assert place is not None
        size = place.end - place.begin
        update = node.input[2]
        if node.op_type == "ScatterND":
            update = editor.reshape(update, [size if i == axis else n for i, n in enumerate(shape)])
        lengths[update] = size
        pieces = [*_without(pieces, place), _Piece(update, 0, size, place.begin)]
    names = []
    for piece in sorted(pieces, key=lambda p: p.to):
        name = piece.source
        if (piece.begin, piece.end) != (0, lengths[name]):
            bounds = [editor.const(np.asarray([v], np.int64)) for v in (piece.begin, piece.end, axis)]
            name = editor.op("Slice", name, *bounds)
        names.append(name)
    return names[0] if len(names) == 1 else editor.op("Concat", *names, axis=axis)


def _without(pieces: Sequence[_Piece], place: _Place) -> list[_Piece]:
    """What is left of the pieces outside of a place."""
    left = []
    for p in pieces:
        size = p.end - p.begin
        before, behind = min(size, place.begin - p.to), max(0, place.end - p.to)
        if before > 0:
            left.append(_Piece(p.source, p.begin, p.begin + before, p.to))
        if behind < size:
            left.append(_Piece(p.source, p.begin + behind, p.end, p.to + behind))
    return left


def _place_of(editor: Editor, node: onnx.NodeProto) -> _Place | None:
    """The slice that a scatter without a reduction writes; None of any other node."""
    if node.op_type not in SCATTERS or node.domain not in ("", "ai.onnx"):
        return None
    values, shape = attributes(node), editor.shape(node.input[0])
    indices = editor.constant(node.input[1])
    if shape is None or indices is None or not indices.size or values.get("reduction", "none") != "none":
        return None
    if node.op_type == "ScatterElements":
        return _slice_of_elements(indices, shape, values.get("axis", 0) % len(shape))
    return _slice_of_rows(indices, shape)


def _slice_of_elements(indices: NDArray[Any], shape: Sequence[int], axis: int) -> _Place | None:
    import numpy as np

    if any(i != axis and indices.shape[i] != n for i, n in enumerate(shape)):
        return None
    known = np.where(indices < 0, indices + shape[axis], indices)
    begin, size = int(known.flat[0]), indices.shape[axis]
    along = np.arange(begin, begin + size).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    inside = begin >= 0 and begin + size <= shape[axis]
    return _Place(axis, begin, begin + size) if inside and bool(np.all(known == along)) else None


def _slice_of_rows(indices: NDArray[Any], shape: Sequence[int]) -> _Place | None:
    """ScatterND's positions of the first axes: have to be a box in order, whole but for one axis."""
    import numpy as np

    count = indices.shape[-1]
    if not count:
        return None
    rows = indices.reshape(-1, count)
    rows = np.where(rows < 0, rows + np.asarray(shape[:count]), rows)
    begins, ends = [int(v) for v in rows[0]], [int(v) + 1 for v in rows[-1]]
    ranges = [range(b, e) for b, e in zip(begins, ends, strict=True)]
    cut = [i for i, r in enumerate(ranges) if (r.start, r.stop) != (0, shape[i])] or [0]
    if len(cut) > 1 or begins[cut[0]] < 0 or ends[cut[0]] > shape[cut[0]]:
        return None
    if int(np.prod([len(r) for r in ranges])) != len(rows):
        return None
    box = np.stack(np.meshgrid(*ranges, indexing="ij"), -1).reshape(-1, count)
    return _Place(cut[0], begins[cut[0]], ends[cut[0]]) if np.array_equal(box, rows) else None
