"""What is settled of a bundle before its model is compiled, and the recipe of what was compiled."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgepack.bundle.firmware import project as firmware
from edgepack.bundle.manifest import ModelRecord, OptionsRecord
from edgepack.bundle.recipe import Compiled, PackageIdentity, Recipe
from edgepack.bundle.writer import Workplace
from edgepack.commands.quantised_source import job_before_pack, quantised_record
from edgepack.commands.tuned_choices import TakenChoices
from edgepack.config.device import Device, computes_float16
from edgepack.config.gpu import check_precision
from edgepack.config.option_checks import check_opt_level, check_optimize
from edgepack.errors import ConfigError
from edgepack.formats.platform import npm
from edgepack.options import PackOptions
from edgepack.pipeline.cache import Cache
from edgepack.pipeline.compile import Imported, Quantised
from edgepack.pipeline.job import ImportJob, QuantiseJob
from edgepack.pipeline.requested import import_job
from edgepack.pipeline.versions import tool_versions
from edgepack.plan.limits import DEFAULT_TRIPS
from edgepack.plan.types import ParamsMode
from edgepack.system.confinement import Access
from edgepack.system.files import as_text
from edgepack.toolchains import resolve
from edgepack.toolchains.base import Toolchain

__all__ = ["Packing"]


@dataclass(frozen=True)
class Packing:
    """What is settled before a model is compiled.

    Attributes:
        name: the model's, a C identifier.
        device: what the bundle is for.
        options: what the user chose.
        toolchain: compiles and links the bundle's C.
        params_mode: where the params go.
        package: what the bundle is called as a package of its platform's own kind.
        key: whose owner may give the library other params; b"" for nobody.
        job: prepares the model.
        rounding: quantises it before; None for a model that is packed as it is.
        cache: None to compile all anew.
    """

    name: str
    device: Device
    options: PackOptions
    toolchain: Toolchain
    params_mode: ParamsMode
    package: PackageIdentity
    key: bytes
    job: ImportJob
    rounding: QuantiseJob | None
    cache: Cache | None

    @classmethod
    def of(cls, model: Path, name: str, device: Device, options: PackOptions) -> Packing:
        """What packs ``model`` for ``device``.

        Raises:
            ConfigError: the options do not go together, or not with the device.
            ToolchainError: there is no toolchain for it.
        """
        toolchain = resolve(device, options.toolchain, options.sdk)
        params_mode = _params_mode(options, device)
        _check_choices(options, device)
        return cls(
            name=name,
            device=device,
            options=options,
            toolchain=toolchain,
            params_mode=params_mode,
            package=_package(options, device),
            key=_params_key(options),
            job=import_job(model, options),
            rounding=job_before_pack(model, options),
            cache=Cache() if options.cache else None,
        )

    def access(self, folder: Path, stages: Path | None = None) -> Access:
        """What the worker may open.

        Args:
            folder: for all jobs' results.
            stages: for texts of the stages; None for none.
        """
        of_jobs = self.job.access if self.rounding is None else self.job.access | self.rounding.access
        return of_jobs | Access(writes=(folder,) if stages is None else (folder, stages))

    def recipe(
        self,
        imported: Imported,
        compiled: Sequence[Compiled],
        place: Workplace,
        *,
        version: str,
        tuned: TakenChoices,
        rounded: Quantised | None = None,
    ) -> Recipe:
        """What is assembled of a model that was compiled.

        Args:
            place: where.
            version: of the toolchain.
            tuned: the measured schedules that were taken.
            rounded: the quantised model, where it was quantised.
        """
        return Recipe(
            name=self.name,
            model=_model_record(self.job, imported, self.rounding, rounded),
            device=self.device,
            imported=imported.folder,
            compiled=tuple(compiled),
            toolchain=self.toolchain,
            toolchain_version=version,
            params_mode=self.params_mode,
            options=_options_record(self.options, self.device, tuned),
            build=place.build,
            bundle=place.bundle,
            package=self.package,
            params_key=self.key,
            tools=tool_versions(self.device.gpu.api),
            custom=tuple(dict.fromkeys(Path(one.source) for one in self.job.custom)),
            cache=self.cache,
            quantised=rounded.folder if rounded else None,
        )


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
