"""torch.compile with edgepack beside inductor and eager: ``torch_compile.py [NETWORK ...] [--write]``.

Twelve networks with random weights, batch 1, under ``torch.inference_mode()``: six of torch.nn, six of timm,
torchvision and transformers where these are installed (what is missing is said). For each network and number
of threads a process of its own compiles it with every engine and runs them in turns; printed are the least
times of a run in milliseconds, and how long the first call took: in a process that finds nothing in the
caches, and in the next one. inductor is shown as it is, and with its ``freezing``, which makes constants of
parameters as edgepack does. About 12 minutes on two cores. PyTorch has to be importable
(``PYTHONPATH=build/torch``), and inductor needs a C++ compiler. ``--write`` puts the tables into
notes/2026-11-25-torch-compile.md and a sentence into docs/pytorch.md.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown import replace_section, table
from torch_networks import NETWORKS, missing, network

ENGINES = ("eager", "inductor", "inductor, frozen", "edgepack")
#: Those whose first call is shown: the frozen one comes after the other in the same process.
_COMPILERS = ("inductor", "edgepack")
#: Processes by network: threads, and what is in the caches.
PROCESSES = ((1, "empty"), (1, "filled"), (2, "filled"))
HEADING = "torch.compile beside inductor"
NOTE = Path(__file__).parents[1] / "notes" / "2026-11-25-torch-compile.md"
PAGE = Path(__file__).parents[1] / "docs" / "pytorch.md"


def one(name: str, threads: int, turns: int) -> dict[str, Any]:
    """In this process: seconds of each engine's first call, and of its fastest one."""
    import torch

    torch.set_num_threads(1)  # several give other sums, and with them other weights
    model, inputs = network(name)
    torch.set_num_threads(threads)
    found: dict[str, Any] = {}
    run: dict[str, Any] = {}
    with torch.inference_mode():
        expected = _called(model, inputs)
        torch.compile(lambda y: y + 1, backend="eager")(torch.ones(1))  # what all of them import
        for engine in ENGINES:
            torch._dynamo.reset()
            begin = time.perf_counter()
            try:
                run[engine] = _compiled(engine, model)
                results = _called(run[engine], inputs)
            except Exception as error:  # of inductor: no compiler, ...
                found[engine] = {"failed": f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"}
                run.pop(engine, None)
                continue
            first = time.perf_counter() - begin
            off = max(
                float((one - other).abs().max() / other.abs().max().clamp_min(1e-9))
                for one, other in zip(_tensors(results), _tensors(expected), strict=True)
            )
            found[engine] = {"first": first, "off": off}
        times = _in_turns(run, inputs, turns)
    for engine, taken in times.items() if turns else ():
        found[engine]["least"] = min(taken)
    return found


def _in_turns(run: dict[str, Any], inputs: dict[str, Any], turns: int) -> dict[str, list[float]]:
    """Seconds of each engine's runs: 0.1 s and three runs at least a turn."""
    times: dict[str, list[float]] = {engine: [] for engine in run}
    for _ in range(turns):
        for engine, call in run.items():
            until, least = time.perf_counter() + 0.1, len(times[engine]) + 3
            while time.perf_counter() < until or len(times[engine]) < least:
                begin = time.perf_counter()
                _called(call, inputs)
                times[engine].append(time.perf_counter() - begin)
    return times


def _called(model: Any, inputs: dict[str, Any]) -> Any:
    return model(inputs[""]) if "" in inputs else model(**inputs)


def _tensors(results: Any) -> list[Any]:
    import torch
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]


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


