"""A program that ``torch.export.save`` wrote, kept beside this module: tests change it without PyTorch.

``PYTHONPATH=build/torch python -m tests.support.saved_program`` writes it anew.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["MODEL", "SAVED", "parts", "write"]

SAVED = Path(__file__).parent / "saved" / "net.pt2"
MODEL = "models/model.json"


def parts() -> dict[str, Any]:
    """The entries below the archive's folder: tables of JSON, and bytes. They are the caller's own."""
    with zipfile.ZipFile(SAVED) as archive:
        read = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    return {name: json.loads(data) if name.endswith(".json") else data for name, data in read.items()}


def write(path: Path, entries: Mapping[str, Any]) -> Path:
    """An archive of such entries."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries.items():
            archive.writestr(f"net/{name}", data if isinstance(data, str | bytes) else json.dumps(data))
    return path


def save() -> None:
    """Export a module with all that programs have: parameters and buffers of odd names, constants, subgraphs,
    open sizes, arguments by name and nested ones."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleDict({"a-b c": nn.Linear(4, 4)})
            self.layers = nn.ModuleList([nn.Linear(4, 4)])
            self.register_buffer("past", torch.zeros(1, 4))
            self.scale = torch.ones(4)

        def forward(self, x: torch.Tensor, batch: dict[str, Any], *, gain: torch.Tensor) -> Any:
            y = self.parts["a-b c"](self.layers[0](x) + batch["image"] + batch["more"][0]) * gain * self.scale
            y = nn.functional.gelu(y, approximate="tanh")
            self.past.copy_(y[:1])  # type: ignore[operator]
            z = torch.cond(y.sum() > 0, lambda one: one + 1, lambda one: one * 2, (y,))
            return {"out": z, "pair": (y.reshape(-1), y.new_ones(x.shape[0] // 2 + 1))}

    size = torch.export.Dim("size", min=2, max=64)
    batch = {"image": torch.linspace(0, 1, 16).reshape(4, 4), "more": [torch.ones(4)]}
    torch.manual_seed(0)
    program = torch.export.export(
        Net().eval(),
        (torch.linspace(-1, 1, 16).reshape(4, 4), batch),
        {"gain": torch.tensor(2.0)},
        dynamic_shapes={"x": {0: size}, "batch": {"image": {0: size}, "more": [None]}, "gain": None},
    )
    torch.export.save(program, SAVED, extra_files={"edgepack.json": "{}", "other.txt": "words"})
    with zipfile.ZipFile(SAVED) as archive:
        read = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    read[MODEL] = re.sub(rb'File \\"/[^"]*/', b'File \\"', read[MODEL])  # where this machine has its files
    write(SAVED, read)


if __name__ == "__main__":
    save()
