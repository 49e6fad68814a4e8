"""Packs a model: reads what the user wants, has it compiled, and has the bundle assembled."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

from edgepack.bundle.assemble import assemble
from edgepack.bundle.layout import chosen_name, default_name
from edgepack.bundle.recipe import Compiled
from edgepack.bundle.writer import check_destination, workplace
from edgepack.commands.compiled_targets import (
    Compilation,
    compile_for_targets,
    plan_of,
    tuned_for,
    variants_of,
)
from edgepack.commands.kept_stages import check_stages_folder, kept_stages
from edgepack.commands.model_file import check_model_file
from edgepack.commands.packing import Packing
from edgepack.commands.quantised_source import naming_model, packed_job
from edgepack.config.device import Device, load_device
from edgepack.config.host_gpu import require_gpu
from edgepack.config.option_checks import with_ram_budget
from edgepack.errors import EdgepackWarning, ModelError
from edgepack.objectfiles.audit import load_in_background
from edgepack.options import DEFAULT_TIMEOUT, PackOptions, PathLike
from edgepack.pipeline.compile import Compiler
from edgepack.pipeline.suggested_cuts import suggesting_cuts
from edgepack.pipeline.worker_process import Worker
from edgepack.system.disk_errors import writing_to
from edgepack.system.paths import cache_dir
from edgepack.system.progress import Progress, Stages
from edgepack.text.printable import printable
from edgepack.text.spelling import spelled

__all__ = ["pack_model"]


def pack_model(
    model: Path,
    device: PathLike | Device,
    output: PathLike | None,
    options: PackOptions,
    progress: Progress | None,
) -> tuple[Path, dict[str, float]]:
    """Compile ``model`` into a bundle; arguments and errors as for :func:`edgepack.pack`.

    Returns:
        the bundle's folder, and how many seconds each stage took.
    """
    stages = Stages(progress)
    seconds = DEFAULT_TIMEOUT if options.timeout is None else options.timeout
    with stages.within(seconds, f"Packing {model.name}"):
        destination = _pack(model, device, output, options, stages)
    return destination, stages.seconds


def _pack(
    model: Path, device: PathLike | Device, output: PathLike | None, options: PackOptions, stages: Stages
) -> Path:
    check_model_file(model)
    profile = load_device(device) if isinstance(device, str | os.PathLike) else device
    profile = with_ram_budget(profile, options.ram_budget)
    require_gpu(profile.gpu, profile.name)
    packing = Packing.of(model, name := _name(model, options), profile, options)
    destination = (Path(output) if output is not None else Path(f"{name}-{profile.name}")).resolve()
    check_destination(destination, force=options.force, model=model)
    stages_folder = _stages_folder(options, destination)
    wanted = _compilation(name, [*variants_of(profile), profile], options)
    job, rounding = packing.job, packing.rounding
    stages("find the toolchain")
    version = packing.toolchain.version()  # of one that is missing: before the model is compiled, not after
    asked = device.name if isinstance(device, Device) else str(device)
    with (
        writing_to(_written(destination)),
        suggesting_cuts(model, asked, options),
        workplace(destination) as place,
        packing.toolchain.preparation(),
        kept_stages(stages_folder, force=options.force) as kept,
    ):
        load_in_background()
        with (
            Worker(progress=stages, access=packing.access(place.job, kept.folder)) as worker,
            naming_model(model, place.job),
        ):
            work = Compiler(worker, packing.cache)
            rounded = work.quantise_model(rounding, place.job / "quantise") if rounding else None
            imported = work.import_model(packed_job(job, rounded) if rounded else job, place.job / "import")
            compiled = compile_for_targets(work, imported, wanted, place.job, kept.folder)
        _check_speed(model, compiled, strict=options.strict_speed)
        tuned = wanted.tuned
        recipe = packing.recipe(imported, compiled, place, version=version, tuned=tuned, rounded=rounded)
        assemble(recipe, stages)
        place.publish(force=options.force)
        kept.publish()
    stages.end()
    return destination


def _written(destination: Path) -> dict[str, Path]:
    """The folders that are written to, by what a message calls them."""
    folders = {"output folder": destination.parent, "cache folder": cache_dir()}
    return {**folders, "temporary folder": Path(tempfile.gettempdir())}


def _stages_folder(options: PackOptions, bundle: Path) -> Path | None:
    """Where texts of the stages go; None where none are asked for. Raises ConfigError for a folder that must
    not be replaced."""
    if options.keep_stages is None:
        return None
    folder = Path(options.keep_stages).resolve()
    check_stages_folder(folder, force=options.force, bundle=bundle)
    return folder


def _name(model: Path, options: PackOptions) -> str:
    """What the model is called. An EdgepackWarning says where that is not quite what the user wrote."""
    if options.name is None:
        return default_name(model)
    name = chosen_name(options.name)
    if name != options.name:
        text = f"--name: {printable(options.name)!r} is no C identifier; the model is called {name}"
        warnings.warn(spelled(text), EdgepackWarning, stacklevel=5)
    return name


def _compilation(name: str, devices: Sequence[Device], options: PackOptions) -> Compilation:
    """What is compiled. An EdgepackWarning says where the user's tuned schedules are for other CPUs."""
    found = tuned_for(devices, options)
    if found.warning:
        warnings.warn(spelled(found.warning), EdgepackWarning, stacklevel=6)
    return Compilation(name, devices, options, found)


def _check_speed(model: Path, compiled: Sequence[Compiled], *, strict: bool) -> None:
    """Raise ModelError where a plan has slow kernels and the user is strict about them."""
    lines = list(dict.fromkeys(line for one in compiled for line in plan_of(one.folder).slow_kernels))
    if lines and strict:
        raise ModelError(
            f"{model} would be slow: {lines[0]}.",
            hint="Without --strict-speed it is packed all the same, with a warning for each slow kernel.",
            detail="\n".join(lines[1:]),
        )
