"""What a comparison of engines found, and its tables in Markdown."""

from __future__ import annotations

import datetime
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import peak
from markdown import table
from work import Work

import edgepack

__all__ = ["FLOAT32", "Prepared", "Result", "line", "report"]

#: edgepack's own time in float32, beside quantised networks.
FLOAT32 = "edgepack float32"


@dataclass
class Prepared:
    """A network that is packed and has inputs; what each engine gave.

    Attributes:
        float32: of a quantised network, the bundle of the model that it was made from.
        types: what its products are of.
    """

    name: str
    model: Path
    inputs: Path
    bundle: edgepack.Bundle
    work: Work
    pack_seconds: float
    float32: edgepack.Bundle | None = None
    types: str = "float32"
    errors: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)


@dataclass
class Result:
    """Times in ms by engine, on so many threads."""

    network: Prepared
    threads: int
    times: dict[str, list[float]]

    def median(self, engine: str) -> float:
        return statistics.median(self.times[engine])

    @property
    def best_peer(self) -> str:
        return min((e for e in self.times if e not in {"edgepack", FLOAT32}), key=self.median, default="")

    @property
    def ratio(self) -> float:
        """How many times as long as edgepack the best peer takes."""
        return self.median(self.best_peer) / self.median("edgepack") if self.best_peer else math.nan


def line(result: Result) -> str:
    """The engines' medians in ms, the fastest first, and the ratio."""
    ordered = sorted(result.times, key=result.median)
    return ", ".join(f"{e} {_milliseconds(result.median(e))}" for e in ordered) + f"; {result.ratio:.2f}"


def _milliseconds(value: float) -> str:
    return f"{value:.4f}" if value < 0.1 else f"{value:.3f}" if value < 1 else f"{value:.2f}"


def times_table(results: Sequence[Result], engines: Sequence[str]) -> str:
    """Medians, and how many times as long as edgepack the best peer takes."""
    rows = []
    own = ["edgepack", *([FLOAT32] if any(FLOAT32 in result.times for result in results) else [])]
    for result in results:
        cells = []
        for engine in [*own, *engines]:
            if engine in result.times:
                text = _milliseconds(result.median(engine))
                cells.append(f"**{text}**" if engine in ("edgepack", result.best_peer) else text)
            else:
                cells.append("cannot run")
        rows.append([result.network.name, *cells, f"{result.ratio:.2f} ({result.best_peer})"])
    mean = math.exp(statistics.fmean(math.log(r.ratio) for r in results if r.ratio == r.ratio))
    rows.append(["geometric mean", *[""] * (len(engines) + len(own)), f"**{mean:.2f}**"])
    return table(["median ms", *own, *engines, "best peer / edgepack"], rows)


def bounds_table(results: Sequence[Result], machine: peak.Machine) -> str:
    """Least times by operations and bytes, and how near edgepack is."""
    rows = []
    for result in results:
        work, threads = result.network.work, result.threads
        median = result.median("edgepack")
        least = work.least_ms(machine, threads)
        rows.append(
            [
                result.network.name,
                f"{work.flops / 1e9:.3g}",
                f"{work.least_flops / 1e9:.3g}",
                f"{work.weight_bytes / 1e6:.3g}",
                _milliseconds(work.flops_ms(machine, threads)),
                _milliseconds(work.bytes_ms(machine, threads)),
                _milliseconds(least),
                _milliseconds(median),
                f"{least / median:.0%}",
                f"{work.flops / median / 1e6 / machine.peak(threads):.0%}",
            ]
        )
    header = ["", "GFLOP", "after Winograd", "weights MB", "ms by FLOPs", "ms by bytes", "least ms"]
    return table([*header, "edgepack ms", "least / edgepack", "direct FLOPs of peak"], rows)


def errors_table(networks: Sequence[Prepared], engines: Sequence[str]) -> str:
    """Differences from ONNX Runtime, and how long packing took."""
    columns = ["edgepack", *(engine for engine in engines if engine != "onnxruntime")]
    rows = [
        [n.name, *(f"{n.errors[e]:.0e}" if e in n.errors else "" for e in columns), f"{n.pack_seconds:.0f}"]
        for n in networks
    ]
    return table(["error / largest output", *columns, "edgepack packs in s"], rows)


def report(
    results: Mapping[int, Sequence[Result]],
    networks: Sequence[Prepared],
    engines: Sequence[str],
    machine: peak.Machine,
    rounds: int,
) -> str:
    """Everything, in Markdown."""
    versions = {name: version for n in networks for name, version in n.versions.items()}
    device = networks[0].bundle.manifest.device
    float32 = networks[0].types == "float32"
    features = " ".join([device.cpu or "baseline", *device.features])
    parts = [
        f"Measured on {datetime.date.today().isoformat()}: median of {rounds} rounds in which the engines "
        f"take turns, batch 1, {networks[0].types}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + ". Peers are called from Python through the cheapest call that they have, which costs them "
        "microseconds: it shows on the two smallest networks only. PyTorch runs eagerly, node by node, after "
        "constants and batch normalisations were folded.",
        f"edgepack compiled for: `{features}`.",
        peak.describe(machine),
    ]
    for threads, found in results.items():
        if found:
            parts += [f"## {threads} thread" + ("s" if threads > 1 else ""), times_table(found, engines)]
            if float32:  # the peak is that of float32
                parts += [bounds_table(found, machine)]
    if float32:
        parts.append(
            "Least time: layer by layer the longer of its operations (after Winograd, transforms not "
            "counted) at peak and its weights at the bandwidth of the cache that holds them all."
        )
    parts += ["## Errors", errors_table(networks, engines)]
    refused = [f"- {e} on {n.name}: {why}" for n in networks for e, why in n.refusals.items()]
    if refused:
        parts += ["Cannot run:", "\n".join(refused)]
    return "\n\n".join(parts)
