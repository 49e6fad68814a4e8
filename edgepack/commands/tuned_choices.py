"""Which tuned schedules a pack takes: those of the user's files that are for the kinds of CPU, and the GPU,
in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgepack.bundle.manifest import TunedRecord
from edgepack.config.tuned import read_all_tuned, tuned_digest
from edgepack.options import PathLike
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.targets import Target
from edgepack.plan.tuned import TunedChoice

__all__ = ["NO_CHOICES", "TakenChoices", "tuned_choices"]


#: Kinds of CPU in a message.
_MOST_NAMED = 8


@dataclass(frozen=True)
class TakenChoices:
    """What is taken of files of tuned schedules.

    Attributes:
        choices: for the kinds of CPU, and the GPU, that are compiled for, sorted by kind and group.
        warning: that the files have none for any of these kinds, a sentence; "" where they have, or where
            they say that nothing that was tried on one of them is faster.
    """

    choices: tuple[TunedChoice, ...] = ()
    warning: str = ""

    def of(self, target: Target) -> tuple[TunedChoice, ...]:
        """Those for a target; of a GPU, also for the CPU beside it."""
        return tuple(choice for choice in self.choices if choice.cpu in target.tuned_kinds)

    @property
    def record(self) -> TunedRecord | None:
        """What a manifest says of them; None for none."""
        if not self.choices:
            return None
        return TunedRecord(choices=len(self.choices), sha256=tuned_digest(self.choices))


NO_CHOICES = TakenChoices()


def tuned_choices(files: Sequence[PathLike], targets: Sequence[Target], device: str) -> TakenChoices:
    """What of ``files`` is taken for ``targets``.

    Args:
        targets: the last one is the device's own.
        device: its name, for the warning.

    Raises:
        ConfigError: a file cannot be read, or what is wrong in it.
    """
    if not files:
        return NO_CHOICES
    paths = [Path(file) for file in files]
    found = read_all_tuned(paths)
    kinds = {kind for target in targets for kind in target.tuned_kinds}
    if choices := found.for_cpus(kinds):
        return TakenChoices(choices)
    if kinds & found.tried.keys():  # measured, and the rules' own are the fastest
        return TakenChoices()
    named = ", ".join(map(str, paths))
    has = [repr(kind) for kind in found.cpus]
    if len(has) > _MOST_NAMED:
        has[_MOST_NAMED:] = [f"{len(has) - _MOST_NAMED} more"]
    return TakenChoices(
        (),
        f"{named}: no tuned schedules for {device}, {_of_kinds(targets)}; "
        f"there are those for: {', '.join(has) or 'none'}",
    )


def _of_kinds(targets: Sequence[Target]) -> str:
    """Which kind of CPU, and of GPU, a device has."""
    said = f"whose kind of CPU is {targets[-1].cpu_kind!r}"
    gpus = [target.gpu_kind for target in targets if isinstance(target, GpuTarget)]
    return f"{said} and of GPU {gpus[0]!r}" if gpus else said
