"""From the start of a process to the first result, page cache warm: ``python benchmarks/startup.py``.

The bundle's own program against ONNX Runtime in Python, in turns, in three ways: by this script's clock from
spawn to the end of the process ("process"); from the start of the process to the first result, by each
process's own clock ("first result": the interpreter and imports count); and, which favours ONNX Runtime, its
time from the creation of the session to the first result, without Python's start and imports, against the
whole of edgepack's process ("session").
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown import replace_section, table
from networks import BENCHMARKS, save

import edgepack
from edgepack.compiler.frontend.onnx.sampling import random_inputs

#: Names of the three ways.
WAYS = ("process", "first result", "session")


def onnxruntime_once(model: str, inputs: str, threads: str, started: str) -> None:
    """In a process of its own: one session, one run; prints its times in ms as JSON."""
    import onnxruntime

    with np.load(inputs) as arrays:
        values = dict(arrays)
    begin = time.monotonic()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(threads)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    session.run(None, values)
    end = time.monotonic()
    print(json.dumps({"first result": (end - float(started)) * 1e3, "session": (end - begin) * 1e3}))


def _spawn(command: Sequence[object], cpus: Sequence[int]) -> tuple[float, dict[str, Any]]:
    """Time of the process in ms, and the JSON that it printed."""
    begin = time.monotonic()
    arguments = [word(begin) if callable(word) else str(word) for word in command]
    done = subprocess.run(
        arguments,
        check=True,
        capture_output=True,
        text=True,
        preexec_fn=partial(os.sched_setaffinity, 0, cpus),
    )
    return (time.monotonic() - begin) * 1e3, json.loads(done.stdout.splitlines()[-1])


def measure(name: str, threads: int, rounds: int, folder: Path) -> dict[str, dict[str, list[float]]]:
    """Times in ms: engine, then way."""
    cpus = sorted(os.sched_getaffinity(0))[-threads:]
    model = save(name, folder)
    inputs = folder / f"{name}.npz"
    np.savez(inputs, **random_inputs(onnx.load(str(model)), 0))
    bundle = edgepack.pack(model, "host", folder / f"{name}-bundle", force=True)
    (program,) = (p for p in (bundle.path / "bin").iterdir() if p.is_file())
    own = [program, "bench", bundle.path / "test", "--threads", threads, "--warmup", 0, "--runs", 1]
    peer = [sys.executable, __file__, "--once", model, inputs, threads, repr]
    times: dict[str, dict[str, list[float]]] = {e: {w: [] for w in WAYS} for e in ("edgepack", "onnxruntime")}
    for turn in range(rounds + 1):
        for engine, command in (("edgepack", own), ("onnxruntime", peer)):
            process, printed = _spawn(command, cpus)
            if turn == 0:
                continue  # which warms the page cache
            if engine == "edgepack":
                # The program runs once more for its own measurement: that run is not start-up.
                process -= printed["runs_ms"][0]
                printed = dict.fromkeys(WAYS[1:], printed["first_result_ms"])
            found = times[engine]
            found["process"].append(process)
            for way in WAYS[1:]:
                found[way].append(printed[way])
    return times


def main() -> None:
    if sys.argv[1:2] == ["--once"]:
        onnxruntime_once(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="default: resnet18 mobilenetv2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--write", action="store_true", help="put the table into notes/")
    options = parser.parse_args()
    names = options.networks or ["resnet18", "mobilenetv2"]
    if unknown := {*names} - {*BENCHMARKS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    rows = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            times = measure(name, options.threads, options.rounds, Path(folder))
        for way in WAYS:
            own, peer = (statistics.median(times[engine][way]) for engine in ("edgepack", "onnxruntime"))
            rows.append([name, way, f"{own:.2f}", f"{peer:.2f}", f"{peer / own:.1f}"])
    explanation = (
        f"Medians of {options.rounds} processes each, in turns, {options.threads} threads, page cache warm. "
        "Process: spawn to exit. First result: from the start of the process. Session: ONNX Runtime from the "
        "creation of the session, without Python's start and imports, against edgepack from the start of the "
        "process."
    )
    header = ["", "", "edgepack ms", "ONNX Runtime ms", "times sooner"]
    text = table(header, rows, left=2) + "\n\n" + explanation
    print(text)
    if options.write:
        replace_section("Start", text, "startup.py")


if __name__ == "__main__":
    main()
