"""Whether a file is an ONNX model, seen from the numbers of the fields at its top: nothing is decoded."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

__all__ = ["IR_VERSION_TAG", "recognises"]

#: First byte of every ONNX file that known exporters write: field 1 (ir_version), wire type varint.
IR_VERSION_TAG = 0x08

#: The graph, and all fields of a ``ModelProto`` (onnx.proto): its numbers and their wire types.
_GRAPH = 7
_VARINT, _BYTES = 0, 2
_FIELDS = {1: _VARINT, 5: _VARINT, **dict.fromkeys((2, 3, 4, 6, _GRAPH, 8, 14, 20, 25, 26), _BYTES)}


def recognises(model: Path) -> bool:
    """Whether the file begins as exporters begin an ONNX file, or consists of a model's fields, in any order,
    with a graph among them."""
    try:
        with model.open("rb") as stream:
            head = stream.read(2)
            if len(head) > 1 and head[0] == IR_VERSION_TAG and 0 < head[1] < 64:
                return True
            return _GRAPH in _fields(stream, model.stat().st_size)
    except (OSError, ValueError):
        return False


def _fields(stream: BinaryIO, size: int) -> set[int]:
    """The numbers of the fields of a file. Raises ValueError where one is none of a model's."""
    found = set()
    stream.seek(0)
    while stream.tell() < size:
        tag = _varint(stream)
        if _FIELDS.get(tag >> 3) != tag & 7:
            raise ValueError(f"field {tag >> 3}")
        found.add(tag >> 3)
        value = _varint(stream)
        if tag & 7 == _BYTES and stream.seek(value, 1) > size:
            raise ValueError("it breaks off")
    return found


def _varint(stream: BinaryIO) -> int:
    value = 0
    for shift in range(0, 64, 7):
        byte = stream.read(1)
        if not byte:
            break
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise ValueError("no number")
