"""Packs a model: reads what the user wants, has it compiled, and has the bundle assembled."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

from edgepack.bundle.assemble import assemble
from edgepack.bundle.firmware import project as firmware
from edgepack.bundle.layout import chosen_name, default_name
from edgepack.bundle.manifest import ModelRecord, OptionsRecord
from edgepack.bundle.recipe import Compiled, PackageIdentity, Recipe
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
from edgepack.commands.quantised_source import (
    job_before_pack,
    naming_model,
    packed_job,
    quantised_record,
)
from edgepack.commands.tuned_choices import TakenChoices
from edgepack.config.device import Device, computes_float16, load_device
from edgepack.config.gpu import check_precision
from edgepack.config.host_gpu import require_gpu
from edgepack.config.option_checks import check_opt_level, check_optimize, with_ram_budget
from edgepack.errors import ConfigError, EdgepackWarning, ModelError
from edgepack.formats.platform import npm
from edgepack.objectfiles.audit import load_in_background
from edgepack.options import DEFAULT_TIMEOUT, PackOptions, PathLike
from edgepack.pipeline.cache import Cache
from edgepack.pipeline.compile import Compiler, Imported, Quantised
from edgepack.pipeline.job import ImportJob, QuantiseJob
from edgepack.pipeline.requested import import_job
from edgepack.pipeline.suggested_cuts import suggesting_cuts
from edgepack.pipeline.versions import tool_versions
from edgepack.pipeline.worker_process import Worker
from edgepack.plan.limits import DEFAULT_TRIPS
from edgepack.plan.types import ParamsMode
from edgepack.system.disk_errors import writing_to
from edgepack.system.files import as_text
from edgepack.system.paths import cache_dir
from edgepack.system.progress import Progress, Stages
from edgepack.text.printable import printable
from edgepack.text.spelling import spelled
from edgepack.toolchains import resolve

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
    compiler = resolve(profile, options.toolchain, options.sdk)
    name = _name(model, options)
    params_mode = _params_mode(options, profile)
    destination = (Path(output) if output is not None else Path(f"{name}-{profile.name}")).resolve()
    check_destination(destination, force=options.force, model=model)
    stages_folder = _stages_folder(options, destination)
    _check_choices(options, profile)
    package = _package(options, profile)
    key = _params_key(options)
    wanted = _compilation(name, [*variants_of(profile), profile], options)
    job, rounding = import_job(model, options), job_before_pack(model, options)
    cache = Cache() if options.cache else None
    stages("find the toolchain")
    version = compiler.version()  # one that is missing is found out before the model is compiled, not after
    asked = device.name if isinstance(device, Device) else str(device)
    with (
        writing_to(_written(destination)),
        suggesting_cuts(model, asked, options),
        workplace(destination) as place,
        compiler.preparation(),
        kept_stages(stages_folder, force=options.force) as kept,
    ):
        load_in_background()
        with Worker(progress=stages) as worker, naming_model(model, place.job):
            work = Compiler(worker, cache)
            rounded = work.quantise_model(rounding, place.job / "quantise") if rounding else None
            imported = work.import_model(packed_job(job, rounded) if rounded else job, place.job / "import")
            compiled = compile_for_targets(work, imported, wanted, place.job, kept.folder)
        _check_speed(model, compiled, strict=options.strict_speed)
        recipe = Recipe(
            name=name,
            model=_model_record(job, imported, rounding, rounded),
            device=profile,
            imported=imported.folder,
            compiled=compiled,
            toolchain=compiler,
            toolchain_version=version,
            params_mode=params_mode,
            options=_options_record(options, profile, wanted.tuned),
            build=place.build,
            bundle=place.bundle,
            package=package,
            params_key=key,
            tools=tool_versions(profile.gpu.api),
            custom=tuple(dict.fromkeys(Path(one.source) for one in job.custom)),
            cache=cache,
            quantised=rounded.folder if rounded else None,
        )
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


def _package(options: PackOptions, device: Device) -> PackageIdentity:
    name, version = options.package_name or "", options.package_version or ""
    if device.os not in npm.SYSTEMS:
        if (name or version) and not options.formats:
            raise ConfigError(
                f"A bundle for {device.name} is no npm package, so it has no package name or version.",
                hint="Leave --package-name and --package-version out; --name names the model; --format makes "
                "packages.",
            )
        return PackageIdentity()
    npm.check_identity(name, version)
    return PackageIdentity(name, version)


def _check_choices(options: PackOptions, device: Device) -> None:
    check_optimize(options.optimize)
    check_opt_level(options.opt_level, strict_speed=options.strict_speed)
    able = device.gpu.api != "none" or computes_float16(device)
    check_precision(options.precision, gpu=device.gpu, able=able, device=device.name)
    if options.weights not in (None, "float32", "float16"):
        raise ConfigError(f"Weights cannot be {options.weights!r}.", hint="Use float32 or float16.")


def _params_mode(options: PackOptions, device: Device) -> ParamsMode:
    mode = options.params or device.params
    if mode not in ("file", "embed", "caller"):
        raise ConfigError(f"There is no way {mode!r} to ship params.", hint="Use file, embed or caller.")
    if device.bare_metal:
        firmware.check_options(device, mode, signed=options.params_key is not None)
    return mode


def _params_key(options: PackOptions) -> bytes:
    """The key that the library trusts; b"" for none."""
    if options.params_key is None:
        return b""
    from edgepack.signing.sums import public_key

    return public_key(os.fspath(options.params_key)).raw


def _options_record(options: PackOptions, device: Device, tuned: TakenChoices) -> OptionsRecord:
    return OptionsRecord(
        optimize=options.optimize,
        ram_budget=device.budget.ram if options.ram_budget is not None else None,
        tuned=tuned.record,
        opt_level=options.opt_level,
        strict_math=options.strict_math,
        weights=options.weights,
        precision=options.precision,
    )


def _model_record(
    job: ImportJob, imported: Imported, rounding: QuantiseJob | None, rounded: Quantised | None
) -> ModelRecord:
    return ModelRecord(
        file=as_text(job.model.name),
        sha256=rounded.digest if rounded else imported.digest,
        quantised=quantised_record(rounding, rounded, imported) if rounding and rounded else None,
        shapes={key: tuple(value) for key, value in sorted(job.shapes.items())},
        dims=dict(sorted(job.dims.items())),
        cut_inputs=tuple(job.cut_inputs),
        cut_outputs=tuple(job.cut_outputs),
        const={key: tuple(value) for key, value in sorted(job.const.items())},
        batch=job.batch,
        maxima=dict(sorted(job.maxima.items())),
        max_trips=0 if job.limits.trips == DEFAULT_TRIPS else job.limits.trips,
    )


def _check_speed(model: Path, compiled: Sequence[Compiled], *, strict: bool) -> None:
    """Raise ModelError where a plan has slow kernels and the user is strict about them."""
    lines = list(dict.fromkeys(line for one in compiled for line in plan_of(one.folder).slow_kernels))
    if lines and strict:
        raise ModelError(
            f"{model} would be slow: {lines[0]}.",
            hint="Without --strict-speed it is packed all the same, with a warning for each slow kernel.",
            detail="\n".join(lines[1:]),
        )
