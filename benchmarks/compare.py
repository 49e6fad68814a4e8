"""edgepack against other engines, side by side: ``python benchmarks/compare.py [NETWORK ...]``.

Engines take turns within one session, in a new random order each round, so that a machine whose speed
drifts is as fair to one as to the other. All run on the same CPUs, in float32, batch 1; with one thread the
whole process is bound to one CPU. What counts is the ratio of medians; single times move with the
neighbours.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).parents[1]))

import chart
import peak
from comparison import FLOAT32, Prepared, Result, line, report
from engines import ENGINES, QUANTISED_ENGINES
from markdown import replace_section
from networks import BENCHMARKS, MORE, QUANTISED, QUANTISED_DYNAMICALLY, REAL, folded, known, save
from real_networks import default_cache
from work import work_of

import edgepack
from edgepack.compiler.frontend.onnx.sampling import random_inputs

#: Seconds that one turn of an engine should take; it makes as many runs as fit, within limits.
TURN_SECONDS = 0.25
RUNS = (3, 200)
WARMUP = 3

#: Seconds in which an engine must have loaded the model and run it twice.
READY_SECONDS = 120.0

#: An engine whose single run takes longer, in ms, has one turn of one run and no more.
SLOW_MS = 1500.0


class EngineProcess:
    """An engine that waits for its turn.

    Attributes:
        run_ms: a first estimate.
        error: largest difference from ONNX Runtime's outputs, relative to each output's largest value.
    """

    def __init__(self, engine: str, model: Path, inputs: Path, threads: int, cpus: Sequence[int]) -> None:
        self.outputs = inputs.with_name(f"{engine}-{threads}.npz")
        script = str(Path(__file__).with_name("engines.py"))
        cpu_list = ",".join(map(str, cpus))
        command = [
            sys.executable,
            script,
            engine,
            *map(str, (model, inputs, self.outputs, threads)),
            cpu_list,
        ]
        self.log = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 - lives as long as the process
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )
        timer = threading.Timer(READY_SECONDS, self.process.kill)
        timer.start()
        line = self._line()
        timer.cancel()
        if not line:
            if self.process.wait() == -signal.SIGKILL:
                raise RuntimeError(f"no result within {READY_SECONDS:.0f} s")
            self.log.seek(0)
            last = (self.log.read().strip().splitlines() or ["it ended without a word"])[-1]
            raise RuntimeError(last[:200])
        ready = json.loads(line)
        self.version, self.run_ms = str(ready["version"]), float(ready["run_ms"])

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def run(self, warmup: int, runs: int) -> list[float]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{warmup} {runs}\n")
        self.process.stdin.flush()
        line = self._line()
        if not line:
            raise RuntimeError(f"{self.process.args} died")
        times: list[float] = json.loads(line)
        return times

    def close(self) -> None:
        self.process.communicate("")
        self.log.close()


class Program:
    """The bundle's own program; each turn is a process of its own, bound like the others."""

    def __init__(self, bundle: edgepack.Bundle, threads: int, cpus: Sequence[int]) -> None:
        (self.program,) = (p for p in (bundle.path / "bin").iterdir() if p.is_file())
        self.folder, self.threads, self.cpus = bundle.path / "test", threads, list(cpus)
        self.version = edgepack.__version__
        self.run_ms = statistics.median(self.run(1, 3))

    def run(self, warmup: int, runs: int) -> list[float]:
        command = [self.program, "bench", self.folder, "--threads", self.threads]
        command += ["--warmup", warmup, "--runs", runs]
        result = subprocess.run(
            [str(word) for word in command],
            check=True,
            capture_output=True,
            text=True,
            preexec_fn=partial(os.sched_setaffinity, 0, self.cpus),
        )
        times: list[float] = json.loads(result.stdout)["runs_ms"]
        return times

    def close(self) -> None:
        pass


