"""Damages ``.pt2`` files: the saved program (:mod:`.saved_program`) with keys, values and bytes changed. All
of it follows from a number."""

from __future__ import annotations

import copy
import io
import json
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.saved_program import parts, write

__all__ = ["write_case"]

_PICKLED = "data/sample_inputs/model.pt"
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 64, 2**31, 2**40, 2**62, 2**63, -(2**63), 2**70, 10**400, 0.5, -1e308),
    *(
        "",
        "x",
        "self",
        "Infinity",
        "NaN",
        "__class__",
        "lambda",
        "a b",
        "a.b",
        "x=1",
        "\x00",
        "\ud800",
        "é",
        "s0",
    ),
    *(
        "u3",
        "9**9**9**9",
        "s0**2",
        "FloorDiv(s0, 0)",
        "Mod(s0, 0)",
        "1/0",
        "Max()",
        "Pow(s0, Integer(-1))",
        "oo",
    ),
    *(
        "../x",
        "weight_0",
        "weight_1",
        "tensor_0",
        "custom_obj_0",
        "[1, {}]",
        "[1]",
        "null",
        "[]",
        "cuda",
        "cpu",
    ),
    *(
        "a" * 5000,
        "(" * 3000,
        [],
        {},
        [[]],
        [None],
        {"x": 1},
        {"as_none": True},
        {"as_int": 5},
        {"as_string": "x"},
    ),
    *({"as_tensor": {"name": "x"}}, {"as_expr": {"expr_str": "s0 - 5", "hint": None}}, {"as_name": "x"}),
    {"as_graph": {"name": "g", "graph": {}}},
)
_OPERATORS = (
    *(
        "relu.default",
        "add.Tensor",
        "mm.default",
        "reshape.default",
        "cat.default",
        "index.Tensor",
        "full.default",
    ),
    *("sum.dim_IntList", "slice.Tensor", "as_strided.default", "resize_.default", "empty.memory_format"),
    *(
        "unbind.int",
        "split.Tensor",
        "nonzero.default",
        "item.default",
        "to.dtype",
        "conv2d.default",
        "einsum.default",
    ),
    *(
        "lstm.input",
        "scatter.src",
        "embedding.default",
        "arange.default",
        "repeat_interleave.self_int",
        "pad.default",
    ),
    *(
        "manual_seed.default",
        "set_.source_Tensor",
        "copy_.default",
        "random.from",
        "topk.default",
        "view.dtype",
    ),
)
_KEYS = (
    "as_tensor",
    "as_int",
    "as_ints",
    "as_sym_int",
    "as_none",
    "as_string",
    "as_float",
    "as_bool",
    "as_name",
)


def write_case(case: int, folder: Path) -> Path:
    """The file of a case."""
    draw = random.Random(case)
    entries = parts()
    path = folder / "net.pt2"
    kind = draw.random()
    if kind < 0.8:
        where = draw.choices([name for name in entries if name.endswith(".json")], [4, 4, 40, 1])[0]
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            _change_table(entries, where, draw)
    elif kind < 0.9:
        entries[_PICKLED] = _changed_archive(entries[_PICKLED], draw)
    write(path, {name: _as_bytes(value) for name, value in entries.items()})
    if kind >= 0.9:
        path.write_bytes(_changed_bytes(path.read_bytes(), draw))
    return path


def _as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode("utf-8")


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container of a table, with each of its keys."""
    todo = [value]
    while todo:
        one = todo.pop()
        for key in list(one) if isinstance(one, dict) else range(len(one)):
            yield one, key
            if isinstance(one[key], dict | list):
                todo.append(one[key])


def _change_table(entries: dict[str, Any], where: str, draw: random.Random) -> None:
    """Change one place of a table."""
    whole = {"": entries[where]}
    places = list(_places(whole))
    holder, key = draw.choice(places)
    value = holder[key]
    kind = draw.randrange(8)
    if key == "target" and kind < 5:
        holder[key] = f"torch.ops.aten.{draw.choice(_OPERATORS)}"
    elif key in ("in_spec", "out_spec") and kind < 5:
        spec = {"": json.loads(value)}
        _change_table(spec, "", draw)
        holder[key] = json.dumps(spec[""])
    elif kind == 0 and isinstance(holder, dict) and key:
        holder[draw.choice((*_KEYS, f"{key}x", ""))] = holder.pop(key)
    elif kind == 1 and key != "":
        del holder[key]
    elif kind == 2 and isinstance(holder, list):
        holder.insert(draw.randrange(len(holder) + 1), value)
    elif kind == 3 and isinstance(value, int):
        holder[key] = value + draw.choice((-1, 1, 2, 100))
    elif kind in (3, 4):
        other, theirs = draw.choice(places[1:] or places)
        holder[key], other[theirs] = other[theirs], value
    else:
        holder[key] = copy.deepcopy(draw.choice(_VALUES))
    entries[where] = whole[""]


def _changed_bytes(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 2, 8))):
        at = draw.choice((draw.randrange(len(changed)), -1 - draw.randrange(min(2000, len(changed)))))
        kind = draw.randrange(4)
        if kind == 0:
            changed[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            changed[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            del changed[at : at + draw.choice((1, 4, 100)) or None]
        else:
            changed[at:at] = bytes(draw.randrange(256) for _ in range(draw.choice((1, 4, 30))))
        if not changed:
            break
    return bytes(changed)


def _changed_archive(data: bytes, draw: random.Random) -> bytes:
    """Example inputs of which a file, or a byte of the archive, is changed."""
    if draw.random() < 0.3:
        return _changed_bytes(data, draw)
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            read = old.read(name)
            new.writestr(name, _changed_bytes(read, draw) if name.endswith("data.pkl") and read else read)
    return made.getvalue()
