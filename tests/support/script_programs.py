"""TorchScript modules and files as programs: a part of ``tests.support.torch_programs``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import edgepack
from edgepack.compiler.frontend.torch.archive import script_program
from edgepack.compiler.frontend.torch.to_onnx import export
from edgepack.programs.exporting import exported, exported_program
from edgepack.programs.flat import flattened
from tests.support.script_modules import commanded, harmful, honest
from tools import write_script_operators
from workbench.models.evaluate import run_onnxruntime

__all__ = ["scripts"]


class Piece(nn.Module):
    """A signal in pieces: state in a module inside, a convolution, a loop over a number, and a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.inner, self.times = nn.Conv1d(4, 4, 3, padding=1), nn.Module(), 2
        self.inner.register_buffer("past", torch.zeros(1, 4, 2))

    def forward(self, x: torch.Tensor, gain: torch.Tensor) -> dict[str, torch.Tensor]:
        window = torch.cat([self.inner.past, x], -1)
        self.inner.past.copy_(window[..., -2:])
        for _ in range(self.times):
            window = self.conv(window)
        return {"sum": window * gain, "size": window.mean()}


class Recurrent(nn.Module):
    """What PyTorch's own converter of TorchScript fails at."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        result, _ = self.lstm(batch["x"])
        return result


class Chooses(nn.Module):
    """Control flow that depends on data."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            return x + 1
        return x - 1


def beside_eager(folder: Path, name: str, program: Any) -> dict[str, Any]:
    """Names, states, and how far ONNX Runtime is off of the module."""
    (folder / name).mkdir()
    found = export(flattened(program, name), folder / name, name)
    results, eager = run_onnxruntime(found.path, found.inputs), found.eager(found.inputs)
    off = [float(np.abs(a - b).max()) for a, b in zip(results, eager.values(), strict=True)]
    return {"inputs": list(found.inputs), "outputs": found.outputs, "states": found.states, "worst": max(off)}


def scripts(folder: Path) -> dict[str, Any]:
    """Scripted and traced, of files and in memory."""
    x = torch.randn(1, 4, 9)
    piece = torch.jit.script(Piece().eval())
    piece.save(str(folder / "piece.pt"))
    np.save(folder / "x.npy", x.numpy())
    recurrent = torch.jit.script(Recurrent().eval())
    traced = torch.jit.trace(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval(), torch.rand(1, 3, 8, 8)
    )
    traced.save(str(folder / "traced.pt"))
    image = (torch.rand(2, 3, 8, 8),)
    found: dict[str, Any] = {
        "file": beside_eager(
            folder,
            "file",
            script_program(folder / "piece.pt", folder, {"gain": ()}, {"x": folder / "x.npy"}),
        ),
        "recurrent": beside_eager(
            folder, "recurrent", exported_program(recurrent, ({"x": torch.rand(2, 3, 4)},))
        ),
        "traced": beside_eager(folder, "traced", exported(None, folder / "traced.pt", image, None)[1]),
        "unchanged": float(piece.inner.past.abs().sum()),
        "named": exported(None, folder / "traced.pt", image, None)[0],
    }
    torch.jit.script(Recurrent()).save(str(folder / "recurrent.pt"))
    refused: dict[str, Callable[[], Any]] = {
        "open": lambda: script_program(folder / "piece.pt", folder, {"x": (1, 4, 9)}, {}),
        "nested": lambda: script_program(folder / "recurrent.pt", folder, {}, {}),
        "chooses": lambda: exported_program(torch.jit.script(Chooses()), x),
        "train": lambda: beside_eager(
            folder, "trained", exported_program(torch.jit.script(nn.Sequential(nn.Dropout())).train(), x)
        ),
    }
    rule, listed = write_script_operators.operators(), write_script_operators.written()
    found["listed"] = {name: sorted(set(listed[name]) - set(rule[name])) for name in rule}
    found["not listed"] = {name: sorted(set(rule[name]) - set(listed[name])) for name in rule}
    for name, part in (("honest", honest), ("harmful", harmful), ("commanded", commanded)):
        (folder / name).mkdir()
        found[name] = part(folder / name)
    for name, case in refused.items():
        try:
            case()
        except edgepack.EdgepackError as error:
            found[name] = f"{error.message} {error.hint}"
    return found
