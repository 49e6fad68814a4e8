"""Drives a bundle's own loader program through a runner: ``verify`` and ``bench``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgepack.bundle.manifest import Manifest
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.process import Completed, signal_name
from edgepack.runners import Selected, select_runner
from edgepack.runners.base import setting

__all__ = [
    "DEFAULT_TIMEOUT",
    "STATUSES",
    "Measurement",
    "OutputCheck",
    "VariantCheck",
    "Verification",
    "bench",
    "percentile",
    "verify",
]

#: Seconds that the program may take unless the device's profile or the caller says otherwise.
DEFAULT_TIMEOUT = 600.0

#: What the program's ``verify`` can find.
STATUSES = {
    "ok": "every output is within its tolerance",
    "mismatch": "an output is not within its tolerance",
    "unrepeatable": "two runs on the same inputs gave different outputs",
    "overrun": "a kernel wrote outside of an output",
}


@dataclass(frozen=True)
class OutputCheck:
    """How far one output is from the recorded one; it passes where |out-ref| <= atol + rtol*|ref|
    everywhere."""

    name: str
    max_abs_err: float
    max_abs_ref: float
    atol: float
    rtol: float
    elements: int
    mismatches: int

    @property
    def ok(self) -> bool:
        """Whether every element is within its tolerance."""
        return self.mismatches == 0


@dataclass(frozen=True)
class VariantCheck:
    """The result for the kernels of one kind of CPU, in a library that has several.

    Attributes:
        missing: features that this CPU lacks (``avx2,fma``): these kernels were not run.
    """

    name: str
    status: str
    outputs: tuple[OutputCheck, ...]
    missing: str = ""


@dataclass(frozen=True)
class Verification:
    """The result of running a bundle on its recorded data.

    Attributes:
        status: what the program said, one of STATUSES.
        outputs: of the kernels that are taken where it ran.
        variants: of a library for several kinds of CPU, all of them.
        runner, where: what it ran on.
        reference: what computed the recorded outputs.
    """

    status: str
    runner: str
    where: str
    threads: int
    reference: str
    outputs: tuple[OutputCheck, ...]
    variants: tuple[VariantCheck, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the bundle does on this device what it should."""
        outputs = [*self.outputs, *(output for variant in self.variants for output in variant.outputs)]
        return self.status == "ok" and all(output.ok for output in outputs)

    def to_json(self) -> dict[str, Any]:
        """Plain data; floats that JSON cannot hold become texts (``"nan"``, ``"inf"``)."""
        data = {"ok": self.ok, **asdict(self), "message": STATUSES[self.status]}
        for record in (data, *data["variants"]):
            record["outputs"] = [{k: _plain(v) for k, v in output.items()} for output in record["outputs"]]
        return data


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


def percentile(values: Sequence[float], percent: float) -> float:
    """The percentile by linear interpolation between the two nearest ranks (numpy's default)."""
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def verify(
    root: Path,
    manifest: Manifest,
    *,
    runner: str | None = None,
    threads: int | None = None,
    timeout: float | None = None,
) -> Verification:
    """Run the bundle's program on the recorded inputs and let it compare with the recorded outputs; each of
    its variants that the CPU can run, for the machine that takes another one may not be here.

    Raises:
        CheckFailedError: the program crashed, refused to run, or printed no result. (A mismatch is a result.)
        ConfigError: the bundle has no program, or an argument is wrong.
        ToolchainError: the runner is missing, or the time is up.
    """
    arguments: list[str | Path] = ["verify", Path("test"), *_threads(threads)]
    variants: list[VariantCheck] = []
    if manifest.variants:
        _, info = _run(root, manifest, ["info"], runner, timeout)
        for variant in info["variants"]:
            name, missing = str(variant["name"]), str(variant["missing_cpu_features"])
            if missing:
                variants.append(VariantCheck(name, "ok", (), missing))
                continue
            _, result = _run(root, manifest, [*arguments, "--variant", name], runner, timeout)
            variants.append(VariantCheck(name, result["status"], _outputs(manifest, result)))
    selected, result = _run(root, manifest, arguments, runner, timeout)
    return Verification(
        next((v.status for v in variants if v.status != "ok"), result["status"]),
        selected.name,
        selected.where,
        int(result["threads"]),
        manifest.recorded.reference,
        _outputs(manifest, result),
        tuple(variants),
    )


def _outputs(manifest: Manifest, result: Mapping[str, Any]) -> tuple[OutputCheck, ...]:
    outputs = tuple(
        OutputCheck(
            name=str(output["name"]),
            max_abs_err=_number(output["max_abs_err"]),
            max_abs_ref=_number(output["max_abs_ref"]),
            atol=_number(output["atol"]),
            rtol=_number(output["rtol"]),
            elements=int(output["elements"]),
            mismatches=int(output["mismatches"]),
        )
        for output in result["outputs"]
    )
    if len(outputs) != len(manifest.outputs):
        raise CheckFailedError(
            f"The program checked {len(outputs)} outputs, the manifest has {len(manifest.outputs)}."
        )
    return outputs


