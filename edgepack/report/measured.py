"""Verifies and measures a bundle for its report, where its program can run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgepack.bundle.checksums import check_sums
from edgepack.bundle.manifest import Manifest
from edgepack.errors import ToolchainError
from edgepack.options import RunOptions
from edgepack.runners.bench import BenchOptions, Measurement, bench
from edgepack.runners.program import selected_runner
from edgepack.runners.verify import Verification, verify

__all__ = ["Measured", "measure"]


@dataclass(frozen=True)
class Measured:
    """What was found.

    Attributes:
        bench, verification: None where they were not asked for, or could not be had.
        not_run: why something that was asked for could not be had, in a sentence; "" if all could.
    """

    bench: Measurement | None = None
    verification: Verification | None = None
    not_run: str = ""


def measure(root: Path, manifest: Manifest, options: RunOptions, *, timed: bool, checked: bool) -> Measured:
    """Run the bundle's program: on its recorded data, and for times of each step.

    Under an emulator no times are taken, for they would not be the device's; instructions of firmware are
    counted.

    Args:
        root: the bundle's folder.
        timed, checked: what is asked for.

    Raises:
        CheckFailedError: a file is damaged, or the program refuses or crashes.
        ConfigError: as of :func:`edgepack.runners.verify.verify`.
        ToolchainError: the time is up, or the runner that ``options`` name cannot run it here.
    """
    if not timed and not checked:
        return Measured()
    program = manifest.artifact("program")
    if program is None or not (root / program.path).is_file():
        return Measured(not_run="The bundle's program is not here.")
    try:
        runner = selected_runner(manifest, options).runner
    except ToolchainError as error:
        if options.runner:
            raise
        return Measured(not_run=" ".join(filter(None, (error.message, error.hint))))
    if checked:
        check_sums(root, manifest)
    found = verify(root, manifest, options) if checked else None
    if timed and not (runner.REAL_SPEED or getattr(runner, "COUNTS_INSTRUCTIONS", False)):
        return Measured(None, found, "An emulator runs it here, whose times would not be the device's.")
    times = bench(root, manifest, BenchOptions(profile=True, where=options)) if timed else None
    return Measured(times, found)
