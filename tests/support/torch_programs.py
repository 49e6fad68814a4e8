"""Packs modules of PyTorch's, in a process that has it, and prints what came of each as JSON: the tests that
need PyTorch share one import of it. ``python -m tests.support.torch_programs FOLDER [PART ...]``."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import edgepack
from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.cut import open_model
from edgepack.compiler.frontend.torch.archive import load_program
from edgepack.compiler.frontend.torch.to_onnx import Exported, export
from edgepack.programs.checks import CHECKS, drop_checks
from edgepack.programs.exporting import exported_program
from edgepack.programs.flat import flattened
from tests.support import shared_worker
from tests.support.quantised_programs import quantised
from tests.support.read_programs import hostile, older
from tests.support.script_programs import scripts
from workbench.models.evaluate import run_onnxruntime


class Nested(nn.Module):
    """Dicts in and out, a constant argument, and a result that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, batch: dict[str, torch.Tensor], scale: float = 1.0) -> dict[str, Any]:
        x = self.norm(self.conv(batch["image"])).relu().mean((2, 3))
        return {"logits": self.head(x) * scale + batch["bias"], "pair": (x, None)}


class Cache(nn.Module):
    """Writes to a cache that no result reads."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("cache", torch.zeros(8, 4))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(0, position, self.lin(x))  # type: ignore[operator]
        return x.sum()


class Stream(nn.Module):
    """A convolution over a signal that arrives in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 6, 3)
        self.register_buffer("past", torch.zeros(1, 4, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        window = torch.cat([self.past, x], -1)  # type: ignore[list-item]
        self.past.copy_(window[..., -2:])  # type: ignore[operator]
        result: torch.Tensor = self.conv(window)
        return result


class Holder:
    """Keeps state, and is no module."""

    def __init__(self, keys: torch.Tensor) -> None:
        self.keys = keys


class Held(nn.Module):
    """State in an object, whose tensor is a buffer as well (transformers' StaticCache is so)."""

    def __init__(self) -> None:
        super().__init__()
        self.holder = Holder(torch.zeros(8, 4))
        self.register_buffer("keys", self.holder.keys)

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.holder.keys.index_copy_(0, position, x * 2)
        return self.holder.keys.sum(0)


class Overwrites(nn.Module):
    """Writes to its own input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.add_(1) * 2


class Branches(nn.Module):
    """Control flow that depends on data."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x + 1
        return x - 1


class Unknown(nn.Module):
    """Operators that the exporter has no equivalent of."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.linalg.eigvalsh(x), torch.special.bessel_j0(x)


def packed(folder: Path, name: str, model: Any, **options: Any) -> dict[str, Any]:
    """The bundle of a model, verified: its names, warnings and reference."""
    bundle = edgepack.pack(model, "host", folder / name, force=True, **options)
    manifest = bundle.inspect()
    found = bundle.verify()
    return {
        "ok": found.ok,
        "reference": found.reference,
        "inputs": {one["name"]: one["shape"] for one in manifest["inputs"]},
        "outputs": {one["name"]: one["shape"] for one in manifest["outputs"]},
        "warnings": manifest["warnings"],
    }


def nested(folder: Path) -> dict[str, Any]:
    """A ``.pt2`` file of nested arguments; the session is called as the module."""
    example = ({"image": torch.randn(1, 3, 8, 8), "bias": torch.randn(5)}, 2.0)
    program = torch.export.export(Nested().eval(), example)
    torch.export.save(program, folder / "nested.pt2")
    found = packed(folder, "nested", folder / "nested.pt2")
    batch, scale = example
    with edgepack.load(folder / "nested") as session, torch.no_grad():
        wanted = program.module()(batch, scale)
        got = session.call({name: one.numpy() for name, one in batch.items()}, scale)
    off = np.abs(got["logits"] - wanted["logits"].numpy()).max()
    pair = np.abs(got["pair"][0] - wanted["pair"][0].numpy()).max()
    return {**found, "called": [float(off), float(pair), got["pair"][1]]}


def exported(folder: Path, name: str, module: nn.Module, *example: torch.Tensor) -> Exported:
    """A module as ONNX, without what follows."""
    program = exported_program(module, example)
    (folder / name).mkdir()
    return export(flattened(program, name), folder / name, name)


def cache(folder: Path) -> dict[str, Any]:
    """A cache that is written to, as ONNX Runtime and the eager module compute it."""
    torch_cache = Cache().eval()
    found = exported(folder, "cache", torch_cache, torch.randn(1, 4), torch.tensor([2]))
    results = run_onnxruntime(found.path, found.inputs)
    eager = found.eager(found.inputs)
    with torch.no_grad():
        torch_cache(torch.from_numpy(found.inputs["x"]), torch.tensor([2]))
    return {
        "inputs": list(found.inputs),
        "outputs": found.outputs,
        "states": found.states,
        "written": bool(np.abs(results[1]).sum() > 0),
        "worst": max(float(np.abs(a - b).max()) for a, b in zip(results, eager.values(), strict=True)),
        "beside the module": float(np.abs(results[1] - np.asarray(torch_cache.cache)).max()),
    }


def held(folder: Path) -> dict[str, Any]:
    """State in an object that is no module, as ONNX Runtime computes it."""
    x = torch.randn(1, 4)
    program = torch.export.export(Held().eval(), (x, torch.tensor([2])))
    (folder / "held").mkdir()
    found = export(flattened(program, "held"), folder / "held", "held")
    result, state = run_onnxruntime(found.path, found.inputs)
    wanted = np.zeros((8, 4), np.float32)
    wanted[2] = 2 * x.numpy()[0]
    off = np.abs(state - wanted).max(), np.abs(result - wanted.sum(0)).max()
    return {"inputs": list(found.inputs), "states": found.states, "worst": float(max(off))}


def stream(folder: Path) -> dict[str, Any]:
    """Two pieces of a signal, beside the eager module, and another size than the example's."""
    module = Stream().eval()
    shapes = {"x": {2: torch.export.Dim("n", min=3, max=64)}}
    program = torch.export.export(module, (torch.randn(1, 4, 16),), dynamic_shapes=shapes)
    found = packed(folder, "stream", program, dims={"x_2": 10})
    state, worst = np.zeros((1, 4, 2), np.float32), 0.0
    with edgepack.load(folder / "stream") as session, torch.no_grad():
        try:
            session.call(torch.randn(1, 4, 10).numpy())
        except edgepack.ConfigError as error:
            found["called"] = error.message
        for _ in range(2):
            x = torch.randn(1, 4, 10)
            results = session.run({"past": state, "x": x.numpy()})
            state = results["past_next"]
            worst = max(worst, float(np.abs(results["output"] - module(x).numpy()).max()))
    return {**found, "worst": worst}


class Halves(nn.Module):
    """bfloat16 in and out, and bool."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x * 2).relu(), mask & (x > 0)


def halves(folder: Path) -> dict[str, Any]:
    """Types that NumPy has not."""
    example = (torch.randn(3, 4).to(torch.bfloat16), torch.tensor([True, False, True, True]))
    return packed(folder, "halves", Halves().eval(), example_inputs=example)


class Standardised(nn.Conv2d):
    """Its weights are standardised by a batch norm in training mode, as BiT's and NFNet's are."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.weight.reshape(1, self.out_channels, -1)
        weight = nn.functional.batch_norm(rows, None, None, training=True, momentum=0.0, eps=1e-6)
        return nn.functional.conv2d(x, weight.reshape_as(self.weight), self.bias)


def standardised(folder: Path) -> dict[str, Any]:
    """A batch norm that has no statistics to update."""
    return packed(
        folder, "standardised", Standardised(3, 8, 3).eval(), example_inputs=torch.randn(1, 3, 9, 9)
    )


class Checked(nn.Module):
    """Checks values at run time, as models of transformers do: those that a result needs too, and others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        doubled = x * 2
        torch._check_tensor_all(doubled.sum() < 1e6)
        return doubled.relu()


def checked(folder: Path) -> dict[str, Any]:
    """Checks that are left out, and how many stay of a size that something is computed with."""

    class Sized(nn.Module):
        def forward(self, x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
            size = count.item()
            torch._check(size >= 1)
            torch._check(size <= 4)
            return x.new_ones(size).sum() + x.sum()

    program = torch.export.export(Sized(), (torch.randn(4, 3), torch.tensor(2)))
    before = _checks(program)
    drop_checks(program)
    found = packed(folder, "checked", Checked(), example_inputs=torch.randn(2, 3))
    return {**found, "of a size": [before, _checks(program)]}


def _checks(program: torch.export.ExportedProgram) -> int:
    return sum(str(node.target) in CHECKS for node in program.graph.nodes)


@dataclass
class Answer:
    """What only this process knows."""

    y: torch.Tensor


class Answers(nn.Module):
    """Returns such."""

    def forward(self, x: torch.Tensor) -> Answer:
        return Answer(x + 1)


def changed_files(folder: Path) -> dict[str, Path]:
    """A program as a newer PyTorch, or one for a GPU, would have saved it, and one with types of others."""
    torch.export.register_dataclass(Answer, serialized_type_name="net.Answer")
    torch.export.save(torch.export.export(Answers(), (torch.zeros(3),)), folder / "plain.pt2")
    changes = {
        "newer": (b'"major": ', b'"major": 9'),
        "cuda": (b'"type": "cpu"', b'"type": "cuda"'),
        "types": (b"net.Answer", b"net.Reply"),
    }
    made = {}
    for name, (old, new) in changes.items():
        made[name] = folder / f"{name}.pt2"
        with zipfile.ZipFile(folder / "plain.pt2") as plain, zipfile.ZipFile(made[name], "w") as changed:
            for entry in plain.infolist():
                data = plain.read(entry)
                changed.writestr(
                    entry.filename, data.replace(old, new) if ".json" in entry.filename else data
                )
    return made


def refused(folder: Path) -> dict[str, str]:
    """What is said of modules that cannot be packed."""
    x = torch.randn(3, 3)
    bare = folder / "bare.onnx"
    torch.onnx.export(
        Cache().eval(), (torch.zeros(1, 4), torch.tensor([2])), bare, dynamo=True, verbose=False
    )
    train = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).train()
    cases: dict[str, Callable[[], Any]] = {
        "train": lambda: exported(folder, "train", train, torch.randn(1, 3, 4, 4)),
        "overwrites": lambda: exported(folder, "overwrites", Overwrites(), x),
        "branches": lambda: edgepack.pack(Branches(), example_inputs=x),
        "unknown": lambda: exported(folder, "unknown", Unknown(), x),
        "none": lambda: edgepack.pack(Branches()),
        "shape": lambda: edgepack.pack(nn.Linear(4, 4), example_inputs=x),
        "no example": lambda: edgepack.pack(Branches(), example_inputs=5),
        "elsewhere": lambda: edgepack.pack(nn.Linear(3, 3, device="meta"), example_inputs=x),
        "bare": lambda: open_model(bare, ImportOptions()),
        **{name: partial(load_program, file, folder) for name, file in changed_files(folder).items()},
        "reserved": lambda: edgepack.pack(Branches(), example_inputs=x, name="int"),
        "no module": lambda: edgepack.pack("model.onnx", example_inputs=x),
    }
    said = {}
    for name, case in cases.items():
        try:
            case()
        except edgepack.EdgepackError as error:
            said[name] = f"{type(error).__name__}: {error.message}"
    return said


def main() -> None:
    """Everything, each part by its name."""
    torch.manual_seed(0)
    folder = Path(sys.argv[1])
    parts = (
        nested,
        cache,
        held,
        stream,
        halves,
        standardised,
        checked,
        refused,
        quantised,
        scripts,
        hostile,
        older,
    )
    chosen = [part for part in parts if part.__name__ in sys.argv[2:]] or parts
    found = {}
    with shared_worker.installed(setattr):
        for part in chosen:
            own = folder / part.__name__
            own.mkdir()
            found[part.__name__] = part(own)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