def prepare(name: str, folder: Path, cache: Path, *, int8: str) -> Prepared:
    """Builds and packs the network; checks the bundle against ONNX Runtime.

    Args:
        int8: quantise it first: "static", calibrated with random inputs (for speed these are as good as any),
            or "dynamic"; "" for float32.
    """
    original = path = save(name, folder, cache)
    if int8:
        path = folder / f"{original.stem}-{int8}.onnx"
        scales = {"dynamic": True} if int8 == "dynamic" else {"calibrate": "synthetic"}
        edgepack.quantize(original, path, force=True, **scales)
    inputs = folder / f"{path.stem}.npz"
    values = random_inputs(onnx.load(str(path)), 0)
    np.savez(inputs, **values)
    begin = time.perf_counter()
    bundle = edgepack.pack(path, "host", folder / f"{path.stem}-bundle", force=True)
    pack_seconds = time.perf_counter() - begin
    work = work_of(folded(original), values)
    prepared = Prepared(name, path, inputs, bundle, work, pack_seconds)
    if int8:
        prepared.types = "int8 (dynamic, u8 x s8)" if int8 == "dynamic" else "int8 (QDQ, u8 x s8)"
        prepared.float32 = edgepack.pack(original, "host", folder / f"{original.stem}-bundle", force=True)
    verified = bundle.verify()
    if not verified.ok:
        raise RuntimeError(f"{name}: edgepack's outputs are wrong: {verified.outputs}")
    prepared.errors["edgepack"] = max(o.max_abs_err / max(o.max_abs_ref, 1e-30) for o in verified.outputs)
    return prepared


def compare(network: Prepared, engines: Sequence[str], threads: int, rounds: int) -> Result:
    """Lets edgepack and the engines take turns."""
    cpus = sorted(os.sched_getaffinity(0))[-threads:]
    running: dict[str, Program | EngineProcess] = {"edgepack": Program(network.bundle, threads, cpus)}
    if network.float32 is not None:
        running[FLOAT32] = Program(network.float32, threads, cpus)
    times: dict[str, list[float]] = {}
    try:
        for engine in engines:
            if engine in network.refusals:
                continue
            try:
                running[engine] = EngineProcess(engine, network.model, network.inputs, threads, cpus)
            except RuntimeError as error:
                network.refusals[engine] = str(error)
        _check(network, running)
        times = {engine: [] for engine in running}
        order = list(running)
        for turn in range(rounds):
            random.Random(turn).shuffle(order)
            for engine in order:
                process = running[engine]
                if process.run_ms > SLOW_MS:
                    times[engine] += process.run(0, 1) if turn == 0 else []
                    continue
                runs = int(TURN_SECONDS * 1e3 / max(process.run_ms, 1e-3))
                times[engine] += process.run(WARMUP, min(max(runs, RUNS[0]), RUNS[1]))
    finally:
        for process in running.values():
            process.close()
    return Result(network, threads, times)


def _check(network: Prepared, running: dict[str, Program | EngineProcess]) -> None:
    """Compares each engine's outputs with ONNX Runtime's, and keeps versions. Who computes something else
    is no peer."""

    def outputs(engine: str) -> list[np.ndarray]:
        process = running[engine]
        assert isinstance(process, EngineProcess)
        with np.load(process.outputs) as arrays:
            return [arrays[name].ravel().astype(np.float64) for name in arrays.files]

    for engine, process in list(running.items()):
        network.versions[engine] = process.version
        if isinstance(process, Program) or "onnxruntime" not in running:
            continue
        found, wanted = outputs(engine), outputs("onnxruntime")
        if [a.size for a in found] != [b.size for b in wanted]:
            network.refusals[engine] = "its outputs have other sizes"
        else:
            pairs = zip(found, wanted, strict=True)
            error = max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)
            network.errors[engine] = error
            # Other engines' sums of bytes may saturate on CPUs without VNNI, and steps be rounded otherwise.
            if not error < (1e-2 if network.float32 is None else 0.5):
                network.refusals[engine] = f"it differs from ONNX Runtime by {error:.1e}"
        if engine in network.refusals:
            running.pop(engine).close()