def measured(names: Sequence[str], turns: int) -> dict[str, dict[str, dict[str, Any]]]:
    """What the processes found, by network and ``threads, caches``."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name in names:
        if absent := missing(name):
            print(f"{name} is left out: {absent} is not installed", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as caches:
            for threads, state in PROCESSES:
                one = _measured(name, threads, caches, turns if state == "filled" else 0)
                print(name, threads, state, json.dumps(one), file=sys.stderr)
                found.setdefault(name, {})[f"{threads}, {state}"] = one
    return found


def tables(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """All of them, by networks and threads. The last column of the first one: by how much edgepack is faster
    than the faster one of inductor's."""
    runs, firsts = [], []
    for name, processes in found.items():
        for threads in (1, 2):
            one = processes[f"{threads}, filled"]
            cells = [_cell(one[engine], "least", 1e3) for engine in ENGINES]
            runs.append([name, str(threads), *cells, f"{_ratio(one):.2f}"])
        for state in ("empty", "filled"):
            one = processes[f"1, {state}"]
            firsts.append([name, state, *(_cell(one[engine], "first", 1) for engine in _COMPILERS)])
    return "\n\n".join(
        (
            "Least milliseconds of a run:",
            table(["network", "threads", *ENGINES, "times as fast"], runs, 1),
            "Seconds of the first call, on one thread:",
            table(["network", "caches", *_COMPILERS], firsts, 2),
        )
    )


def _ratio(found: dict[str, Any]) -> float:
    """How many times as long the faster one of inductor's takes."""
    others = [found[one]["least"] for one in ENGINES if one.startswith("inductor") and "least" in found[one]]
    return float(min(others) / found["edgepack"]["least"]) if others else float("nan")


def sentence(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """What a user wants to know of the tables."""
    ratios = [
        _ratio(one) for processes in found.values() for key, one in processes.items() if "filled" in key
    ]
    ahead = sum(all(_ratio(one[f"{n}, filled"]) > 1 for n in (1, 2)) for one in found.values())
    spans = {}
    for engine in _COMPILERS:
        first = [one["1, filled"][engine] for one in found.values()]
        times = [one["first"] for one in first if "first" in one]
        spans[engine] = f"{min(times):.1f} to {max(times):.1f} s" if times else "none"
    return (
        f"Of {len(found)} networks at batch 1, on one thread and on two, {ahead} run faster than with "
        f"inductor: {min(ratios):.1f} to {max(ratios):.1f} times as fast. The first call of a process that "
        f"finds libraries in the cache takes {spans['edgepack']}, inductor's {spans['inductor']} "
        f"([tables](../notes/{NOTE.name}))."
    )


def _cell(found: dict[str, Any], what: str, scale: float) -> str:
    return f"{found[what] * scale:.3f}" if what in found else "failed"


def main() -> None:
    """Everything, or what one process does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=NETWORKS, help=f"of {', '.join(NETWORKS)}")
    parser.add_argument("--turns", type=int, default=10, help="in which every engine runs for 0.1 s")
    parser.add_argument("--write", action="store_true", help="put the tables into notes/ and docs/")
    parser.add_argument("--one", choices=NETWORKS, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        parser.error("PyTorch is not installed: PYTHONPATH=build/torch after `make build/torch/.installed`")
    if unknown := {*given.networks} - {*NETWORKS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if given.one:
        print(json.dumps(one(given.one, given.threads, given.turns)))
        return
    found = measured(given.networks, given.turns)
    text = f"{_about(given.turns)}\n\n{tables(found)}"
    print(text)
    if given.write:
        if len(found) < len(NETWORKS):
            parser.error("only tables of all networks are written")
        replace_section(HEADING, text, "torch_compile.py", NOTE)
        replace_section(HEADING, sentence(found), "torch_compile.py", PAGE)


def _about(turns: int) -> str:
    import torch

    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    cpu = next((line.partition(":")[2].strip() for line in lines.splitlines() if "model name" in line), "")
    return (
        f"{datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d}, {cpu}, PyTorch {torch.__version__}; float32, "
        f"batch 1, random weights, `torch.inference_mode()`; in {turns} turns, all engines in one process."
    )


if __name__ == "__main__":
    main()
