"""Two pools of threads in turn: ``PYTHONPATH=build/torch python benchmarks/torch_threads.py``.

A model under torch.compile that alternates between subgraphs that edgepack runs and operators that PyTorch
runs has two pools of threads. Do they get in each other's way? Measured are eight runs of a subgraph, eight
of an operator, and eight of both in alternation, each with two threads. Where neither pool disturbs the
other, the last takes as long as the first two together; printed are the least of several turns in
milliseconds, as it is and with PyTorch's threads told to sleep at once (``OMP_WAIT_POLICY=PASSIVE``).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown import table

REPEATS = 8
POLICIES = ("", "PASSIVE")


def one(threads: int, turns: int) -> dict[str, float]:
    """In this process: least milliseconds of each."""
    import torch
    from torch import nn

    import edgepack.torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    layers = [nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()] * 4
    subgraph = torch.compile(nn.Sequential(*layers).eval(), backend=edgepack.torch.backend)
    x, left = torch.randn(1, 32, 48, 48), torch.randn(384, 384)

    def operator() -> Any:
        return left @ left

    def compiled() -> Any:
        return subgraph(x)

    cases: dict[str, list[Callable[[], Any]]] = {
        "edgepack": [compiled] * REPEATS,
        "PyTorch": [operator] * REPEATS,
        "in alternation": [compiled, operator] * REPEATS,
    }
    least = dict.fromkeys(cases, float("inf"))
    with torch.inference_mode():
        for _ in range(turns):
            for name, calls in cases.items():
                for _ in range(3):
                    begin = time.perf_counter()
                    for call in calls:
                        call()
                    least[name] = min(least[name], 1e3 * (time.perf_counter() - begin))
    return least


def main() -> None:
    """Everything, or what one process does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.one, given.turns)))
        return
    rows = []
    for threads in (1, 2):
        for policy in POLICIES:
            environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
            if policy:
                environment["OMP_WAIT_POLICY"] = policy
            command = [sys.executable, __file__, "--one", str(threads), "--turns", str(given.turns)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(done.stderr[-2000:])
            found = json.loads(done.stdout.splitlines()[-1])
            both = found["in alternation"] / (found["edgepack"] + found["PyTorch"])
            cells = [f"{value:.2f}" for value in found.values()]
            rows.append([str(threads), policy or "as it is", *cells, f"{both:.2f}"])
    print(
        table(["threads", "OMP_WAIT_POLICY", "edgepack", "PyTorch", "in alternation", "of the sum"], rows, 2)
    )


if __name__ == "__main__":
    main()
