"""``edgepack bench``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgepack.bundle.text import human_bytes, human_count
from edgepack.cli.output import Settings, print_json, progress, table, verbosity_options

if TYPE_CHECKING:
    from edgepack.bundle.manifest import Manifest
    from edgepack.runners.loader import Measurement

__all__ = ["command"]


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--threads", type=click.IntRange(min=1), help="Threads that compute.  [default: the device's]")
@click.option(
    "--runs", type=click.IntRange(min=1), default=50, show_default=True, help="Runs that are measured."
)
@click.option("--warmup", type=click.IntRange(min=0), default=5, show_default=True, help="Runs before that.")
@click.option("--profile", is_flag=True, help="Measure each step of the model too.")
@click.option("--runner", help="What runs the program.  [default: this machine, or the device's emulator]")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds that the program may take."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@verbosity_options
def command(
    *,
    settings: Settings,
    bundle: Path,
    threads: int | None,
    runs: int,
    warmup: int,
    profile: bool,
    runner: str | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Measure BUNDLE with its own program: latency, memory, load time, time to the first result."""
    from edgepack.api import Bundle

    with progress(settings) as show:
        opened = Bundle(bundle)
        show("bench", f"{opened.manifest.name}, {runs} runs")
        result = opened.bench(
            runner=runner, threads=threads, runs=runs, warmup=warmup, profile=profile, timeout=timeout
        )
    if as_json:
        print_json(result.to_json())
        return
    threads_text = f"{result.threads} thread" + ("s" if result.threads != 1 else "")
    click.echo(f"{opened.manifest.name} on {result.where}, {threads_text}, {len(result.runs_ms)} runs\n")
    click.echo(_table(result, opened.manifest))
    if profile:
        click.echo("\n" + _profile(result, opened.manifest))
    if not result.real_speed:
        click.echo(f"\nnote: {result.runner} is an emulator; its times say nothing about the device's speed.")


def _table(result: Measurement, manifest: Manifest) -> str:
    summary = result.summary
    rows = [
        ["min", f"{summary['min_ms']:.3f} ms"],
        ["median", f"{summary['median_ms']:.3f} ms"],
        ["p90", f"{summary['p90_ms']:.3f} ms"],
        ["p99", f"{summary['p99_ms']:.3f} ms"],
        ["load", f"{result.load_ms:.3f} ms"],
        ["first result", f"{result.first_result_ms:.3f} ms"],
        ["peak memory", human_bytes(result.peak_rss_bytes)],
        ["of it arena", human_bytes(result.arena_bytes)],
    ]
    if manifest.flops and result.real_speed and summary["median_ms"] > 0:
        rows.append(["speed", f"{human_count(manifest.flops / summary['median_ms'] * 1e3)}FLOP/s"])
    return table(rows, right=[1])


def _profile(result: Measurement, manifest: Manifest) -> str:
    """The steps, slowest first, with the rule of their kernels."""
    kernels = {kernel.symbol: kernel for kernel in manifest.kernels}
    total = sum(result.steps_us) or 1.0
    rows = []
    for index, (step, micros) in enumerate(zip(manifest.steps, result.steps_us, strict=True)):
        kernel = kernels[step.kernel]
        speed = f"{human_count(kernel.flops / micros * 1e6)}FLOP/s" if micros > 0 and kernel.flops else ""
        name = ", ".join(step.nodes) or " ".join(kernel.ops)
        rows.append(
            (micros, [str(index), f"{micros:.1f}", f"{micros / total:.1%}", speed, kernel.rule, name[:60]])
        )
    rows.sort(key=lambda row: (-row[0], int(row[1][0])))
    header = ["step", "us", "share", "speed", "rule", "nodes"]
    return table([row for _, row in rows], header=header, right=[0, 1, 2, 3])
