"""One operator at a time beside ONNX Runtime: ``python benchmarks/operators.py [ROW ...]``.

The rows are those of ``workbench/models/realistic``; ROW is a part of a name or an operator. Each is packed
for x86-64 with SSE2, AVX2 and AVX-512 as far as this CPU goes, and runs in this process, in turns with ONNX
Runtime, on one thread and on two. What is printed is the least time of each in ms, and how many times as
long ONNX Runtime takes, which always has all vectors that the CPU has; the last column says where a row is
behind, and for what: narrower vectors, or what the row knows of a device. ``--guard`` fails where the ratio
is less than 0.5, or less than what the narrower vectors of the device leave of it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).parents[1]))

import edgepack
from benchmarks.markdown import table
from edgepack.client.session import Session
from edgepack.compiler.frontend.onnx.output_facts import tolerances
from edgepack.config.device import load_device
from edgepack.errors import EdgepackError
from edgepack.runners import native
from workbench.models.realistic import ROWS, Row

__all__ = ["DEVICES", "LEAST_RATIO", "Measured", "chosen_rows", "measure", "pack_rows", "ready_devices"]

DEVICES = ("linux-x86_64", "linux-x86_64-v3", "linux-x86_64-v4")

#: A row fails the guard below this ratio where both have the same vectors.
LEAST_RATIO = 0.5

#: Seconds of one turn of one engine, and how long its threads are given to fall asleep.
TURN_SECONDS, PAUSE_SECONDS = 0.006, 0.001

#: A single run that takes longer has one turn of two runs.
SLOW_SECONDS = 0.05

Run = Callable[[], object]


@dataclass
class Measured:
    """Of one row.

    Attributes:
        ms: least times, by engine (a device's name, ``onnxruntime``) and number of threads.
        rules: of its kernels, by device.
        notes: what went wrong.
    """

    row: Row
    ms: dict[tuple[str, int], float] = field(default_factory=dict)
    rules: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def ratio(self, device: str, threads: int) -> float | None:
        """How many times as long as edgepack ONNX Runtime takes."""
        own, peer = self.ms.get((device, threads)), self.ms.get(("onnxruntime", threads))
        return peer / own if own and peer else None

    @property
    def least_ratio(self) -> float:
        """Over threads and the devices on which nothing excuses the row, each by the part of this CPU's
        vectors that the device has."""
        least = np.inf
        for device, threads in self.ms:
            if device != "onnxruntime" and device not in self.row.why_slow:
                least = min(least, (self.ratio(device, threads) or 0) / vector_part(device))
        return float(least)

    def narrower(self, devices: Iterable[str]) -> list[str]:
        """Of the devices on which it is behind for no more than their narrower vectors: what part they have
        of this CPU's, all of which ONNX Runtime uses."""
        found = []
        for device in devices:
            ratios = [self.ratio(name, threads) or 0 for name, threads in self.ms if name == device]
            part = vector_part(device)
            if ratios and part <= min(ratios) < 1 and device not in self.row.why_slow:
                found.append(f"{device.removeprefix('linux-')}: {part:.2g} of the vectors' width")
        return found


def vector_part(device: str) -> float:
    """How wide a device's vectors are, as a part of this CPU's."""
    return load_device(device).cpu_target().vector_bits / load_device("host").cpu_target().vector_bits


def ready_devices(names: Iterable[str] = DEVICES) -> list[str]:
    """Those that this machine's CPU can run."""
    return [name for name in names if native.available(load_device(name))[0]]


def chosen_rows(parts: Sequence[str]) -> list[Row]:
    """The rows with one of these in their name, or of one of these operators; all, if there are none."""
    rows = list(ROWS.values())
    if not parts:
        return rows
    return [row for row in rows if any(part.lower() in row.name for part in parts)]


def pack_rows(
    rows: Sequence[Row], devices: Sequence[str], folder: Path
) -> Iterator[tuple[Row, Path, dict[str, edgepack.Bundle | EdgepackError]]]:
    """Each row with its model's file and its bundles, in order; the next ones are packed meanwhile."""

    def pack(row: Row) -> tuple[Path, dict[str, edgepack.Bundle | EdgepackError]]:
        place = folder / row.name.replace(" ", "-").replace(",", "").replace(":", "")
        place.mkdir(parents=True, exist_ok=True)
        path = place / "model.onnx"
        onnx.save(row.model(), str(path))
        found: dict[str, edgepack.Bundle | EdgepackError] = {}
        for device in devices:
            try:
                found[device] = edgepack.pack(path, device, place / device, force=True)
            except EdgepackError as error:
                found[device] = error
        return path, found

    with ThreadPoolExecutor(2) as pool:
        packed = [pool.submit(pack, row) for row in rows]
        for row, future in zip(rows, packed, strict=True):
            yield row, *future.result()


def measure(
    row: Row,
    path: Path,
    bundles: Mapping[str, edgepack.Bundle | EdgepackError],
    threads: Sequence[int],
    rounds: int,
) -> Measured:
    """Lets the bundles of a row and ONNX Runtime take turns."""
    measured = Measured(row)
    model = onnx.load(str(path))
    inputs = row.inputs(model)
    for count in threads:
        expected, run = _onnxruntime(path, inputs, count)
        engines: dict[str, Run] = {"onnxruntime": run}
        sessions = []
        for device, bundle in bundles.items():
            if isinstance(bundle, EdgepackError):
                note = f"{device}: {bundle}".splitlines()[0]
                measured.notes += [note] if note not in measured.notes else []
                continue
            measured.rules[device] = list(dict.fromkeys(k.rule for k in bundle.manifest.kernels))
            session = Session(bundle, threads=count)
            sessions.append(session)
            engines[device], outputs = _prepared(session, inputs)
            engines[device]()
            if wrong := _difference(model, outputs, expected):
                measured.notes.append(f"{device}: {wrong}")
        for engine, seconds in _take_turns(engines, rounds).items():
            measured.ms[engine, count] = 1e3 * seconds
        for session in sessions:
            session.close()
    return measured


def _take_turns(engines: Mapping[str, Run], rounds: int) -> dict[str, float]:
    """Least seconds of a run of each."""
    least = {}
    for name, run in engines.items():
        run()
        least[name] = _timed(run)
    for _ in range(rounds):
        for name, run in engines.items():
            time.sleep(PAUSE_SECONDS)
            if least[name] > SLOW_SECONDS:
                least[name] = min(least[name], _timed(run)) if rounds else least[name]
                continue
            run()
            end = time.perf_counter() + TURN_SECONDS
            while time.perf_counter() < end:
                least[name] = min(least[name], _timed(run))
    return least


def _timed(run: Run) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _onnxruntime(path: Path, inputs: Mapping[str, np.ndarray], threads: int) -> tuple[list[np.ndarray], Run]:
    """Its outputs, and one run with inputs and outputs that are bound once."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    expected = session.run(None, dict(inputs))
    bound = session.io_binding()
    for name, array in inputs.items():
        bound.bind_cpu_input(name, array)
    outputs = [onnxruntime.OrtValue.ortvalue_from_numpy(np.array(array, order="C")) for array in expected]
    for spec, value in zip(session.get_outputs(), outputs, strict=True):
        bound.bind_ortvalue_output(spec.name, value)
    return expected, lambda: session.run_with_iobinding(bound)


def _prepared(session: Session, inputs: Mapping[str, np.ndarray]) -> tuple[Run, list[np.ndarray]]:
    """One run of a bundle into the same arrays each time, and these."""
    arrays = [np.ascontiguousarray(inputs[spec.name]) for spec in session.inputs]
    results = [_aligned(spec.shape, spec.dtype) for spec in session.outputs]
    pool = session._pool
    assert pool is not None
    (call,) = pool.calls
    for index, array in enumerate((*arrays, *results)):
        call.words[2 * index] = array.ctypes.data
    kept = (arrays, results)

    def run() -> object:
        assert kept
        return call.function(*call.arguments)

    return run, results


def _aligned(shape: Sequence[int], dtype: str) -> np.ndarray:
    nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    raw = np.zeros(nbytes + 64, np.uint8)
    begin = -raw.ctypes.data % 64
    return raw[begin : begin + nbytes].view(dtype).reshape(shape)


def _difference(
    model: onnx.ModelProto, outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]
) -> str | None:
    """In words, if outputs are not ONNX Runtime's, under the tolerance that a bundle records."""
    for (name, limit), got, want in zip(tolerances(model).items(), outputs, expected, strict=True):
        with np.errstate(invalid="ignore"):
            got64, want64 = got.astype(np.float64), want.astype(np.float64)
            same = (got64 == want64) | (np.isnan(got64) & np.isnan(want64))
            difference = np.where(same, 0, np.abs(got64 - want64))
        scale = np.abs(want64[np.isfinite(want64)]).max(initial=0)
        allowed = (
            float(limit)
            if isinstance(limit, int)
            else max(limit.relative * scale, limit.floor) + limit.relative_each * np.abs(want64)
        )
        if not np.all(difference <= allowed):
            return f"{name} differs by {np.nanmax(difference):.2g} of {scale:.2g}"
    return None


def _report(measured: Sequence[Measured], devices: Sequence[str], threads: Sequence[int]) -> str:
    header = ["operator", "threads", "ONNX Runtime ms"]
    header += [text for d in devices for text in (d.removeprefix("linux-"), "ratio")]
    rows = []
    for one in measured:
        for count in threads:
            cells = [one.row.name, str(count), _number(one.ms.get(("onnxruntime", count)))]
            for device in devices:
                cells += [_number(one.ms.get((device, count))), _number(one.ratio(device, count), 2)]
            excuses = [reason for device, reason in one.row.why_slow.items() if device in devices]
            rules = ", ".join(dict.fromkeys(rule for found in one.rules.values() for rule in found))
            rows.append([*cells, rules, "; ".join([*one.notes, *excuses, *one.narrower(devices)])])
    return table([*header, "rules", ""], rows)


def _number(value: float | None, digits: int = 4) -> str:
    return "" if value is None else f"{value:.{digits}f}" if digits == 2 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--devices", default=",".join(DEVICES), help="comma separated (default: %(default)s)")
    parser.add_argument("--threads", default="1,2", help="comma separated (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--guard", action="store_true", help=f"fail where a ratio is under {LEAST_RATIO}")
    parser.add_argument("--worst", action="store_true", help="order the table by ratio")
    parser.add_argument("--folder", type=Path, help="where models and bundles are kept (default: nowhere)")
    options = parser.parse_args()
    devices = ready_devices(options.devices.split(","))
    threads = [int(count) for count in options.threads.split(",")]
    if not (rows := chosen_rows(options.rows)):
        parser.error(f"no row has a name with {' or '.join(options.rows)}")
    found: list[Measured] = []
    with tempfile.TemporaryDirectory() as temporary:
        for row, path, bundles in pack_rows(rows, devices, options.folder or Path(temporary)):
            one = measure(row, path, bundles, threads, options.rounds)
            found.append(one)
            ratios = [f"{one.ratio(d, n) or 0:.2f}" for n in threads for d in devices]
            print(f"{row.name}: {' '.join(ratios)} {'; '.join(one.notes)}", file=sys.stderr, flush=True)
    if options.worst:
        found.sort(key=lambda one: one.least_ratio)
    print(_report(found, devices, threads))
    slow = [one for one in found if one.least_ratio < LEAST_RATIO]
    if options.guard and slow:
        sys.exit(f"under {LEAST_RATIO} of ONNX Runtime: {', '.join(one.row.name for one in slow)}")


if __name__ == "__main__":
    main()
