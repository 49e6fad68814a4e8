"""edgepack's own binary against other engines, side by side: ``python benchmarks/compare.py [NETWORK ...]``.

Engines take turns within one session, in a new random order each round, so that a machine whose speed
drifts is as fair to one as to the other. What counts is the ratio of medians; single times move with the
neighbours.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).parents[1]))

import edgepack
from edgepack.frontend.binding import bind
from edgepack.frontend.sampling import random_inputs
from tests.models import DIMS, NETWORKS, build

DEFAULT_NETWORKS = [
    "resnet18",
    "resnet50",
    "mobilenetv2",
    "light_squeezenet",
    "light_densenet121",
    "bert",
    "vit",
    "mlp",
]


class Process:
    """An engine that waits for its turn."""

    def __init__(self, engine: str, model: Path, inputs: Path, threads: int) -> None:
        command = [
            sys.executable,
            str(Path(__file__).with_name("engines.py")),
            engine,
            model,
            inputs,
            threads,
        ]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        self.process = subprocess.Popen(
            [str(c) for c in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None and self.process.stdin is not None
        if self.process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{engine} cannot run {model.name}")

    def run(self, runs: int) -> list[float]:
        assert self.process.stdout is not None and self.process.stdin is not None
        self.process.stdin.write(f"{runs}\n")
        self.process.stdin.flush()
        times: list[float] = json.loads(self.process.stdout.readline())
        return times

    def close(self) -> None:
        self.process.communicate("")


class Bundle:
    """The bundle's own program; each turn is a process of its own."""

    def __init__(self, bundle: edgepack.Bundle, threads: int) -> None:
        (self.program,) = (p for p in (bundle.path / "bin").iterdir() if p.is_file())
        self.threads = threads

    def run(self, runs: int) -> list[float]:
        command = [
            str(self.program),
            "bench",
            "--threads",
            str(self.threads),
            "--warmup",
            "2",
            "--runs",
            str(runs),
        ]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
        times: list[float] = json.loads(result.stdout)["runs_ms"]
        return times

    def close(self) -> None:
        pass


def compare(
    name: str, engines: list[str], threads: int, rounds: int, runs: int, folder: Path
) -> dict[str, list[float]]:
    """Times in ms by engine; "edgepack" is the bundle that is packed here."""
    model = build(name)
    bind(model, shapes={}, dims=DIMS.get(name, {}))
    path = folder / f"{name}.onnx"
    onnx.save(model, str(path))
    inputs = folder / f"{name}.npz"
    np.savez(inputs, **random_inputs(model, 0))
    bundle = edgepack.pack(path, "host", folder / f"{name}-bundle", force=True)
    running: dict[str, Bundle | Process] = {"edgepack": Bundle(bundle, threads)}
    for engine in engines:
        try:
            running[engine] = Process(engine, path, inputs, threads)
        except RuntimeError as error:
            print(error, file=sys.stderr)
    times: dict[str, list[float]] = {engine: [] for engine in running}
    order = list(running)
    for turn in range(rounds):
        random.Random(turn).shuffle(order)
        for engine in order:
            times[engine] += running[engine].run(runs)
    for engine in running.values():
        engine.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "networks", nargs="*", default=DEFAULT_NETWORKS, choices=[[], *NETWORKS], metavar="NETWORK"
    )
    parser.add_argument("--engines", default="onnxruntime,tvm", help="comma separated (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each engine per round")
    options = parser.parse_args()
    engines = options.engines.split(",")
    print(f"{options.threads} threads, median ms (and how many times as long as edgepack)\n")
    print("| network | edgepack | " + " | ".join(engines) + " |")
    print("|---" * (len(engines) + 2) + "|")
    for name in options.networks:
        with tempfile.TemporaryDirectory() as folder:
            times = compare(name, engines, options.threads, options.rounds, options.runs, Path(folder))
        own = statistics.median(times["edgepack"])
        cells = [f"{own:.2f}"]
        for engine in engines:
            other = statistics.median(times[engine]) if times.get(engine) else None
            cells.append(f"{other:.2f} ({other / own:.1f}x)" if other else "cannot run")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
