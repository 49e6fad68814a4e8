"""Greedy decoders beside ONNX Runtime, loops that append a token with each trip:
``python benchmarks/decoders.py``.

Each model of workbench/models/decoders.py is packed for this machine with room for its longest sequence, and
timed on one thread, ``Session.run`` and ``InferenceSession.run`` in turns in one process, by the trips that
it makes. Tokens are compared. Times are medians of the turns, and ratios medians of those of the turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown import table

import edgepack
from workbench.models.decoders import DECODERS, SMALL, Sizes, decoder, lists_of_tokens

#: What is measured, and the most trips.
SIZES = {"small": SMALL, "middle": Sizes(words=2000, width=256, heads=4, layers=2, places=128)}
TRIPS = 64

#: Seconds of a turn of one engine.
TURN_SECONDS = 0.1


def timed(run: Callable[[], object]) -> float:
    """Microseconds of a call, of as many as a turn has time for."""
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < TURN_SECONDS:
        run()
        calls += 1
    return 1e6 * (time.perf_counter() - start) / calls


def measured(kind: str, size: Sizes, folder: Path, rounds: int) -> list[tuple[int, float, float, float]]:
    """By number of trips, microseconds of edgepack and of ONNX Runtime, and their ratio."""
    model = decoder(kind, size)
    file = folder / f"{kind}.onnx"
    onnx.save(model, file)
    room = {"tokens": TRIPS + 1}
    bundle = edgepack.pack(file, device="host", output=folder / "bundle", maxima=room, force=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    reference = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    found = []
    with edgepack.load(bundle, threads=1) as session:
        for trips in (1, TRIPS // 4, TRIPS):
            inputs = lists_of_tokens(model, -99, 0, trips)
            tokens, count = session.run(inputs).values()
            (expected,) = reference.run(None, inputs)
            if int(count) != expected.shape[1] or not np.array_equal(tokens[:, : int(count)], expected):
                sys.exit(f"{kind}: other tokens than ONNX Runtime's")
            runs = (partial(session.run, inputs), partial(reference.run, None, inputs))
            pairs = [tuple(timed(run) for run in runs) for _ in range(rounds)]
            ratio = statistics.median(theirs / ours for ours, theirs in pairs)
            ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
            found.append((trips, ours, theirs, ratio))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", default=",".join(DECODERS))
    parser.add_argument("--sizes", default=",".join(SIZES))
    arguments = parser.parse_args()
    rows = []
    for name in arguments.sizes.split(","):
        for kind in arguments.kinds.split(","):
            with tempfile.TemporaryDirectory() as folder:
                for trips, *times in measured(kind, SIZES[name], Path(folder), arguments.rounds):
                    ours, theirs, ratio = times
                    title = f"{kind}, {name}"
                    rows.append([title, f"{trips}", f"{ours:.0f}", f"{theirs:.0f}", f"{ratio:.2f}"])
    print(table(["decoder", "trips", "edgepack µs", "ONNX Runtime µs", "times as long"], rows))


if __name__ == "__main__":
    main()
