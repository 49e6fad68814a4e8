"""TorchScript modules and files as programs: a part of ``tests.support.torch_programs``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch
from torch import nn

import edgepack
from edgepack.compiler.frontend.torch.archive import load_program, script_program
from edgepack.compiler.frontend.torch.to_onnx import export
from edgepack.pipeline import exported_file as exported_files
from edgepack.pipeline.exported_file import exported_file
from edgepack.programs.exporting import exported_program
from edgepack.programs.flat import flattened
from edgepack.system.deadline import OutOfTimeError
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


class Joined(nn.Module):
    """Takes what is nested, and plain values."""

    def forward(
        self,
        batch: dict[str, torch.Tensor],
        pair: tuple[torch.Tensor, int],
        gain: float = 1.0,
        mode: str = "up",
    ) -> torch.Tensor:
        sign = 1.0 if mode == "up" else -1.0
        return (batch["x"] + batch["y"]) * gain * sign + pair[0][pair[1]]


def with_examples(folder: Path) -> dict[str, Any]:
    """Files with example inputs, in a process that could not read a script."""
    torch.jit.script(Joined()).save(str(folder / "joined.pt"))
    torch.jit.script(Chooses()).save(str(folder / "chooses.pt"))
    (folder / "damaged.pt").write_bytes(b"PK")
    x, y, rows = torch.rand(2, 3), torch.rand(2, 3), torch.rand(4, 3)
    dim, wanted = torch.export.Dim("n", min=2, max=9), (x + y) * 2 - rows[1]
    keywords = {"batch": {"x": x, "y": y}, "pair": (-rows, 1), "gain": 2.0}
    dims = {"batch": {"x": {0: dim}, "y": {0: dim, 1: None}}, "pair": (None, None), "gain": None}
    refused: dict[str, tuple[str, Any, Any]] = {
        "chooses": ("chooses.pt", x, None),
        "damaged": ("damaged.pt", x, None),
        "missing": ("missing.pt", x, None),
        "object": ("joined.pt", (x, folder), None),
        "elsewhere": ("joined.pt", (x.to("meta"),), None),
        "derived": ("joined.pt", keywords, {"batch": {"x": {0: 2 * dim}}}),
        "does not fit": ("joined.pt", (x,), None),
    }
    found: dict[str, Any] = {}
    original, torch._C.import_ir_module = torch._C.import_ir_module, None
    try:
        given: dict[str, Any] = {"example_inputs": keywords, "dynamic_shapes": dims, "dims": {"batch_x_0": 2}}
        bundle = edgepack.pack(folder / "joined.pt", "host", folder / "bundle", **given)
        with edgepack.load(bundle) as session:
            result = session.run({"batch_x": x.numpy(), "batch_y": y.numpy(), "pair_0": -rows.numpy()})
        off = np.abs(result["output"] - wanted.numpy()).max()
        found["packed"] = [bundle.inspect()["name"], bundle.verify().ok, float(off)]
        found["positional"] = positional(folder / "joined.pt", x, y, rows)
        for name, (model, example, shapes) in refused.items():
            try:
                edgepack.pack(folder / model, example_inputs=example, dynamic_shapes=shapes)
            except edgepack.EdgepackError as error:
                found[name] = f"{type(error).__name__}: {error.message} {error.hint}"
        try:
            with exported_file(folder / "joined.pt", "other", keywords, None) as file:
                raise edgepack.ModelError(f"{file} {file.name}")
        except edgepack.ModelError as error:
            found["later"] = error.message.replace(str(folder), "")
        found["link"] = by_a_worker(partial(leave_link, to=folder / "joined.pt"), folder / "joined.pt", x)
        found["late"] = by_a_worker(run_out_of_time, folder / "joined.pt", x)
    finally:
        torch._C.import_ir_module = original
    return found


def by_a_worker(run: Callable[[Any, Path], Any], model: Path, example: Any) -> str:
    """What is said of an export by another worker than the real one."""
    worker, exported_files.Worker = exported_files.Worker, MagicMock()  # type: ignore[misc]
    exported_files.Worker.return_value.__enter__.return_value.run = run
    try:
        edgepack.pack(model, example_inputs=example, timeout=60)
    except edgepack.EdgepackError as error:
        return f"{type(error).__name__}: {error.message}"
    finally:
        exported_files.Worker = worker  # type: ignore[misc]
    return "packed"


def leave_link(_: Any, folder: Path, *, to: Path) -> None:
    """As a worker would that was taken over, so that the next one is granted another file."""
    (folder / "exported.pt2").symlink_to(to)


def run_out_of_time(*_: Any) -> None:
    """As a worker does that waits for too long."""
    raise OutOfTimeError


def positional(model: Path, x: torch.Tensor, y: torch.Tensor, rows: torch.Tensor) -> list[Any]:
    """The file's name, how far the program is off, and how many of its sizes are open."""
    arguments = ({"x": x, "y": y}, (rows, 1), 1.0, "down")
    first = {"x": {0: torch.export.Dim.DYNAMIC(max=7)}, "y": [torch.export.Dim.AUTO, 3]}
    dims = (first, (None, None), None, None)
    with exported_file(model, "other", arguments, dims) as file:
        program = load_program(file, model.parent)[0]
    result = torch.utils._pytree.tree_leaves(program.module()(x, y, rows))[0]
    off = (result - (rows[1] - x - y)).abs().max()
    return [file.name, float(off), len(program.range_constraints)]


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
    found: dict[str, Any] = {
        "file": beside_eager(
            folder,
            "file",
            script_program(folder / "piece.pt", folder, {"gain": ()}, {"x": folder / "x.npy"}),
        ),
        "recurrent": beside_eager(
            folder, "recurrent", exported_program(recurrent, ({"x": torch.rand(2, 3, 4)},))
        ),
        "unchanged": float(piece.inner.past.abs().sum()),
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
    for name, part in (
        ("honest", honest),
        ("harmful", harmful),
        ("commanded", commanded),
        ("with examples", with_examples),
    ):
        (folder / name).mkdir()
        found[name] = part(folder / name)
    for name, case in refused.items():
        try:
            case()
        except edgepack.EdgepackError as error:
            found[name] = f"{error.message} {error.hint}"
    return found
