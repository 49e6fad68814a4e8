"""Latencies of a release, in a file of their own: they are never the same twice, so no sum and no signature
covers them, and they are no part of what two releases have in common."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgepack.bundle.fields import Sha256, UnitName, distinct
from edgepack.bundle.manifest import load_manifest
from edgepack.bundle.paths import inside
from edgepack.config.models import Name
from edgepack.errors import EdgepackError
from edgepack.options import RunOptions
from edgepack.registry import RUNNERS
from edgepack.release.index import MEASUREMENTS, Index, UnitRecord
from edgepack.release.matrix import Unit
from edgepack.runners.bench import BenchOptions, Measurement, bench
from edgepack.system.atomic import write_file
from edgepack.system.files import read_regular

__all__ = ["Measured", "Measurements", "Slower", "load_measurements", "measure", "slower_units"]

_LARGEST = 16 << 20

_Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Measured(BaseModel):
    """How fast a unit was; times in milliseconds.

    Attributes:
        inputs: of its record in release.json: which files were measured.
        runner, where, cpu: what ran it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
    unit: UnitName
    inputs: Sha256
    runner: Name
    where: str
    cpu: str
    threads: Annotated[int, Field(ge=1)]
    runs: Annotated[int, Field(ge=1)]
    min_ms: _Milliseconds
    median_ms: _Milliseconds
    p90_ms: _Milliseconds
    load_ms: _Milliseconds

    @property
    def place(self) -> tuple[str, str, str, int]:
        """Two times are compared where these are the same."""
        return self.runner, self.where, self.cpu, self.threads


class Measurements(BaseModel):
    """The root of measurements.json."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    schema_version: Literal[1] = 1
    units: Annotated[tuple[Measured, ...], distinct("unit")] = ()

    def write(self, root: Path) -> None:
        """Into a release's folder."""
        text = json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        write_file(root / MEASUREMENTS, text.encode())


@dataclass(frozen=True)
class Slower:
    """A unit whose median latency grew by more than its budget allows; milliseconds and percent."""

    unit: str
    before_ms: float
    now_ms: float
    limit: float


def load_measurements(release: Path) -> Measurements:
    """The measurements in a release's folder or ``release.json``; none where there is no such file."""
    root = release if release.is_dir() else release.parent
    try:
        return Measurements.model_validate_json(read_regular(root / MEASUREMENTS, _LARGEST))
    except (OSError, ValidationError):
        return Measurements()


def measure(
    root: Path, index: Index, units: Sequence[Unit], show: Callable[[str], None]
) -> tuple[Measurements, list[str]]:
    """Let the programs of a release measure themselves, one after the other, where that says something: not
    under an emulator.

    Returns:
        what was measured, and why some could not be.
    """
    measured, warnings = [], []
    for unit in units:
        record = index.unit(unit.name)
        if record is None or not record.verified.runner:
            continue
        if not RUNNERS.find(record.verified.runner).REAL_SPEED:
            continue
        show(unit.name)
        folder = inside(root, record.bundle)
        options = BenchOptions(where=RunOptions(device=unit.profile))
        try:
            found = bench(folder, load_manifest(folder), options)
        except EdgepackError as error:
            warnings.append(f"{unit.name} could not be measured: {error.message}")
            continue
        measured.append(_record(record, found))
    return Measurements(units=tuple(measured)), warnings


def _record(record: UnitRecord, found: Measurement) -> Measured:
    times = found.summary
    return Measured(
        unit=record.name,
        inputs=record.inputs,
        runner=found.runner,
        where=found.where,
        cpu=_cpu() if found.runner == "native" else "",
        threads=found.threads,
        runs=len(found.runs_ms),
        min_ms=round(times["min_ms"], 6),
        median_ms=round(times["median_ms"], 6),
        p90_ms=round(times["p90_ms"], 6),
        load_ms=round(found.load_ms, 4),
    )


def slower_units(
    units: Sequence[Unit], now: Measurements, before: Measurements
) -> tuple[tuple[Slower, ...], list[str]]:
    """The units that exceed their budget of latency, and those of which that cannot be said."""
    found, unknown = [], []
    times = {one.unit: one for one in now.units}
    were = {(one.unit, one.place): one for one in before.units}
    for unit in units:
        if (limit := unit.budgets.slower) is None:
            continue
        mine = times.get(unit.name)
        other = were.get((mine.unit, mine.place)) if mine is not None else None
        if mine is None or other is None:
            unknown.append(unit.name)
        elif mine.median_ms > other.median_ms * (1 + limit / 100):
            found.append(Slower(unit.name, other.median_ms, mine.median_ms, limit))
    warnings = [f"the budget `slower` was not checked of {', '.join(unknown)}: {_WHY}"] if unknown else []
    return tuple(found), warnings


_WHY = "it takes --bench, and --against a release that was measured on the same runner and CPU"


def _cpu() -> str:
    """This machine's CPU, as its maker calls it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^(?:model name|Model|Hardware|cpu model)\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()
