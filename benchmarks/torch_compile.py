"""torch.compile with edgepack beside inductor and eager: ``python benchmarks/torch_compile.py``.

Networks made of torch.nn with random weights, batch 1, under ``torch.inference_mode()``. For each network and
number of threads a process of its own compiles it with every engine and runs them in turns; printed are the
least times of a run in milliseconds, and how long the first call took: in a process that finds nothing in
the caches, and in the next one. inductor is shown as it is, and with its ``freezing``, which makes constants
of parameters as edgepack does. PyTorch has to be importable (``PYTHONPATH=build/torch``), and inductor needs
a C++ compiler.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import itertools

from markdown import table

ENGINES = ("eager", "inductor", "inductor, frozen", "edgepack")
#: Those whose first call is shown: the frozen one comes after the other in the same process.
_COMPILERS = ("inductor", "edgepack")
NETWORKS = ("MLP", "ResNet-18", "depthwise", "encoder", "signal")
#: Processes by network: threads, and what is in the caches.
PROCESSES = ((1, "empty"), (1, "filled"), (2, "filled"))


def networks() -> dict[str, Callable[[], tuple[Any, Any]]]:
    """Each network with its input."""
    import torch
    from torch import nn

    def block(inner: int, outer: int, stride: int) -> Any:
        class Block(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.body = nn.Sequential(
                    *(nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU()),
                    *(nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer)),
                )
                short = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))
                self.short = nn.Identity() if inner == outer else short

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return (self.body(x) + self.short(x)).relu()

        return Block()

    def resnet() -> tuple[Any, Any]:
        layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        widths = [64, 64, 128, 256, 512]
        for inner, outer in itertools.pairwise(widths):
            layers += [block(inner, outer, 1 if inner == outer else 2), block(outer, outer, 1)]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
        return nn.Sequential(*layers), torch.randn(1, 3, 224, 224)

    def depthwise() -> tuple[Any, Any]:
        layers: list[Any] = [nn.Conv2d(3, 32, 3, 2, 1), nn.Hardswish()]
        widths = [32, 64, 128, 128, 256, 256]
        for inner, outer in itertools.pairwise(widths):
            stride = 1 if inner == outer else 2
            layers += [
                nn.Conv2d(inner, inner, 3, stride, 1, groups=inner),
                nn.BatchNorm2d(inner),
                nn.Hardswish(),
            ]
            layers += [nn.Conv2d(inner, outer, 1), nn.BatchNorm2d(outer), nn.Hardswish()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), torch.randn(1, 3, 160, 160)

    def mlp() -> tuple[Any, Any]:
        layers = (*(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512)), *(nn.Linear(512, 512), nn.GELU()))
        return nn.Sequential(*layers, nn.Linear(512, 10)), torch.randn(1, 256)

    def encoder() -> tuple[Any, Any]:
        torch.backends.mha.set_fastpath_enabled(False)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, 0.0, "gelu", batch_first=True)
        return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), torch.randn(1, 64, 256)

    def signal() -> tuple[Any, Any]:
        layers: list[Any] = []
        for inner, outer in ((1, 32), (32, 64), (64, 128)):
            layers += [nn.Conv1d(inner, outer, 9, 2, 4), nn.BatchNorm1d(outer), nn.SiLU()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten()), torch.randn(1, 1, 4000)

    return dict(zip(NETWORKS, (mlp, resnet, depthwise, encoder, signal), strict=True))


def one(name: str, threads: int, turns: int) -> dict[str, Any]:
    """In this process: seconds of each engine's first call, and of its fastest one."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, x = networks()[name]()
    model.eval()
    found: dict[str, Any] = {}
    run: dict[str, Any] = {}
    with torch.inference_mode():
        expected = model(x)
        torch.compile(lambda y: y + 1, backend="eager")(x)  # what all of them import
        for engine in ENGINES:
            torch._dynamo.reset()
            run[engine] = _compiled(engine, model)
            begin = time.perf_counter()
            try:
                result = run[engine](x)
            except Exception as error:  # of inductor: no compiler, ...
                found[engine] = {"failed": f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"}
                del run[engine]
                continue
            off = float((result - expected).abs().max() / expected.abs().max())
            found[engine] = {"first": time.perf_counter() - begin, "off": off}
        times: dict[str, list[float]] = {engine: [] for engine in run}
        for _ in range(turns):
            for engine, call in run.items():
                until = time.perf_counter() + 0.1
                while True:
                    begin = time.perf_counter()
                    call(x)
                    end = time.perf_counter()
                    times[engine].append(end - begin)
                    if end > until:
                        break
    for engine, taken in times.items() if turns else ():
        found[engine]["least"] = min(taken)
    return found


def _compiled(engine: str, model: Any) -> Any:
    import torch

    import edgepack.torch

    if engine == "eager":
        return model
    if engine == "edgepack":
        return torch.compile(model, backend=edgepack.torch.backend)
    return torch.compile(model, options={"freezing": engine != "inductor"})


def _measured(name: str, threads: int, caches: str, turns: int) -> dict[str, Any]:
    environment = {
        **os.environ,
        "EDGEPACK_CACHE_DIR": f"{caches}/edgepack",
        "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
        "PYTHONWARNINGS": "ignore",
    }
    command = [sys.executable, __file__, "--one", name, "--threads", str(threads), "--turns", str(turns)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def tables(names: Sequence[str], turns: int) -> str:
    """All of them, by networks and threads."""
    runs, firsts = [], []
    for name in names:
        with tempfile.TemporaryDirectory() as caches:
            for threads, state in PROCESSES:
                found = _measured(name, threads, caches, turns if state == "filled" else 0)
                print(name, threads, state, json.dumps(found), file=sys.stderr)
                if state == "filled":
                    runs.append([name, str(threads), *(_cell(found[one], "least", 1e3) for one in ENGINES)])
                if threads == 1:
                    firsts.append([name, state, *(_cell(found[one], "first", 1) for one in _COMPILERS)])
    return "\n\n".join(
        (
            "Least milliseconds of a run:",
            table(["network", "threads", *ENGINES], runs, 1),
            "Seconds of the first call:",
            table(["network", "caches", *_COMPILERS], firsts, 2),
        )
    )


def _cell(found: dict[str, Any], what: str, scale: float) -> str:
    return f"{found[what] * scale:.3f}" if what in found else "failed"


def main() -> None:
    """Everything, or what one process does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=NETWORKS, help=f"of {', '.join(NETWORKS)}")
    parser.add_argument("--turns", type=int, default=10, help="in which every engine runs for 0.1 s")
    parser.add_argument("--one", choices=NETWORKS, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        parser.error("PyTorch is not installed: PYTHONPATH=build/torch after `make build/torch/.installed`")
    if given.one:
        print(json.dumps(one(given.one, given.threads, given.turns)))
    else:
        print(tables(given.networks, given.turns))


if __name__ == "__main__":
    main()
