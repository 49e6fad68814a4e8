"""Runs a bundle's own program on inputs that are not the recorded ones, and keeps what it computes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from edgepack.bundle.manifest import Manifest
from edgepack.bundle.paths import inside
from edgepack.config.device import load_device
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.options import RunOptions
from edgepack.registry import RUNNERS
from edgepack.runners.base import setting
from edgepack.runners.program import run_program, threads_arguments
from edgepack.runners.recorded import device_of

__all__ = ["run_samples"]

#: What shows its own files to a program, and keeps what that writes to itself.
_ELSEWHERE = {"browser"}


def run_samples(
    root: Path,
    manifest: Manifest,
    samples: Iterable[Path],
    place: Path,
    options: RunOptions,
    order: Sequence[int] | None = None,
) -> str:
    """Run the program on the ``input_<index>.bin`` of each sample, and write ``output_<index>.bin`` to a
    folder of the sample's name in ``place``.

    Args:
        root: the bundle's folder, into which nothing is written.
        samples: their folders.
        place: an empty folder.
        options: how and where it is run.
        order: for each of the program's inputs, the index of its file; None where they are in order.

    Returns:
        where it ran.

    Raises:
        ConfigError: the bundle has no program, its program takes no other inputs, or it runs where its
            results cannot be had from.
        CheckFailedError: the program crashed, refused to run, or wrote no result.
        ToolchainError: there is no runner for the device here, or the time is up.
    """
    _check_takes_inputs(root, manifest, options)
    copy = place / "bundle"
    _copy_program(root, manifest, copy)
    where = ""
    for sample in samples:
        arguments: list[str | Path] = ["run"]
        for index, tensor in enumerate(manifest.inputs):
            given = index if order is None else order[index]
            shutil.copyfile(sample / f"input_{given}.bin", copy / f"input_{index}.bin")
            arguments += ["--input", f"{tensor.name}=input_{index}.bin"]
        for index, tensor in enumerate(manifest.outputs):
            arguments += ["--output", f"{tensor.name}=output_{index}.bin"]
        selected, _ = run_program(copy, manifest, [*arguments, *threads_arguments(options.threads)], options)
        where = selected.where
        (results := place / sample.name).mkdir()
        for index, tensor in enumerate(manifest.outputs):
            made = copy / f"output_{index}.bin"
            if not made.is_file() or made.stat().st_size != tensor.nbytes:
                raise CheckFailedError(
                    f"The program of {root} wrote no {tensor.nbytes} bytes of its output {tensor.name}.",
                    hint="Is it the program that was packed? `edgepack verify` checks that.",
                )
            made.replace(results / made.name)
    return where


def _check_takes_inputs(root: Path, manifest: Manifest, options: RunOptions) -> None:
    """Raise ConfigError for a program whose results on other inputs cannot be had."""
    if manifest.device.bare_metal:
        raise ConfigError(
            f"The program of {root} is firmware for {manifest.device.name}, which takes no inputs but the "
            "recorded ones.",
            hint="`edgepack verify BUNDLE` compares on these; compare one of the model for this machine.",
        )
    own = load_device(options.device) if isinstance(options.device, str | os.PathLike) else options.device
    asked = options.runner or str(setting(device_of(manifest.device, own), "name") or "native")
    name = asked.partition(":")[0]
    if name in _ELSEWHERE or hasattr(RUNNERS.find(name), "PLACE"):
        raise ConfigError(
            f"The runner {name} runs the program of {root} where its results cannot be had from.",
            hint="Compare where an emulator or this machine can run it, or use `edgepack verify BUNDLE`.",
        )


def _copy_program(root: Path, manifest: Manifest, copy: Path) -> None:
    """Copies what the program needs: the files beside it, and the params."""
    program = manifest.artifact("program")
    if program is None:
        raise ConfigError(
            f"The bundle {root} has no loader program.",
            hint="Pack for a device whose artifacts include `program`.",
        )
    folder = PurePosixPath(program.path).parent
    paths = [file.path for file in manifest.files if PurePosixPath(file.path).parent == folder]
    for path in {*paths, program.path, *([manifest.params.file] if manifest.params.file else [])}:
        target = copy / PurePosixPath(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(inside(root, path), target)
