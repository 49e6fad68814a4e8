"""``edgepack bench``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from typing_extensions import Unpack

from edgepack.cli.catalogue import note_alias
from edgepack.cli.options import json_option, run_options
from edgepack.cli.output import Settings, print_json, progress, say, table, verbosity_options
from edgepack.options import RunKeywords
from edgepack.render.formatting import human_bytes, human_count
from edgepack.text.operators import plain_operators
from edgepack.text.printable import printable

if TYPE_CHECKING:
    from edgepack.runners.bench import Measurement
    from edgepack.runners.instructions import Instructions, StepInstructions
    from edgepack.runners.profile import ProfileEntry

__all__ = ["command"]

#: Characters of a step's nodes that a pipe gets.
_MOST_NODES = 60
#: Median, in milliseconds, below which runs are shown in microseconds.
SHORT_MS = 0.1


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    help="Runs that are measured.  [default: 50; 2 where instructions are counted]",
)
@click.option(
    "--warmup",
    type=click.IntRange(min=0),
    help="Runs before that.  [default: 5; 0 where instructions are counted]",
)
@click.option("--profile", is_flag=True, help="Time each step of the model too; its instructions always are.")
@click.option(
    "--variant",
    metavar="DEVICE",
    help="The kernels to measure, of a bundle for several kinds of CPU.  [default: what this CPU takes]",
)
@click.option(
    "--peak",
    type=click.FloatRange(min=0, min_open=True),
    metavar="GFLOPS",
    help="What one core of the device can do at most in float32; the profile shows the fraction reached.",
)
@run_options
@json_option
@verbosity_options
def command(
    *,
    settings: Settings,
    bundle: Path,
    runs: int | None,
    warmup: int | None,
    profile: bool,
    variant: str | None,
    peak: float | None,
    as_json: bool,
    **options: Unpack[RunKeywords],
) -> None:
    """Measure BUNDLE with its own program: latency, memory, load time, time to the first result.

    Of firmware under an emulator instructions are counted, those of a run and of each step."""
    from edgepack.api import Bundle
    from edgepack.runners.instructions import step_instructions
    from edgepack.runners.profile import profile_entries

    if peak is not None and not profile:
        raise click.UsageError("--peak is for --profile.")
    note_alias(settings, options["device"])
    with progress(settings) as show:
        opened = Bundle(bundle)
        show("bench", opened.manifest.name)
        result = opened.bench(runs=runs, warmup=warmup, profile=profile, variant=variant, **options)
    limit = peak * result.threads if peak is not None else None
    code = opened.manifest.code(result.variant)
    if (counted := result.instructions) is not None:
        if peak is not None:
            raise click.UsageError("--peak is for times; of this bundle instructions are counted.")
        steps = step_instructions(code, counted.steps)
        if as_json:
            print_json({**result.to_json(), "steps": [step.to_json() for step in steps]})
            return
        say(printable(f"{opened.manifest.name} on {result.where}, instructions (exact counts, no times)"))
        say(_counts(counted, result.arena_bytes) + "\n\n" + _counted_steps(steps))
        return
    entries = profile_entries(code, result.steps_us, limit) if profile else []
    if as_json:
        profiled = {"profile": [entry.to_json() for entry in entries]} if profile else {}
        print_json({**result.to_json(), **profiled})
        return
    threads_text = f"{result.threads} thread" + ("s" if result.threads != 1 else "")
    taken = f", kernels of {result.variant}" if result.variant else ""
    runs_text = f"{len(result.runs_ms)} runs"
    say(printable(f"{opened.manifest.name} on {result.where}{taken}, {threads_text}, {runs_text}"))
    say(_table(result, code.flops))
    if profile:
        say("\n" + _profile(entries))
        if any("winograd" in entry.rule for entry in entries):
            say("\nnote: GFLOPS count direct computation; Winograd does fewer operations.")
    if not result.real_speed:
        say(f"\nnote: {result.runner} is an emulator; its times say nothing about the device's speed.")


def _table(result: Measurement, flops: int) -> str:
    summary = result.summary
    short = summary["median_ms"] < SHORT_MS
    runs = [
        [name, f"{1e3 * summary[f'{name}_ms']:.3f} us" if short else f"{summary[f'{name}_ms']:.3f} ms"]
        for name in ("min", "median", "p90", "p99")
    ]
    rows = [
        *runs,
        ["load", f"{result.load_ms:.3f} ms"],
        ["first result", f"{result.first_result_ms:.3f} ms"],
        ["peak memory", human_bytes(result.peak_rss_bytes)],
        ["of it arena", human_bytes(result.arena_bytes)],
    ]
    if flops and result.real_speed and summary["median_ms"] > 0:
        rows.append(["speed", f"{human_count(flops / summary['median_ms'] * 1e3)}FLOP/s"])
    return table(rows, right=[1])


def _counts(counted: Instructions, arena_bytes: int) -> str:
    note = "" if counted.repeatable else "of the last run; others took another number"
    rows = [
        ["a run", f"{counted.run:,}", note],
        ["to open the model", f"{counted.load:,}", ""],
        ["arena", human_bytes(arena_bytes), ""],
    ]
    return table(rows, right=[1])


def _counted_steps(steps: Sequence[StepInstructions]) -> str:
    """The steps in the order in which they run, with their instructions."""
    rows = [
        [
            str(step.step),
            f"{step.instructions:,}",
            f"{step.share:.1%}",
            "" if step.per_operation is None else f"{step.per_operation:.2f}",
            step.rule or step.kernel,
            _nodes(step.nodes, step.ops),
        ]
        for step in steps
    ]
    header = ["step", "instructions", "share", "per FLOP", "rule", "nodes"]
    return table(rows, header=header, right=[0, 1, 2, 3], cut=[5, 4])


def _nodes(nodes: Sequence[str], operators: Sequence[str]) -> str:
    """What a step computes: on a terminal all of it, which its width then cuts."""
    text = ", ".join(nodes) or " ".join(plain_operators(operators))
    return text if sys.stdout.isatty() else text[:_MOST_NODES]


def _profile(entries: Sequence[ProfileEntry]) -> str:
    """The steps, slowest first, with the rule of their kernels and what it chose; no column that is empty."""

    def row(entry: ProfileEntry) -> list[str]:
        first, last = entry.first_step, entry.last_step
        parameters = " ".join(f"{key}={value}" for key, value in entry.parameters.items())
        return [
            str(first) if first == last else f"{first}-{last}",
            f"{entry.us:.1f}",
            f"{entry.share:.1%}",
            "" if entry.gflops is None else f"{entry.gflops:.1f}",
            "" if entry.gbs is None else f"{entry.gbs:.1f}",
            "" if entry.of_peak is None else f"{entry.of_peak:.0%}",
            f"{entry.rule} {parameters}".rstrip(),
            _nodes(entry.nodes, entry.ops),
        ]

    slowest = sorted(entries, key=lambda entry: (-entry.us, entry.first_step))
    header = ["step", "us", "share", "GFLOPS", "GB/s", "of peak", "rule", "nodes"]
    rows = [row(entry) for entry in slowest]
    shown = [column for column in range(len(header)) if any(row[column] for row in rows)]
    rows = [[row[column] for column in shown] for row in rows]
    nodes, rule = len(shown) - 1, len(shown) - 2
    return table(rows, header=[header[one] for one in shown], right=range(rule), cut=[nodes, rule])
