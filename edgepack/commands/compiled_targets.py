"""An imported model compiled for all that a device's library has kernels for: kinds of CPU, and a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgepack.bundle.recipe import Compiled
from edgepack.commands.kept_stages import complete_stages, variant_folder
from edgepack.commands.tuned_choices import NO_CHOICES, TakenChoices, tuned_choices
from edgepack.config.device import Device, load_variant
from edgepack.errors import ConfigError
from edgepack.options import PackOptions
from edgepack.pipeline.compile import Compiler, Imported
from edgepack.pipeline.compile_job import CompileJob
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.target import CpuTarget, with_precision
from edgepack.plan.targets import Target
from edgepack.plan.types import Plan

__all__ = ["Compilation", "compile_for_targets", "plan_of", "targets_of", "tuned_for", "variants_of"]


def variants_of(device: Device) -> list[Device]:
    """The devices whose kernels the library holds too. Raises ConfigError for two of one name, by which the
    library's user chooses."""
    found = [load_variant(device, other) for other in device.variants]
    names = [*(one.name for one in found), *([device.gpu.api] if device.gpu.api != "none" else [])]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(
            f"device {device.name}: two of its variants have the name {twice[0]!r}",
            hint="Name each once; the variant of a GPU has the name of its driver.",
        )
    return found


@dataclass(frozen=True)
class Compilation:
    """What a model is compiled for, and how.

    Attributes:
        name: the model's, a C identifier.
        devices: the last of them is the bundle's own.
        options: what the user chose.
        tuned: schedules that were measured, of which each target gets its own.
    """

    name: str
    devices: Sequence[Device]
    options: PackOptions
    tuned: TakenChoices = NO_CHOICES


def compile_for_targets(
    compiler: Compiler, imported: Imported, wanted: Compilation, folder: Path, texts: Path | None = None
) -> tuple[Compiled, ...]:
    """An imported model for each of the wanted devices.

    Args:
        folder: for the worker's jobs.
        texts: where texts of the stages go, those of each target in a folder of its own if there are several;
            None for none.
    """
    name, devices = wanted.name, wanted.devices
    compiled = []
    targets = targets_of(devices, wanted.options)
    names = [target.api if isinstance(target, GpuTarget) else device.name for device, target in targets]
    for number, (device, target) in enumerate(targets):
        own = device is devices[-1] and target.kind == "cpu"
        prefix = f"edgepack_{name}_" if own else f"edgepack_{name}_v{number}_"
        place = folder / f"compile{number}"
        stages = None if texts is None else texts / variant_folder(names, number)
        job = CompileJob(
            *(imported.model, imported.folder, imported.frontend, name, target, prefix, stages),
            tuned=wanted.tuned.of(target),
        )
        compiler.compile_model(job, imported, place)
        if stages is not None:
            complete_stages(stages, plan_of(place), prefix)
        compiled.append(Compiled(device, place, "" if isinstance(target, CpuTarget) else target.api))
    return tuple(compiled)


def targets_of(devices: Sequence[Device], options: PackOptions) -> list[tuple[Device, Target]]:
    """What kernels are compiled for, in the order in which the library tries them: the GPU of the device,
    which is the last one, then each kind of CPU."""
    own = [device.cpu_target() for device in devices]
    widths = tuple(cpu.vector_bits for cpu in own)
    cpus = [
        replace(
            cpu,
            threads=devices[-1].threads,
            optimize=options.optimize,
            opt_level=options.opt_level,
            strict_math=options.strict_math,
            library_vector_bits=widths if len(set(widths)) > 1 else (),
            steady_params=devices[-1].bare_metal and (options.params or devices[-1].params) != "embed",
        )
        for cpu in own
    ]
    gpu = devices[-1].gpu_target(cpus[-1], options.precision or "fp32")
    if gpu is None:
        cpus = [with_precision(cpu, options.precision) for cpu in cpus]
    targets: list[tuple[Device, Target]] = [] if gpu is None else [(devices[-1], gpu)]
    return [*targets, *zip(devices, cpus, strict=True)]


def tuned_for(devices: Sequence[Device], options: PackOptions) -> TakenChoices:
    """The tuned schedules for all of ``devices``, the last of which is the bundle's own. Raises ConfigError
    for a file that cannot be read."""
    targets = [target for _, target in targets_of(devices, options)] if options.tuned else []
    return tuned_choices(options.tuned, targets, devices[-1].name)


def plan_of(folder: Path) -> Plan:
    """The plan among the results of a compile job."""
    return Plan.from_json((folder / "plan.json").read_text(encoding="utf-8"))
