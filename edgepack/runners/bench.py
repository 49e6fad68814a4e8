"""``edgepack bench``: lets a bundle's own program measure itself, at one of the places that runners know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from edgepack.bundle.manifest import Manifest
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.options import RunOptions
from edgepack.runners import Selected
from edgepack.runners.instructions import Instructions, read_instructions
from edgepack.runners.program import Result, run_program, selected_runner, threads_arguments, understood

__all__ = ["BenchOptions", "Measurement", "bench", "percentile"]

#: Runs, and runs before them, unless the caller says otherwise; and where instructions are counted, where the
#: second run shows that it takes as many as the first one.
_TIMED, _COUNTED = (50, 5), (2, 0)
#: Fields of a measurement, and of its summary, that are times.
_TIMES = ("runs_ms", "load_ms", "first_result_ms", "steps_us", "peak_rss_bytes")


@dataclass(frozen=True)
class BenchOptions:
    """How a bundle is measured.

    Attributes:
        runs: that are measured; default 50, or 2 where instructions are counted.
        warmup: runs before them; default 5, or none where instructions are counted.
        profile: whether each step is timed too. Where instructions are counted, those of steps always are.
        variant: device whose kernels are measured, of a library for several kinds of CPU; default those that
            the CPU takes.
        where: how and where the program is run.
    """

    runs: int | None = None
    warmup: int | None = None
    profile: bool = False
    variant: str | None = None
    where: RunOptions = field(default_factory=RunOptions)

    def decided(self, *, counting: bool) -> BenchOptions:
        """With a number of runs and of those before; ConfigError for what cannot be measured."""
        default = _COUNTED if counting else _TIMED
        runs = default[0] if self.runs is None else self.runs
        warmup = default[1] if self.warmup is None else self.warmup
        if runs < 1 or warmup < 0:
            raise ConfigError(
                f"{runs} runs after {warmup} for warm-up cannot be measured.",
                hint="Use --runs 1 or more.",
            )
        return replace(self, runs=runs, warmup=warmup)

    def arguments(self, *, counting: bool) -> list[str | Path]:
        """What the bundle's program is told."""
        arguments: list[str | Path] = ["bench", Path("test"), *threads_arguments(self.where.threads)]
        arguments += ["--warmup", str(self.warmup), "--runs", str(self.runs)]
        arguments += ["--profile"] if self.profile else []
        arguments += ["--instructions"] if counting else []
        return arguments if self.variant is None else [*arguments, "--variant", self.variant]


@dataclass(frozen=True)
class Measurement:
    """The result of measuring a bundle; times in milliseconds, as the loader program itself measured them.

    Attributes:
        real_speed: false under an emulator: then no time says anything about the device.
        runs_ms: every run after the warm-up, in order.
        first_result_ms: from the start of the process to the first result.
        load_ms: opening the model: mapping the params, checking them, making a session.
        steps_us: median time of each step in microseconds (with ``profile``), in the order of the plan.
        variant: the kernels that were taken, of a library for several kinds of CPU.
        backend: what computed, of a library with kernels for a GPU (``opencl: NAME``).
        instructions: of firmware under an emulator, counted in place of times: these then are empty or 0.
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
    instructions: Instructions | None = None
    backend: str = ""

    @property
    def summary(self) -> dict[str, float]:
        """min, median, p90 and p99 of the runs, in ms; empty where instructions were counted."""
        if not self.runs_ms:
            return {}
        return {
            "min_ms": min(self.runs_ms),
            "median_ms": percentile(self.runs_ms, 50),
            "p90_ms": percentile(self.runs_ms, 90),
            "p99_ms": percentile(self.runs_ms, 99),
        }

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the summary; under an emulator with a note that the times are not the device's.
        Where instructions were counted there is no time, else no ``instructions``."""
        if self.instructions is not None:
            data = {key: value for key, value in asdict(self).items() if key not in _TIMES}
            return {**data, "note": "counts of instructions are no times"}
        note = {} if self.real_speed else {"note": f"{self.runner} emulates: times say nothing about speed"}
        data = asdict(self)
        del data["instructions"]
        return {**data, **self.summary, **note}


def bench(root: Path, manifest: Manifest, options: BenchOptions | None = None) -> Measurement:
    """Let the bundle's program measure itself.

    Args:
        root: the bundle's folder.
        options: default on this machine or by the device's runner.

    Raises:
        CheckFailedError: the program crashed, refused to run, or printed no result.
        ConfigError: the bundle has no program or no such variant, or an option is wrong.
        ToolchainError: the runner is missing, or the time is up.
    """
    asked = options or BenchOptions()
    counting = getattr(selected_runner(manifest, asked.where).runner, "COUNTS_INSTRUCTIONS", False)
    options = asked.decided(counting=counting)
    _check_variant(root, manifest, options.variant)
    selected, result = run_program(
        root,
        manifest,
        options.arguments(counting=counting),
        options.where,
        refusals=["USAGE"] if counting else [],
    )
    if counting and result.get("code") == "USAGE":
        raise CheckFailedError(
            "The bundle's program cannot count instructions: it is of an older edgepack.",
            hint="Pack the model again.",
        )
    with understood():
        measured = _measurement(options, selected, result, counting)
    found = len(result["run_instructions"]) if counting else len(measured.runs_ms)
    if found != options.runs:
        raise CheckFailedError(f"The program measured {found} runs, not {options.runs}.")
    steps = len(manifest.code(measured.variant).steps)
    found = len(measured.instructions.steps if measured.instructions is not None else measured.steps_us)
    if found not in ({steps} if options.profile or counting else {0, steps}):
        raise CheckFailedError(f"The program measured {found} steps, the manifest has {steps}.")
    return measured


def _measurement(options: BenchOptions, selected: Selected, result: Result, counting: bool) -> Measurement:
    return Measurement(
        runner=selected.name,
        where=selected.where,
        real_speed=selected.runner.REAL_SPEED,
        threads=int(result["threads"]),
        warmup=options.warmup or 0,
        runs_ms=() if counting else _times(result["runs_ms"]),
        load_ms=0.0 if counting else float(result["load_ms"]),
        first_result_ms=0.0 if counting else float(result["first_result_ms"]),
        peak_rss_bytes=int(result["peak_rss_bytes"]),
        arena_bytes=int(result["arena_bytes"]),
        steps_us=_times(result.get("steps_us", [])),
        variant=str(result.get("variant", "")),
        instructions=read_instructions(result) if counting else None,
        backend=str(result.get("backend", "")),
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
