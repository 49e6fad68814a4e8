"""What a model becomes on its way to a device, without a bundle: ``edgepack stages``."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgepack.bundle.layout import default_name
from edgepack.commands.compiled_targets import Compilation, compile_for_targets, tuned_for, variants_of
from edgepack.commands.kept_stages import INDEX, plan_file
from edgepack.commands.model_file import check_model_file
from edgepack.config.device import Device, computes_float16, load_device
from edgepack.config.gpu import check_precision
from edgepack.config.host_gpu import require_gpu
from edgepack.config.option_checks import check_opt_level, check_optimize
from edgepack.errors import ConfigError, EdgepackWarning
from edgepack.options import DEFAULT_TIMEOUT, PackOptions, PathLike
from edgepack.pipeline.cache import Cache
from edgepack.pipeline.compile import Compiler
from edgepack.pipeline.requested import import_job
from edgepack.pipeline.suggested_cuts import suggesting_cuts
from edgepack.pipeline.worker_process import Worker
from edgepack.plan.stages import STAGES_FILE, KernelTexts, StagesRecord
from edgepack.system.confinement import Access
from edgepack.system.files import list_files
from edgepack.system.progress import Progress, Stages
from edgepack.system.temporary import temporary_folder

__all__ = ["TargetStages", "kernels_named", "look_inside"]


@dataclass(frozen=True)
class TargetStages:
    """What a model becomes for one of a device's targets.

    Attributes:
        variant: the target's name; "" for the only one.
        record: the stages and kernels.
        texts: by file, those of the record, ``index.txt`` and the plan.
    """

    variant: str
    record: StagesRecord
    texts: Mapping[str, str]

    @property
    def pages(self) -> list[str]:
        """The texts of the whole model, in order: the table of contents, the graphs, the plan."""
        graphs = [stage.file for stage in self.record.graph if stage.file]
        return [self.texts[file] for file in (INDEX, *graphs, plan_file(self.record))]


def look_inside(
    model: Path, device: PathLike | Device, options: PackOptions, progress: Progress | None
) -> list[TargetStages]:
    """Compile ``model`` for a device and read what it became on the way, for each target of the device.

    Raises:
        EdgepackError: as :func:`edgepack.pack`.
    """
    check_model_file(model)
    profile = device if isinstance(device, Device) else load_device(device)
    require_gpu(profile.gpu, profile.name)
    check_optimize(options.optimize)
    check_opt_level(options.opt_level)
    able = profile.gpu.api != "none" or computes_float16(profile)
    check_precision(options.precision, gpu=profile.gpu, able=able, device=profile.name)
    job, devices = import_job(model, options), [*variants_of(profile), profile]
    wanted = Compilation(default_name(model), devices, options, tuned_for(devices, options))
    if wanted.tuned.warning:
        warnings.warn(wanted.tuned.warning, EdgepackWarning, stacklevel=2)
    stages = Stages(progress)
    seconds = DEFAULT_TIMEOUT if options.timeout is None else options.timeout
    asked = device.name if isinstance(device, Device) else str(device)
    with (
        stages.within(seconds, f"Compiling {model.name}"),
        suggesting_cuts(model, asked, options),
        temporary_folder() as folder,
        Worker(progress=stages, access=job.access | Access(writes=(folder,))) as worker,
    ):
        work, texts = Compiler(worker, Cache() if options.cache else None), Path(folder) / "stages"
        imported = work.import_model(job, Path(folder) / "import")
        compile_for_targets(work, imported, wanted, Path(folder), texts)
        places = sorted(place.parent for place in texts.rglob(STAGES_FILE))
        return [_read(place, "" if place == texts else place.name) for place in places]


def _read(folder: Path, variant: str) -> TargetStages:
    texts = {file: (folder / file).read_text(encoding="utf-8") for file in list_files(folder)}
    return TargetStages(variant, StagesRecord.from_json(texts.pop(STAGES_FILE)), texts)


def kernels_named(found: Sequence[TargetStages], name: str) -> list[tuple[TargetStages, KernelTexts]]:
    """The kernels of a name, or symbol: one of each target at most.

    Raises:
        ConfigError: there is none; those with names like it are named.
    """
    every = [(one, kernel) for one in found for kernel in one.record.kernels]
    named = [(one, kernel) for one, kernel in every if name in (kernel.name, kernel.symbol)]
    if named:
        return named
    names = list(dict.fromkeys(kernel.name for _, kernel in every))
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or names[:3]
    raise ConfigError(
        f"The model has no kernel {name!r} among its {len(names)}.",
        hint=f"Did you mean {' or '.join(near)}? Without --kernel all of them are listed.",
    )
