"""Runs a bundle's own program at one of the places that runners know, and reads the JSON that it prints."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgepack.bundle.limits import check_limits
from edgepack.bundle.manifest import Manifest
from edgepack.bundle.paths import inside
from edgepack.config.device import load_device
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.options import RunOptions
from edgepack.runners import Selected, select_runner
from edgepack.runners.base import PARAMS_AT, setting
from edgepack.runners.recorded import device_of
from edgepack.runners.sandbox import run_confined, sandbox_name
from edgepack.system.command_text import signal_name
from edgepack.system.files import is_text
from edgepack.system.process import Completed
from edgepack.system.temporary import temporary_folder

__all__ = [
    "DEFAULT_TIMEOUT",
    "STATUSES",
    "Result",
    "number",
    "run_program",
    "selected_runner",
    "threads_arguments",
    "understood",
]

#: Seconds that the program may take unless the device's profile or the caller says otherwise.
DEFAULT_TIMEOUT = 600.0

#: Statuses of a program that did what it was asked for, and what they mean; with any other it refused.
STATUSES = {
    "ok": "every output is within its tolerance",
    "mismatch": "an output is not within its tolerance",
    "unrepeatable": "two runs on the same inputs gave different outputs",
    "overrun": "a kernel wrote outside of an output",
}

#: Characters of what a program says that go into a sentence.
_LONGEST = 500

#: The JSON object that a program printed.
Result = Mapping[str, Any]


def run_program(
    root: Path,
    manifest: Manifest,
    arguments: Sequence[str | Path],
    options: RunOptions,
    *,
    refusals: Collection[str] = (),
) -> tuple[Selected, Result]:
    """Run a bundle's program.

    Args:
        root: the bundle's folder.
        arguments: what the program is told; those that are paths are relative to the bundle.
        options: how and where. Without a time, what the device's profile says, or :data:`DEFAULT_TIMEOUT`.
        refusals: codes of the program for which it may refuse to run.

    Returns:
        where it ran, and what it printed, whose "status" is one of :data:`STATUSES`, or whose "code" is one
        of ``refusals``.

    Raises:
        CheckFailedError: the program crashed, refused to run, or printed no result.
        ConfigError: the bundle has no program, there is no such runner or device, or it is of another kind.
        ToolchainError: the runner is missing, or the time is up.
    """
    artifact = manifest.artifact("program")
    if artifact is None:
        raise ConfigError(
            f"The bundle {root} has no loader program.",
            hint="Pack for a device whose artifacts include `program`.",
        )
    selected = selected_runner(manifest, options)
    if manifest.params.address and manifest.params.file:
        arguments = [*arguments, PARAMS_AT, f"{manifest.params.address:#x}", Path(manifest.params.file)]
    if options.sandbox:
        selected = _sandboxed(selected)
        root = root.absolute()
        program = inside(root, artifact.path)
        return selected, _run_at(root, program, selected, arguments, options, refusals)
    with _path_of_text(root.absolute()) as place:
        program = inside(place, artifact.path)
        return selected, _run_at(place, program, selected, arguments, options, refusals)


def selected_runner(manifest: Manifest, options: RunOptions) -> Selected:
    """Where the options have a bundle's program run.

    Raises:
        ConfigError: there is no such runner or device.
        ToolchainError: the runner is missing.
    """
    own = load_device(options.device) if isinstance(options.device, str | os.PathLike) else options.device
    return select_runner(device_of(manifest.device, own), options.runner)


def _run_at(
    root: Path,
    program: Path,
    selected: Selected,
    arguments: Sequence[str | Path],
    options: RunOptions,
    refusals: Collection[str],
) -> Result:
    # Copies by zip or a file share lose the mode.
    if selected.name == "native" and program.is_file() and not program.stat().st_mode & 0o100:
        raise ConfigError(f"{program} is not executable.", hint=f'Run: chmod +x "{program}"')
    seconds = options.timeout or float(setting(selected.device, "timeout") or DEFAULT_TIMEOUT)

    def call(parts: Sequence[str | Path]) -> Result:
        argv = [program, *(root / part if isinstance(part, Path) else part for part in parts)]
        if options.sandbox:
            command = getattr(selected.runner, "call")(selected.device, argv, cwd=root)  # noqa: B009
            return _result(selected, run_confined(command, timeout=seconds, cwd=root))
        return _result(selected, selected.runner.run(selected.device, argv, timeout=seconds, cwd=root))

    result = call(arguments)
    if result["status"] not in STATUSES and str(result.get("code")) not in refusals:
        code = _shortened(result.get("code") or result["status"])
        message = _shortened(result.get("message") or "it gave no reason").rstrip(".")
        if code == "EP_E_UNSUPPORTED" and (asked := _threads_of(arguments)) > 1:
            raise ConfigError(
                f"The bundle's program computes on one thread, not {asked}: "
                f"{'firmware' if selected.device.bare_metal else 'its platform'} has no more.",
                hint="Leave --threads out. Tasks of a system of your own share a run by `caller_threads` "
                "(docs/reference/c-api.md).",
            )
        if code == "EP_E_CPU":
            message += f" (missing: {_shortened(call(['info']).get('missing_cpu_features'))})"
        raise CheckFailedError(f"The bundle's program refused to run ({code}): {message}.")
    return result


def _sandboxed(selected: Selected) -> Selected:
    """A runner that can be confined, with the sandbox's name. ConfigError for another one, ToolchainError if
    there is no sandbox here."""
    if not hasattr(selected.runner, "call"):
        raise ConfigError(
            f"The runner {selected.name} cannot be run in a sandbox.",
            hint="native, qemu, qemu-system and node can.",
        )
    return selected._replace(where=f"{selected.where}, in {sandbox_name()}")


@contextmanager
def _path_of_text(root: Path) -> Iterator[Path]:
    """The folder, or a link to it if its path is no UTF-8: engines of WebAssembly take text only."""
    if is_text(str(root)):
        yield root
        return
    with temporary_folder() as folder:
        link = folder / "bundle"
        try:
            link.symlink_to(root, target_is_directory=True)
        except (OSError, NotImplementedError):
            link = root
        yield link


def threads_arguments(threads: int | None) -> list[str]:
    """The program's option for the number of threads; none for None. ConfigError for less than one."""
    if threads is None:
        return []
    if threads < 1:
        raise ConfigError(f"{threads} threads cannot run anything.", hint="Use --threads 1 or more.")
    return ["--threads", str(threads)]