@contextmanager
def alone() -> Iterator[None]:
    """Waits until no other comparison runs on this machine."""
    with (Path(tempfile.gettempdir()) / "edgepack-benchmark.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another comparison to end", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = f"default: all of {', '.join(BENCHMARKS)}"
    default += "; also timm/MODEL, torchvision/MODEL, transformers/NAME, or an ONNX file"
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=default)
    parser.add_argument("--more", action="store_true", help=f"instead {', '.join(MORE)}")
    parser.add_argument("--real", action="store_true", help=f"instead {', '.join(REAL)}")
    parser.add_argument(
        "--int8",
        action="store_const",
        const="static",
        default="",
        help=f"instead {', '.join(QUANTISED)}, or the named ones, quantised by edgepack quantize",
    )
    parser.add_argument(
        "--dynamic",
        action="store_const",
        const="dynamic",
        dest="int8",
        help=f"as --int8, of {', '.join(QUANTISED_DYNAMICALLY)}, by quantize --dynamic",
    )
    parser.add_argument(
        "--cache", type=Path, default=default_cache(), help="of real_networks.py (default: %(default)s)"
    )
    parser.add_argument("--engines", default=",".join(ENGINES), help="comma separated (default: %(default)s)")
    parser.add_argument("--threads", default="1,2", help="comma separated (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--folder", type=Path, help="where models and bundles are kept (default: nowhere)")
    parser.add_argument(
        "--write",
        action="store_true",
        help="put the tables into notes/, and draw the charts of docs/performance.md",
    )
    parser.add_argument("--json", type=Path, help="write all times to this file too")
    options = parser.parse_args()
    engines = [engine for engine in options.engines.split(",") if engine]
    if options.int8:
        engines = [engine for engine in engines if engine in QUANTISED_ENGINES]
    quantised = {"": (), "static": QUANTISED, "dynamic": QUANTISED_DYNAMICALLY}[options.int8]
    chosen = quantised or (REAL if options.real else MORE if options.more else BENCHMARKS)
    names = options.networks or list(chosen)
    if unknown := {name for name in names if not known(name)} | {*engines} - {*ENGINES}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    with alone():
        run(options, names, engines)


def run(options: argparse.Namespace, names: Sequence[str], engines: Sequence[str]) -> None:
    """The whole comparison."""
    machine = peak.measure()
    networks: list[Prepared] = []
    results: dict[int, list[Result]] = {int(threads): [] for threads in options.threads.split(",")}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            print(f"{name}: load {os.getloadavg()[0]:.1f}", end="", flush=True)
            try:
                network = prepare(name, folder, options.cache, int8=options.int8)
            except Exception as error:  # one network that fails must not cost the others' numbers
                print(f"\nedgepack fails on {name}: {error}", flush=True)
                continue
            networks.append(network)
            print(f", packed in {network.pack_seconds:.0f} s", flush=True)
            for threads, found in results.items():
                found.append(compare(network, engines, threads, options.rounds))
                print(f"  {threads}: " + line(found[-1]), flush=True)
    if not networks:
        sys.exit(1)
    text = report(results, networks, engines, machine, options.rounds)
    print("\n" + text)
    if options.write:
        section = "Real networks" if options.real else "More networks" if options.more else "Side by side"
        section = {"static": "Quantised networks", "dynamic": "Dynamically quantised networks"}.get(
            options.int8, section
        )
        replace_section(section, text, "compare.py")
        chart.write()
    if options.json:
        data = {t: {r.network.name: r.times for r in found} for t, found in results.items()}
        options.json.write_text(json.dumps(data), encoding="utf-8")


if __name__ == "__main__":
    main()
