"""Measure schedules of a model's kernels where it will run, and keep those that are faster there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from typing_extensions import Unpack

from edgepack.commands.model_file import check_model_file
from edgepack.commands.tune_device import OnDevice
from edgepack.commands.tune_programs import Programs
from edgepack.commands.tune_results import Tuned, TuneLayer, TuneRound
from edgepack.commands.tune_search import Bounds, Search
from edgepack.config.device import Device, load_device
from edgepack.config.option_checks import check_options, with_ram_budget
from edgepack.config.tuned import TunedFile, check_writable, read_tuned
from edgepack.errors import ConfigError
from edgepack.options import CheckKeywords, PackOptions, PathLike, RunOptions
from edgepack.pipeline.suggested_cuts import suggesting_cuts
from edgepack.system.boundary import guarded, undisturbed
from edgepack.system.disk_errors import writing_to
from edgepack.system.progress import Progress, Stages
from edgepack.system.temporary import temporary_folder

__all__ = ["TuneLayer", "TuneRound", "Tuned", "tune"]

#: Minutes of a search to which no end is given.
DEFAULT_MINUTES = 10.0


class TuneKeywords(CheckKeywords, total=False):
    """The options of :func:`tune` as keyword arguments."""

    runner: str | None
    run_timeout: float | None


@guarded
def tune(
    model: PathLike,
    device: PathLike | Device,
    output: PathLike,
    *,
    minutes: float | None = None,
    trials: int | None = None,
    progress: Progress | None = None,
    on_round: Callable[[TuneRound], None] | None = None,
    **options: Unpack[TuneKeywords],
) -> Tuned:
    """Search for faster schedules of a model's kernels, by measuring them on the device.

    Each trial is a version of the whole model in which many kernels have another schedule, each step of which
    is timed in turns with the same steps of the best version so far, by one program that has several of them.
    Nothing is installed on the device.

    Args:
        model: its file.
        device: a device's name, a path to its YAML file, or the device.
        output: the file of tuned schedules; what it has is the start, and what was tried is not tried again.
        minutes: that it may take; default 10, where no number of trials is given.
        trials: versions of the model with candidates that it may measure.
        progress: as for :func:`edgepack.pack`; a round is a stage.
        on_round: is told what each round found.
        options: as for :func:`edgepack.check`; and ``runner``: where programs run, as for ``Bundle.bench``
            (``ssh:user@board``, ``adb``), default this machine or what the device says (microcontrollers'
            instructions are counted under qemu); ``run_timeout``: seconds for each run of a program.

    Raises:
        ConfigError: no such model, device or option, or an emulator, whose times say nothing.
        CheckFailedError: the model's program does not compute what it should to begin with.
        ModelError, ToolchainError, InternalError: as for :func:`edgepack.pack`, and from the runner.
        KeyboardInterrupt: what was found so far is in the file.
    """
    source = _checked(model, device, minutes, trials, options)
    profile = load_device(device) if not isinstance(device, Device) else device
    profile = with_ram_budget(profile, options.get("ram_budget"))
    limit = DEFAULT_MINUTES if minutes is None and trials is None else minutes
    path = Path(output)
    known = read_tuned(path) if path.exists() else TunedFile()
    check_writable(path)
    where = RunOptions(runner=options.get("runner"), timeout=options.get("run_timeout"), device=profile)
    of_pack: Any = {name: value for name, value in options.items() if name in CheckKeywords.__annotations__}
    chosen, asked = PackOptions(**of_pack), profile.name if isinstance(device, Device) else os.fspath(device)
    places = {"output folder": path.parent.absolute(), "temporary folder": Path(gettempdir())}
    with (
        writing_to(places),
        suggesting_cuts(source, str(asked), chosen),
        temporary_folder() as folder,
        Programs(source, profile, chosen, folder) as programs,
    ):
        programs.beside = known.for_cpus(programs.target.tuned_kinds[1:])
        place = OnDevice(programs, where)
        stages, bounds = Stages(undisturbed(progress)), Bounds(limit, trials)
        return Search(place, path, known, bounds, stages, on_round=undisturbed(on_round)).found()


def _checked(
    model: PathLike,
    device: PathLike | Device,
    minutes: float | None,
    trials: int | None,
    options: TuneKeywords,
) -> Path:
    """The model's file. Raises ConfigError for arguments that are wrong by themselves."""
    check_options({"model": model, "device": device, **options}, "tune")
    if not isinstance(model, str | os.PathLike):
        raise ConfigError(
            "tune takes a model's file, no model in memory.", hint="Save it, and give its path."
        )
    check_model_file(source := Path(model))
    if (minutes is not None and minutes <= 0) or (trials is not None and trials < 1):
        raise ConfigError("A search needs some time, or trials.", hint="Give --minutes 10, or --trials 20.")
    if options.get("tuned"):
        raise ConfigError(
            "A search starts from what its own file has, not from --tuned.",
            hint="Merge the files into it first: edgepack tune --merge FILE --merge FILE -o FILE.",
        )
    return source
