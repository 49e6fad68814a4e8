"""edgepack against onnxruntime-web in node: ``python benchmarks/web.py [NETWORK ...] [--int8] [--write]``.

Both take turns in one process of node on one CPU, in a new random order each round; one thread, SIMD, batch
1, float32 or int8. With ``--threads N`` it is edgepack's npm package on one thread and on N, and
onnxruntime-web on N, on N CPUs. node's engine is V8, that of Chrome. onnxruntime-web is installed with npm on
the first run.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown import note, replace_section, table
from networks import BENCHMARKS, save

import edgepack
from edgepack.system.paths import cache_dir, find_program

NETWORKS = ("mobilenetv2", "resnet18")
DEVICES = ("wasm32-wasi", "wasm32-wasi-relaxed")
SCRIPT = Path(__file__).with_name("web.mjs")
#: Of onnxruntime-web: the smallest build with SIMD, and its JavaScript for node.
PEER_WASM, PEER_LIBRARY = "ort-wasm-simd-threaded.wasm", "ort.node.min.mjs"


def peer_folder() -> Path:
    """The folder ``dist`` of onnxruntime-web, which is installed if it is not there."""
    root = cache_dir() / "benchmarks" / "web"
    dist = root / "node_modules" / "onnxruntime-web" / "dist"
    if not (dist / PEER_WASM).is_file():
        root.mkdir(parents=True, exist_ok=True)
        (root / "package.json").write_text('{"private": true}\n')
        subprocess.run(["npm", "install", "--silent", "onnxruntime-web"], cwd=root, check=True)
    return dist


def measure(name: str, folder: Path, dist: Path, seconds: float, *, int8: bool) -> dict[str, Any]:
    """Packs the network and times it: engine -> median ms, bytes, and the error against onnxruntime-web.

    Args:
        int8: quantise it first, calibrated with random inputs: for speed these are as good as any.
    """
    model = save(name, folder)
    if int8:
        source, model = model, folder / f"{name}-int8.onnx"
        edgepack.quantize(source, model, calibrate="synthetic")
    peer = {"name": "onnxruntime-web", "kind": "onnxruntime", "model": str(model)}
    engines: list[dict[str, Any]] = [{**peer, "library": str(dist / PEER_LIBRARY)}]
    result: dict[str, Any] = {"network": name}
    for device in DEVICES:
        bundle = edgepack.pack(model, device, folder / f"{name}-{device}", name=name)
        module = bundle.manifest.artifact("shared")
        assert module is not None and bundle.manifest.params.file is not None
        path = bundle.path / module.path
        engines.append(
            {
                "name": device,
                "kind": "edgepack",
                "module": str(path),
                "params": str(bundle.path / bundle.manifest.params.file),
            }
        )
        result[f"{device} bytes"] = (path.stat().st_size, len(gzip.compress(path.read_bytes(), 9)))
    for engine in run_engines(bundle, engines, folder, seconds):
        # Of integers: both round floats that lie next to the middle of two steps, each in its own way.
        assert engine["error"] < (0.1 if int8 else 1e-4), engine
        result[engine["name"]] = statistics.median(engine["runs_ms"])
    return result


def run_engines(
    bundle: edgepack.Bundle, engines: list[dict[str, Any]], folder: Path, seconds: float
) -> list[dict[str, Any]]:
    """What web.mjs prints of engines that take turns on the bundle's recorded input."""
    recorded = bundle.manifest.recorded.inputs[0]
    given = {"name": recorded.name, "shape": recorded.shape, "file": str(bundle.path / recorded.file)}
    job = folder / "job.json"
    job.write_text(json.dumps({"seconds": seconds, "input": given, "engines": engines}))
    command = [find_program("node") or "node", "--experimental-wasm-relaxed-simd", str(SCRIPT), str(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{bundle.manifest.name}: node failed\n{done.stdout}{done.stderr}")
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure_threads(name: str, folder: Path, dist: Path, seconds: float, threads: int) -> list[str]:
    """Packs the network and times its npm package on one thread and on several: a row of the table."""
    model = save(name, folder)
    bundle = edgepack.pack(model, DEVICES[0], folder / f"{name}-{DEVICES[0]}", name=name)
    package = {"kind": "package", "index": str(bundle.path / "index.js")}
    peer = {"kind": "onnxruntime", "library": str(dist / PEER_LIBRARY), "model": str(model)}
    counts = [1] if bundle.manifest.web_threads is None else [1, threads]
    engines = [{"name": f"{n}", "threads": n, **package} for n in counts]
    engines.append({"name": "peer", "threads": threads, **peer})
    found = {engine["name"]: engine for engine in run_engines(bundle, engines, folder, seconds)}
    assert all(engine["error"] < 1e-4 for engine in found.values()), found
    times = {key: statistics.median(engine["runs_ms"]) for key, engine in found.items()}
    alone, several = times["1"], times.get(f"{threads}")
    best = alone if several is None else several
    return [
        *(name, f"{bundle.manifest.flops / 1e6:.0f}", f"{alone:.2f}"),
        *(["no module", ""] if several is None else [f"**{several:.2f}**", f"{alone / several:.2f}"]),
        *(f"{times['peer']:.2f}", f"{times['peer'] / best:.2f}"),
        " + ".join(f"{found[f'{n}']['load_ms']:.0f}" for n in counts),
    ]


def render_threads(rows: list[list[str]], threads: int) -> str:
    """The section of notes/ about threads."""
    header = [
        *("median ms", "MFLOP", "one thread", f"{threads} threads", "times faster"),
        *(f"onnxruntime-web, {threads} threads", "times as long", "ms to load: one thread, then several"),
    ]
    return (
        f"Measured on {datetime.date.today()} in node {node_version()} on {threads} CPUs of {cpu_name()}: "
        f"edgepack {edgepack.__version__}'s npm package for {DEVICES[0]}, SIMD, batch 1, float32; the "
        f"engines take turns.\n\n{table(header, rows)}"
    )


def compare_threads(options: argparse.Namespace, folder: Path, dist: Path) -> None:
    """Measure with threads, print, and write if asked to."""
    threads = options.threads
    rows = [measure_threads(name, folder, dist, options.seconds, threads) for name in options.networks]
    text = render_threads(rows, threads)
    print(text)
    if options.write:
        section = "Threads in WebAssembly"
        replace_section(section, text, f"web.py --threads {threads}", note("WebAssembly"))


def node_version() -> str:
    """``v20.20.2``."""
    return subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def cpu_name() -> str:
    """The name of this machine's CPU."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "a CPU")


def render(results: list[dict[str, Any]], dist: Path, *, int8: bool) -> str:
    """The section of notes/."""
    version = json.loads((dist.parent / "package.json").read_text())["version"]
    wasm = (dist / PEER_WASM).read_bytes()
    theirs = (len(wasm), len(gzip.compress(wasm, 9)))
    rows = []
    for result in results:
        peer, ours, relaxed = (result[key] for key in ("onnxruntime-web", *DEVICES))
        nbytes = result[f"{DEVICES[0]} bytes"]
        rows.append(
            [
                *(result["network"], f"{peer:.1f}", f"**{ours:.1f}**", f"{peer / ours:.2f}"),
                *(f"{relaxed:.1f}", f"{peer / relaxed:.2f}"),
                *(f"{nbytes[0] / 1e3:.0f} ({nbytes[1] / 1e3:.0f})", f"{theirs[1] / nbytes[1]:.0f}"),
            ]
        )
    header = [
        *("median ms", "onnxruntime-web", "edgepack", "times faster", "with relaxed SIMD", "times faster"),
        *("kB of wasm (gzipped)", "times smaller, gzipped"),
    ]
    types = "int8 (QDQ, u8 x s8)" if int8 else "float32"
    return (
        f"Measured on {datetime.date.today()} in node {node_version()} on one CPU of {cpu_name()}: edgepack "
        f"{edgepack.__version__}, onnxruntime-web {version} (its wasm: {theirs[0] / 1e6:.1f} MB, "
        f"{theirs[1] / 1e6:.1f} MB gzipped), one thread, SIMD, batch 1, {types}; the engines take turns. "
        f"Sizes are without weights and without JavaScript.\n\n{table(header, rows)}"
    )


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=NETWORKS, help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--seconds", type=float, default=20, help="for each network")
    parser.add_argument("--int8", action="store_true", help="quantised by edgepack quantize")
    parser.add_argument("--threads", type=int, default=1, help="compare one thread with so many")
    parser.add_argument("--write", action="store_true", help="into notes/")
    options = parser.parse_args()
    dist = peer_folder()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-options.threads :])
    with tempfile.TemporaryDirectory(prefix="edgepack-web-") as folder:
        if options.threads > 1:
            compare_threads(options, Path(folder), dist)
            return
        results = [
            measure(name, Path(folder), dist, options.seconds, int8=options.int8) for name in options.networks
        ]
    text = render(results, dist, int8=options.int8)
    print(text)
    if options.write:
        section = "Quantised networks in WebAssembly" if options.int8 else "WebAssembly"
        replace_section(section, text, "web.py --int8" if options.int8 else "web.py")


if __name__ == "__main__":
    main()
