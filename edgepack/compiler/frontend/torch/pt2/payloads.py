"""The tables of a ``.pt2`` file that say where the numbers of weights and constants lie in it.

PyTorch unpickles what calls itself pickled, or an object of a class (``custom_obj_0``, ``opaque_obj_0``), and
makes tensors as large as a table says (torch/export/pt2_archive/_package.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from edgepack.compiler.frontend.torch.pt2.forms import Flag, Record, RefusedError, TableOf, Text, read, shown
from edgepack.compiler.frontend.torch.pt2.names import ATTRIBUTE
from edgepack.compiler.frontend.torch.pt2.tensors import BYTES, STORED
from edgepack.plan.limits import Limits

__all__ = ["Room", "lies_within", "payloads"]

_FILE = Text(
    lambda text: text if re.fullmatch(r"(?:weight|tensor)_\d{1,7}", text, re.ASCII) else None,
    "a file of numbers",
)
_CONFIG = Record(
    {
        "config": TableOf(
            ATTRIBUTE,
            Record({"path_name": _FILE, "is_param": Flag(), "use_pickle": Flag(), "tensor_meta": STORED}),
        )
    }
)


class Room:
    """How many bytes the tensors of a file may have together: a stride of 0 makes many of few.

    Args:
        nbytes: of the file.
    """

    def __init__(self, nbytes: int) -> None:
        self.limit = Limits().constants(nbytes)
        self.taken = 0

    def take(self, nbytes: int) -> None:
        """Count a tensor. Raises RefusedError where there is no room."""
        self.taken += nbytes
        if self.taken > self.limit:
            raise RefusedError(f"makes more than {self.limit} bytes of tensors, which are not in the file")


def lies_within(sizes: Sequence[int], strides: Sequence[int], offset: int, elements: int) -> int:
    """How many elements a view has. Raises RefusedError where it leaves the elements that there are."""
    if len(sizes) != len(strides):
        raise RefusedError(f"has {len(sizes)} sizes and {len(strides)} strides")
    count = math.prod(sizes)
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if count and last >= elements:
        raise RefusedError(f"reaches to element {last} of a file of {elements}")
    return count


def payloads(value: Any, files: Mapping[str, int], room: Room) -> dict[str, Any]:
    """A copy of a table of weights or of constants.

    Args:
        files: sizes in bytes of the files beside it, by name.
        room: is taken from.

    Raises:
        RefusedError: something is pickled, or lies outside of its file.
    """
    entries = value.get("config") if isinstance(value, dict) else None
    for name, entry in entries.items() if isinstance(entries, dict) else ():
        if isinstance(entry, dict) and entry.get("use_pickle") is not False:
            raise RefusedError(f"{shown(name)} in it is pickled")
    copy: dict[str, Any] = read(_CONFIG, value)
    types: dict[str, int] = {}
    for name, entry in copy["config"].items():
        try:
            _within(entry, files, types, room)
        except RefusedError as refused:
            refused.inside(name).inside("config")
            raise
    return copy


def _within(entry: dict[str, Any], files: Mapping[str, int], types: dict[str, int], room: Room) -> None:
    path, meta = entry["path_name"], entry["tensor_meta"]
    if path not in files:
        raise RefusedError(f"is in {path}, which is not in the archive")
    if types.setdefault(path, meta["dtype"]) != meta["dtype"]:
        raise RefusedError(f"has another type of elements than others in {path}")
    width = BYTES[meta["dtype"]]
    if files[path] % width:
        raise RefusedError(f"is in {path}, whose {files[path]} bytes are no elements of {width} bytes")
    sizes = [one["as_int"] for one in meta["sizes"]]
    strides = [one["as_int"] for one in meta["strides"]]
    offset = meta["storage_offset"]["as_int"]
    room.take(lies_within(sizes, strides, offset, files[path] // width) * width)
