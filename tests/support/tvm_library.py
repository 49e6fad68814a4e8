"""Exports modules for TVM's runtime in a process that has PyTorch, and runs them here.

``python -m tests.support.tvm_library FOLDER`` prints what came of it as JSON, and leaves the libraries and
the inputs of a run in the folder.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lief
import numpy as np
import torch
import tvm
from torch import nn

import edgepack.torch
from edgepack.errors import EdgepackError
from tests.support import shared_worker


class Stream(nn.Module):
    """A network with a state, which returns tensors of two dtypes by name."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 5)
        self.register_buffer("past", torch.zeros(1, 5))

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        features = self.norm(self.conv(image)).relu().mean((2, 3))
        score = (self.linear(features) + self.past).sigmoid()
        self.past.copy_(score)
        return {"score": score, "best": score.argmax(-1)}


class Rows(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1) * 2


class Unknown(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.bessel_j0(x) + torch.special.bessel_j1(x)


def run(library: Path, *arrays: Any) -> list[Any]:
    """What TVM's runtime computes with a library, in this process."""
    machine = tvm.relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
    return [one.numpy() for one in machine["main"](*map(tvm.runtime.tensor, arrays))]


def difference(found: list[Any], expected: list[torch.Tensor]) -> float:
    """The largest of all outputs; infinite for other dtypes and shapes."""
    wrong = 0.0
    for one, other in zip(found, (each.numpy() for each in expected), strict=True):
        same = one.dtype == other.dtype and one.shape == other.shape
        wrong = max(wrong, float(np.abs(one - other).max()) if same else float("inf"))
    return wrong


def streamed(folder: Path) -> dict[str, Any]:
    """For this machine, run twice with the state that the first run returned; and for 64-bit ARM."""
    module, image = Stream().eval(), torch.randn(1, 3, 16, 16)
    host = edgepack.torch.export_library(module, image, folder / "host.so")
    device = edgepack.torch.export_library(module, image, folder / "aarch64.so", device="linux-aarch64")
    untouched = float(module.past.abs().max())
    image, past = torch.randn(1, 3, 16, 16), torch.randn(1, 5)
    image.numpy().tofile(folder / "image.bin")
    past.numpy().tofile(folder / "past.bin")
    module.past.copy_(past)
    wrong, expected = [], []
    state: Any = past.numpy()
    with torch.no_grad():
        for _ in range(2):
            eager = [one.clone() for one in module(image).values()]
            eager.append(module.past.clone())
            results = run(host.path, state, image.numpy())
            state = results[2]
            wrong.append(difference(results, eager))
            expected.append([one.flatten().tolist() for one in eager])
    return {
        "wrong": wrong,
        "expected": expected[0],
        "state of the module": untouched,
        "interfaces": [[one.inputs, one.outputs, one.states] for one in (host, device)],
        "versions": [one.tvm_version for one in (host, device)],
        "left": sorted(path.name for path in folder.iterdir()),
    }


def opened(folder: Path) -> float:
    """A size that is open stays open."""
    dynamic = ({0: torch.export.Dim("rows", min=1, max=64)},)
    program = torch.export.export(Rows(), (torch.randn(4, 7),), dynamic_shapes=dynamic)
    library = edgepack.torch.export_library(program, None, folder / "rows.so")
    rows = torch.randn(9, 7)
    return difference(run(library.path, rows.numpy()), [Rows()(rows)])


def refused(folder: Path) -> dict[str, Any]:
    """What is said before anything is exported, and what became of a file that was there."""
    x, rows = torch.randn(2, 3), Rows()
    return _said(
        folder,
        {
            "gpu": (rows, x, "there.so", "jetson-orin-gpu"),
            "web": (rows, x, "there.so", "wasm32-wasi"),
            "folder": (rows, x, "missing/net.so", "host"),
            "example": (rows, None, "there.so", "host"),
        },
    )


def not_taken(folder: Path) -> dict[str, Any]:
    """What TVM does not take."""
    x = torch.randn(2, 3)
    training = nn.Sequential(nn.BatchNorm1d(3)).train()
    return _said(
        folder,
        {"unknown": (Unknown(), x, "there.so", "host"), "training": (training, x, "there.so", "host")},
    )


def _said(folder: Path, tries: dict[str, tuple[Any, Any, str, str]]) -> dict[str, Any]:
    said, there = {}, folder / "there.so"
    there.write_text("mine", encoding="utf-8")
    for name, (module, inputs, path, device) in tries.items():
        try:
            edgepack.torch.export_library(module, inputs, folder / path, device=device)
        except EdgepackError as error:
            said[name] = [type(error).__name__, error.message, error.hint]
    found = {"said": said, "there": there.read_text(encoding="utf-8")}
    there.unlink()
    return found


def exported_for_tvm() -> dict[str, Any]:
    """The quick part: a stream for this machine and for 64-bit ARM, and what is refused at once."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        found = {**streamed(folder), "refused": refused(folder)}
        library: Any = lief.parse(str(folder / "aarch64.so"))
        symbols = list(library.dynamic_symbols)
        found["machine"] = str(library.header.machine_type)
        found["exported"] = sorted(str(one.name) for one in symbols if one.exported)
        found["undefined"] = sorted(str(one.name) for one in symbols if not one.exported and one.name)
        found["needed"] = list(library.libraries)
    return found


def main(place: str) -> None:
    with shared_worker.installed(setattr):  # TVM and PyTorch are loaded once for all that is exported
        torch.manual_seed(0)
        parts: tuple[Callable[[Path], Any], ...] = (streamed, opened, not_taken)
        found = {one.__name__: one(Path(place)) for one in parts}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
