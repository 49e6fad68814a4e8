"""``edgepack bench``: lets a bundle's own program measure itself, at one of the places that runners know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edgepack.bundle.manifest import Manifest
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.options import RunOptions
from edgepack.runners import Selected
from edgepack.runners.program import Result, run_program, threads_arguments, understood

__all__ = ["BenchOptions", "Measurement", "bench", "percentile"]


@dataclass(frozen=True)
class BenchOptions:
    """How a bundle is measured.

    Attributes:
        runs: that are measured.
        warmup: runs before them.
        profile: whether each step is measured too.
        variant: device whose kernels are measured, of a library for several kinds of CPU; default those that
            the CPU takes.
        where: how and where the program is run.
    """

    runs: int = 50
    warmup: int = 5
    profile: bool = False
    variant: str | None = None
    where: RunOptions = field(default_factory=RunOptions)

    def arguments(self) -> list[str | Path]:
        """What the bundle's program is told; ConfigError for what cannot be measured."""
        if self.runs < 1 or self.warmup < 0:
            raise ConfigError(
                f"{self.runs} runs after {self.warmup} for warm-up cannot be measured.",
                hint="Use --runs 1 or more.",
            )
        arguments: list[str | Path] = ["bench", Path("test"), *threads_arguments(self.where.threads)]
        arguments += ["--warmup", str(self.warmup), "--runs", str(self.runs)]
        arguments += ["--profile"] if self.profile else []
        return arguments if self.variant is None else [*arguments, "--variant", self.variant]


@dataclass(frozen=True)
class Measurement:
    """The result of timing a bundle; times in milliseconds, as the loader program itself measured them.

    Attributes:
        real_speed: false under an emulator: then no time says anything about the device.
        runs_ms: every run after the warm-up, in order.
        first_result_ms: from the start of the process to the first result.
        load_ms: opening the model: mapping the params, checking them, making a session.
        steps_us: median time of each step in microseconds (with ``profile``), in the order of the plan.
        variant: the kernels that were taken, of a library for several kinds of CPU.
    """

    runner: str
    where: str
    real_speed: bool
    threads: int
    warmup: int
    runs_ms: tuple[float, ...]
    load_ms: float
    first_result_ms: float
    peak_rss_bytes: int
    arena_bytes: int
    steps_us: tuple[float, ...] = ()
    variant: str = ""

    @property
    def summary(self) -> dict[str, float]:
        """min, median, p90 and p99 of the runs, in ms."""
        return {
            "min_ms": min(self.runs_ms),
            "median_ms": percentile(self.runs_ms, 50),
            "p90_ms": percentile(self.runs_ms, 90),
            "p99_ms": percentile(self.runs_ms, 99),
        }

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the summary; under an emulator with a note that the times are not the device's."""
        note = {} if self.real_speed else {"note": f"{self.runner} emulates: times say nothing about speed"}
        return {**asdict(self), **self.summary, **note}


def bench(root: Path, manifest: Manifest, options: BenchOptions | None = None) -> Measurement:
    """Let the bundle's program measure itself.

    Args:
        root: the bundle's folder.
        options: default 50 runs after 5, on this machine or the device's runner.

    Raises:
        CheckFailedError: the program crashed, refused to run, or printed no result.
        ConfigError: the bundle has no program or no such variant, or an option is wrong.
        ToolchainError: the runner is missing, or the time is up.
    """
    options = options or BenchOptions()
    arguments = options.arguments()
    _check_variant(root, manifest, options.variant)
    selected, result = run_program(root, manifest, arguments, options.where)
    with understood():
        measured = _measurement(options, selected, result)
    if len(measured.runs_ms) != options.runs:
        raise CheckFailedError(f"The program measured {len(measured.runs_ms)} runs, not {options.runs}.")
    steps = len(manifest.code(measured.variant).steps)
    if len(measured.steps_us) not in ({steps} if options.profile else {0, steps}):
        raise CheckFailedError(
            f"The program measured {len(measured.steps_us)} steps, the manifest has {steps}."
        )
    return measured


def _measurement(options: BenchOptions, selected: Selected, result: Result) -> Measurement:
    return Measurement(
        runner=selected.name,
        where=selected.where,
        real_speed=selected.runner.REAL_SPEED,
        threads=int(result["threads"]),
        warmup=options.warmup,
        runs_ms=_times(result["runs_ms"]),
        load_ms=float(result["load_ms"]),
        first_result_ms=float(result["first_result_ms"]),
        peak_rss_bytes=int(result["peak_rss_bytes"]),
        arena_bytes=int(result["arena_bytes"]),
        steps_us=_times(result.get("steps_us", [])),
        variant=str(result.get("variant", "")),
    )


def _times(values: Any) -> tuple[float, ...]:
    """A list of numbers of the program's JSON; TypeError for anything else."""
    if not isinstance(values, list):
        raise TypeError(f"{type(values).__name__} is no list of times")
    return tuple(float(value) for value in values)


def percentile(values: Sequence[float], percent: float) -> float:
    """The percentile by linear interpolation between the two nearest ranks (numpy's default)."""
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def _check_variant(root: Path, manifest: Manifest, variant: str | None) -> None:
    """Raise ConfigError for a variant that the bundle does not have."""
    if variant is None:
        return
    names = [record.name for record in manifest.variants]
    known = [*names, manifest.device.name] if names else []
    if variant not in known:
        raise ConfigError(
            f"The bundle {root} has no variant {variant!r}.",
            hint=f"It has {', '.join(known) or 'kernels for one kind of CPU only: leave --variant out'}.",
        )