def _threads_of(arguments: Sequence[str | Path]) -> int:
    """What :func:`threads_arguments` asked for; 1 where nothing was."""
    parts = [str(part) for part in arguments]
    return int(parts[parts.index("--threads") + 1]) if "--threads" in parts else 1


@contextmanager
def understood() -> Iterator[None]:
    """Reads what a program printed: CheckFailedError for a field that is missing or is something else."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        said = _shortened(f"{type(error).__name__}: {error}")
        raise CheckFailedError(
            "The bundle's program printed a result that edgepack does not understand.",
            hint="Is it the program that was packed? `edgepack verify` checks that first.",
            detail=said,
        ) from error


def _shortened(said: object) -> str:
    """What a program says, as a part of a sentence."""
    text = str(said)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def number(value: float | str | None) -> float:
    """A float of the program's JSON, which has no NaN or infinity: they are texts, or null."""
    return math.nan if value is None else float(value)


def _result(selected: Selected, done: Completed) -> Result:
    """The JSON object that the program printed; it has a "status"."""
    if done.returncode < 0:
        raise CheckFailedError(
            f"The bundle's program was ended by {signal_name(-done.returncode)} ({selected.name}).",
            detail=done.printed,
        )
    try:
        result: Result = json.loads(done.stdout)
        check_limits(result)
        if not isinstance(result["status"], str) or done.returncode > 2:
            raise ValueError(result)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckFailedError(
            f"The bundle's program ended with exit code {done.returncode} and no result ({selected.name}).",
            detail=done.printed,
        ) from error
    return result
