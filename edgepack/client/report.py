"""Writes the report of a bundle, with what was measured elsewhere or is measured for it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.bundle.manifest import Manifest
from edgepack.options import PathLike, RunOptions
from edgepack.report.build import check_report_file, write_report
from edgepack.report.measured import Measured, measure
from edgepack.report.results import read_bench, read_verification

if TYPE_CHECKING:
    from edgepack.runners.bench import Measurement
    from edgepack.runners.verify import Verification

__all__ = ["ReportInputs", "WrittenReport", "report_of"]


@dataclass(frozen=True)
class ReportInputs:
    """What a report is made of beside the manifest.

    Attributes:
        bench, verification: results, or files with what the commands printed as JSON.
        run: how the bundle's program is run for what of both is missing; None: it is not.
    """

    bench: Measurement | PathLike | None = None
    verification: Verification | PathLike | None = None
    run: RunOptions | None = None


@dataclass(frozen=True)
class WrittenReport:
    """The file; whether the outputs are right (None: not known); why something was not measured, or ""."""

    path: Path
    ok: bool | None
    not_run: str


def report_of(
    root: Path, manifest: Manifest, output: PathLike | None, inputs: ReportInputs, *, force: bool
) -> WrittenReport:
    """Write the report of the bundle at ``root``: see :meth:`edgepack.Bundle.report`."""
    target = Path(output) if output is not None else Path(f"{manifest.name}-{manifest.device.name}.html")
    timed = None if inputs.bench is None else read_bench(_result(inputs.bench), manifest)
    checked = (
        None if inputs.verification is None else read_verification(_result(inputs.verification), manifest)
    )
    check_report_file(target, force=force)
    found = Measured()
    if inputs.run is not None:
        found = measure(root, manifest, inputs.run, timed=timed is None, checked=checked is None)
    if found.bench is not None:
        timed = read_bench(found.bench.to_json(), manifest)
    if found.verification is not None:
        checked = read_verification(found.verification.to_json(), manifest)
    write_report(manifest, target, timed, checked, found.not_run, force=force)
    return WrittenReport(target, None if checked is None else checked.ok, found.not_run)


def _result(given: Measurement | Verification | PathLike) -> Path | dict[str, Any]:
    """A result as plain data, or the file that has it."""
    return Path(given) if isinstance(given, str | os.PathLike) else given.to_json()
