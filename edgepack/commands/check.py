"""Checks a model without compiling it: what would be compiled, refused or slow on a device, and how large."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edgepack.commands.check_memory import with_memory
from edgepack.commands.compiled_targets import targets_of, tuned_for
from edgepack.config.device import Device, computes_float16, load_device
from edgepack.config.gpu import check_precision
from edgepack.config.host_gpu import require_gpu
from edgepack.config.option_checks import check_opt_level, check_optimize, with_ram_budget
from edgepack.errors import ModelError
from edgepack.objectfiles.code_size import kernels_bytes
from edgepack.options import DEFAULT_TIMEOUT, PackOptions, PathLike
from edgepack.pipeline.compile import identified
from edgepack.pipeline.requested import check_job
from edgepack.pipeline.suggested_cuts import suggesting_cuts
from edgepack.pipeline.worker_process import Worker
from edgepack.plan.model_check import ModelCheck, Refused
from edgepack.plan.types import Plan
from edgepack.system.confinement import Access
from edgepack.system.progress import Progress, Stages
from edgepack.system.temporary import temporary_folder

__all__ = ["check_model"]


def check_model(
    model: Path, device: PathLike | Device, options: PackOptions, progress: Progress | None
) -> ModelCheck:
    """What would become of ``model``; arguments and errors as for :func:`edgepack.check`."""
    profile = device if isinstance(device, Device) else load_device(device)
    profile = with_ram_budget(profile, options.ram_budget)
    require_gpu(profile.gpu, profile.name)
    asked = device.name if isinstance(device, Device) else str(device)
    check_optimize(options.optimize)
    check_opt_level(options.opt_level)
    able = profile.gpu.api != "none" or computes_float16(profile)
    check_precision(options.precision, gpu=profile.gpu, able=able, device=profile.name)
    _, target = targets_of([profile], options)[0]
    tuned = tuned_for([profile], options)
    job = check_job(model, options, target, tuned.of(target))
    stages = Stages(progress)
    seconds = DEFAULT_TIMEOUT if options.timeout is None else options.timeout
    try:
        with (
            stages.within(seconds, f"Checking {model.name}"),
            suggesting_cuts(model, asked, options),
            temporary_folder() as folder,
            Worker(progress=stages, access=job.access | Access(writes=(folder,))) as worker,
        ):
            worker.run(identified(job, worker, folder), folder)
            plan = Plan.from_json((folder / "plan.json").read_text(encoding="utf-8"))
            code = folder / "kernels.o"
            code_bytes = kernels_bytes(code) if profile.bare_metal and code.is_file() else 0
    except ModelError as error:
        if not error.refused:
            raise
        refused = tuple(Refused(r["operator"], tuple(r["nodes"]), r["reason"]) for r in error.refused)
        return ModelCheck(
            ok=False,
            model=model.name,
            device=profile.name,
            message=error.message,
            hint=error.hint,
            refused=refused,
            cuts=error.cuts,
        )
    found = ModelCheck.of_plan(plan, model=model.name, device=profile.name)
    if tuned.warning:
        found = replace(found, warnings=(*found.warnings, tuned.warning))
    return with_memory(found, plan, code_bytes, profile) if profile.bare_metal else found
