"""Weights in float16 beside weights in float32: size and time.

``python benchmarks/weights.py [--device DEVICE] [--threads N] [CASE...]`` prints bytes of params, the least
time of each in interleaved runs, and their ratio. Cases are products, rows x depth x columns, and networks.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).parents[1]))

import edgepack
from benchmarks.networks import BENCHMARKS
from workbench.models import save
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs

#: A classifier's product of one row, which memory bounds; the products of a layer of BERT base, 128 tokens.
CASES = ("1x4096x4096", "128x768x768", "128x768x3072", "mobilenetv2", "resnet18", "bert")

#: How each is packed: name, options.
FORMS = {
    "float32": {"weights": "float32", "optimize": "size"},
    "float16": {"weights": "float16", "optimize": "size"},
}


def _model(case: str) -> onnx.ModelProto:
    if case in BENCHMARKS:
        return BENCHMARKS[case]()
    rows, depth, columns = (int(n) for n in case.split("x"))
    g = Graph("product", seed=0)
    g.op("MatMul", g.input("x", [rows, depth]), g.weight(depth, columns), name="y")
    g.output("y")
    return g.model()


def _measure(case: str, device: str, threads: int, seconds: float) -> None:
    model = _model(case)
    inputs = random_inputs(model, 0)
    with tempfile.TemporaryDirectory(prefix="edgepack-") as name:
        folder = Path(name)
        path = save(model, folder)
        sessions, sizes = {}, {}
        for form, options in FORMS.items():
            bundle = edgepack.pack(path, device, folder / form, **options)  # type: ignore[arg-type]
            sizes[form] = bundle.manifest.params.nbytes
            sessions[form] = bundle.load(threads=threads)
        times: dict[str, list[float]] = {form: [] for form in sessions}
        end = time.monotonic() + seconds
        while time.monotonic() < end or not times["float16"]:
            for form, session in sessions.items():
                begin = time.perf_counter()
                session.run(inputs)
                times[form].append(time.perf_counter() - begin)
        for session in sessions.values():
            session.close()
    least = {form: 1e3 * float(np.min(values)) for form, values in times.items()}
    ratio = least["float16"] / least["float32"]
    cells = [f"{sizes[form] / 1e6:.1f} MB {least[form]:.3f} ms" for form in FORMS]
    print(f"| {case} | {cells[0]} | {cells[1]} | {ratio:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--device", default="host")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each case")
    arguments = parser.parse_args()
    print("| case | float32 | float16 | time |\n|---|---:|---:|---:|")
    for case in arguments.cases:
        _measure(case, arguments.device, arguments.threads, arguments.seconds)


if __name__ == "__main__":
    main()