def bench(
    root: Path,
    manifest: Manifest,
    *,
    runner: str | None = None,
    threads: int | None = None,
    runs: int = 50,
    warmup: int = 5,
    profile: bool = False,
    variant: str | None = None,
    timeout: float | None = None,
) -> Measurement:
    """Let the bundle's program measure itself; errors as in :func:`verify`."""
    if runs < 1 or warmup < 0:
        raise ConfigError(
            f"{runs} runs after {warmup} for warm-up cannot be measured.", hint="Use --runs 1 or more."
        )
    arguments: list[str | Path] = ["bench", Path("test"), *_threads(threads)]
    arguments += ["--warmup", str(warmup), "--runs", str(runs)]
    if profile:
        arguments.append("--profile")
    if variant is not None:
        names = [record.name for record in manifest.variants]
        known = [*names, manifest.device.name] if names else []
        if variant not in known:
            raise ConfigError(
                f"The bundle {root} has no variant {variant!r}.",
                hint=f"It has {', '.join(known) or 'kernels for one kind of CPU only: leave --variant out'}.",
            )
        arguments += ["--variant", variant]
    selected, result = _run(root, manifest, arguments, runner, timeout)
    return Measurement(
        runner=selected.name,
        where=selected.where,
        real_speed=selected.runner.REAL_SPEED,
        threads=int(result["threads"]),
        warmup=warmup,
        runs_ms=tuple(float(value) for value in result["runs_ms"]),
        load_ms=float(result["load_ms"]),
        first_result_ms=float(result["first_result_ms"]),
        peak_rss_bytes=int(result["peak_rss_bytes"]),
        arena_bytes=int(result["arena_bytes"]),
        steps_us=tuple(float(value) for value in result.get("steps_us", ())),
        variant=str(result.get("variant", "")),
    )


def _threads(threads: int | None) -> list[str]:
    if threads is None:
        return []
    if threads < 1:
        raise ConfigError(f"{threads} threads cannot run anything.", hint="Use --threads 1 or more.")
    return ["--threads", str(threads)]


def _run(
    root: Path, manifest: Manifest, arguments: Sequence[str | Path], runner: str | None, timeout: float | None
) -> tuple[Selected, Mapping[str, Any]]:
    """Run the bundle's program; ``arguments`` that are paths are relative to the bundle."""
    artifact = manifest.artifact("program")
    if artifact is None:
        raise ConfigError(
            f"The bundle {root} has no loader program.",
            hint="Pack for a device whose artifacts include `program`.",
        )
    selected = select_runner(manifest.device, runner)
    root = root.absolute()
    program = root / artifact.path
    # Copies by zip or a file share lose the mode.
    if selected.name == "native" and program.is_file() and not program.stat().st_mode & 0o100:
        raise ConfigError(f"{program} is not executable.", hint=f'Run: chmod +x "{program}"')
    seconds = timeout or float(setting(manifest.device, "timeout") or DEFAULT_TIMEOUT)

    def call(parts: Sequence[str | Path]) -> Mapping[str, Any]:
        argv = [program, *(root / part if isinstance(part, Path) else part for part in parts)]
        return _result(selected, selected.runner.run(selected.device, argv, timeout=seconds, cwd=root))

    result = call(arguments)
    if result["status"] not in STATUSES:
        code = str(result.get("code") or result["status"])
        message = str(result.get("message") or "it gave no reason").rstrip(".")
        if code == "EP_E_CPU":
            message += f" (missing: {call(['info']).get('missing_cpu_features')})"
        raise CheckFailedError(f"The bundle's program refused to run ({code}): {message}.")
    return selected, result


def _result(selected: Selected, done: Completed) -> Mapping[str, Any]:
    """The JSON object that the program printed; it has a "status"."""
    if done.returncode < 0:
        raise CheckFailedError(
            f"The bundle's program was ended by {signal_name(-done.returncode)} ({selected.name}).",
            detail=done.printed,
        )
    try:
        result: Mapping[str, Any] = json.loads(done.stdout)
        if not isinstance(result["status"], str) or done.returncode > 2:
            raise ValueError(result)
    except (ValueError, KeyError, TypeError) as error:
        raise CheckFailedError(
            f"The bundle's program ended with exit code {done.returncode} and no result ({selected.name}).",
            detail=done.printed,
        ) from error
    return result


def _number(value: Any) -> float:
    """JSON has no NaN or infinity: the loader writes them as texts or null."""
    return math.nan if value is None else float(value)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
