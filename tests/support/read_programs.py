"""``.pt2`` files as PyTorch reads them once they were looked through: a part of ``.torch_programs``."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

import edgepack
from edgepack.compiler.frontend.torch import frontend
from edgepack.compiler.frontend.torch.archive import load_program
from edgepack.compiler.frontend.torch.pt2.entries import inner_archive
from edgepack.compiler.frontend.torch.pt2.payloads import Room
from tests.support.hostile_programs import EMPTIED
from tests.support.saved_program import MODEL, SAVED, parts, write

__all__ = ["hostile", "older"]

#: Operators whose names say nothing: by their schemas they are none that compute something.
_OPERATORS = (
    *("torch.ops.aten.manual_seed.default", "torch.ops.aten.set_.source_Storage", "torch.ops.aten.add.op"),
    *(
        "torch.ops.prim.RaiseException.default",
        "torch.ops.aten.format.default",
        "torch.ops.aten.dequantize.any",
    ),
    *("torch.ops.aten.warn.default", "torch.ops.aten.add.str"),
)


def hostile(folder: Path) -> dict[str, Any]:
    """A program with what PyTorch would execute, exported all the same; and what is said of odd operators."""
    marker, entries = folder / "marker", parts()
    for change in EMPTIED.values():
        change(entries, f"open({str(marker)!r}, 'w')")
    summary = frontend.summarise(write(folder / "net.pt2", entries))
    said = {}
    for target in _OPERATORS:
        said[target] = _of_call(folder, target, {})
    for name, kind, value in (
        *(
            ("self", "as_string", "same"),
            ("beta", "as_int", 1),
            ("dtype", "as_device", {"type": "cpu", "index": None}),
        ),
    ):
        said[f"{name} {kind}"] = _of_call(folder, "torch.ops.aten.sum.default", {name: {kind: value}})
    entries = parts()
    operands = _node(entries, "cond")["inputs"]
    operands[1]["arg"] = {"as_string_to_argument": {"x": {"as_operator": "torch.ops.aten.add.str"}}}
    said["in a table"] = _of(entries, folder)
    return {"inputs": [one.name for one in summary.inputs], "executed": marker.exists(), "said": said}


def _node(entries: dict[str, Any], target: str) -> Any:
    return next(one for one in entries[MODEL]["graph_module"]["graph"]["nodes"] if target in one["target"])


def _of_call(folder: Path, target: str, operands: dict[str, Any]) -> str:
    """What is said of a call in the place of another one."""
    entries = parts()
    node = _node(entries, "aten.sum")
    given = [{"name": name, "arg": arg, "kind": 1} for name, arg in operands.items()]
    node |= {"target": target, "inputs": given or node["inputs"]}
    return _of(entries, folder)


def _of(entries: dict[str, Any], folder: Path) -> str:
    try:
        load_program(write(folder / "call.pt2", entries), folder)
    except edgepack.ModelError as error:
        return str(error.message)
    return ""


def older(folder: Path) -> dict[str, Any]:
    """Weights as PyTorch 2.8 wrote them, by ``torch.save``; tensors of each type, read from a new pickle."""
    entries = parts()
    program, _ = load_program(SAVED, folder)
    state, constants = dict(program.state_dict), dict(program.constants)
    for name, value in (("weights", state), ("constants", constants)):
        for entry in [one for one in entries if one.startswith(f"data/{name}/")]:
            del entries[entry]
        entries[f"data/{name}/model.pt"] = _saved(value)
    read, _ = load_program(write(folder / "older.pt2", entries), folder)
    same = [torch.equal(value, read.state_dict[name]) for name, value in state.items()]
    return {"same": same, "tensors": _tensors()}


def _saved(value: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def _tensors() -> list[str]:
    """Types of elements that are not what they were, and values of other kinds."""
    whole = torch.arange(24).reshape(2, 3, 4)
    names = (
        *(
            "float32",
            "float64",
            "float16",
            "bfloat16",
            "int64",
            "int32",
            "int16",
            "int8",
            "uint8",
            "bool",
            "uint16",
        ),
        *("uint32", "uint64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"),
    )
    tensors = {name: whole.to(getattr(torch, name)) for name in names}
    tensors["strided"], tensors["part"] = whole.transpose(0, 2), whole[1:, ::2]
    plain = {
        "a": [1, -(2**40), 1.5, None, True],
        3: (torch.float16, 2 + 1j, torch.Size([2, 3])),
        "d": torch.device("cpu"),
    }
    data = _saved(((tensors, torch.nn.Parameter(torch.ones(3)), torch.ones(0)), plain))
    write_copy = inner_archive(io.BytesIO(data), len(data), Room(len(data)))
    made = io.BytesIO()
    write_copy(made)
    made.seek(0)
    (read, parameter, _), others = torch.load(made, weights_only=True)
    wrong = [name for name, one in tensors.items() if not _same(read[name], one)]
    if not isinstance(parameter, torch.nn.Parameter) or others != {**plain, 3: (*plain[3][:2], (2, 3))}:  # type: ignore[index]
        wrong.append("others")
    return wrong


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    same = one.dtype == other.dtype and one.stride() == other.stride()
    return same and torch.equal(one.to(torch.complex128), other.to(torch.complex128))
