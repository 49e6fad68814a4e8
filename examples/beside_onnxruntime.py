"""Measures a bundle beside ONNX Runtime on its model: ``python examples/beside_onnxruntime.py MODEL BUNDLE``.

Both are called from Python with the bundle's recorded inputs and the same number of threads. They take turns,
and each is closed before the other begins, for threads that wait for work cost the other one time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime

import edgepack

__all__ = ["compare", "main"]

TURNS, WARMUP, RUNS = 5, 5, 20


def _milliseconds(run: Callable[[], object]) -> list[float]:
    """Times of :data:`RUNS` calls after :data:`WARMUP` others."""
    for _ in range(WARMUP):
        run()
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def compare(model: Path, bundle: edgepack.Bundle, threads: int) -> tuple[float, float]:
    """Least times in ms of a run of the bundle, and of ONNX Runtime; other work here lengthens most."""
    recorded = bundle.manifest.recorded.inputs
    inputs = {one.name: np.fromfile(bundle.path / one.file, one.dtype).reshape(one.shape) for one in recorded}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    ours: list[float] = []
    others: list[float] = []
    for _ in range(TURNS):
        with edgepack.load(bundle, threads=threads) as session:
            ours += _milliseconds(lambda session=session: session.run(inputs))  # type: ignore[misc]
        other = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        others += _milliseconds(lambda other=other: other.run(None, inputs))  # type: ignore[misc]
        del other
    return min(ours), min(others)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Measure a bundle beside ONNX Runtime on its model.")
    parser.add_argument("model", type=Path, metavar="MODEL.onnx")
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    ours, other = compare(given.model, edgepack.Bundle(given.bundle), given.threads)
    name = f"ONNX Runtime {onnxruntime.__version__}"
    how = f"least of {TURNS * RUNS} runs in {TURNS} turns, {given.threads} threads"
    print(f"edgepack {ours:.3f} ms, {name} {other:.3f} ms, {other / ours:.2f} times as long ({how})")


if __name__ == "__main__":
    main()
