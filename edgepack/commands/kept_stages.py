"""The folder of ``--keep-stages``: the texts that the worker wrote, with a table of contents and the plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgepack.bundle.writer import check_holds_only, normalise_modes, workplace
from edgepack.errors import ConfigError
from edgepack.plan.stages import STAGES_FILE, StagesRecord
from edgepack.plan.types import Plan
from edgepack.render.plan_text import plan_text
from edgepack.render.stages_text import index_text
from edgepack.system.atomic import replace_folder
from edgepack.system.disk_errors import refusal
from edgepack.system.files import read_regular
from edgepack.system.temporary import OLD

__all__ = ["INDEX", "KeptStages", "check_stages_folder", "complete_stages", "kept_stages", "variant_folder"]

#: The table of contents, in the folder of each target.
INDEX = "index.txt"

#: Bytes of ``stages.json``: a network of 20,000 operators has 10 MB.
_LARGEST = 64 << 20


def complete_stages(folder: Path, plan: Plan, prefix: str) -> StagesRecord:
    """Write what follows from the plan beside the texts of the worker: the plan, and the table of contents.

    Args:
        folder: with the worker's texts.
        prefix: of the kernels' symbols.
    """
    record = _record(folder)
    name = plan_file(record)
    index = index_text(record, name, len(plan.steps))
    for file, text in ((name, plan_text(plan, prefix)), (INDEX, index)):
        (folder / file).write_text(text, encoding="utf-8", newline="\n")
    return record


def plan_file(record: StagesRecord) -> str:
    """Name of the text of the plan, the last stage."""
    return f"{len(record.graph) + 1:02}-plan.txt"


def variant_folder(names: Sequence[str], number: int) -> str:
    """Where the texts of one of several targets lie, in the folder of all; "" for one alone.

    Args:
        names: of the targets.
    """
    return names[number] if len(names) > 1 else ""


def check_stages_folder(folder: Path, *, force: bool, bundle: Path | None = None) -> None:
    """Refuse a folder that must not be replaced.

    Args:
        bundle: where the bundle goes: neither may lie in the other.

    Raises:
        ConfigError: it is a file; or holds something and ``force`` is false; or holds, with ``force``, what
            is not of such texts.
    """
    hint = "Choose another folder with --keep-stages."
    if bundle is not None and (folder == bundle or folder in bundle.parents or bundle in folder.parents):
        raise ConfigError(f"The stages {folder} and the bundle {bundle} lie in one another.", hint=hint)
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise ConfigError(f"{folder} exists and is not a folder.", hint=hint)
    if not any(folder.iterdir()):
        return
    if not force:
        raise ConfigError(
            f"{folder} exists and is not empty.",
            hint="Replace it with --force, or choose another folder with --keep-stages.",
        )
    own = {name for place in (folder, *sorted(folder.iterdir())) for name in _own_files(folder, place)}
    if not own:
        raise ConfigError(
            f"{folder} holds no stages of a model; --force replaces only such.",
            hint=f"Remove it yourself. {hint}",
        )
    check_holds_only(folder, own, "stages", option="--keep-stages")


def _own_files(root: Path, place: Path) -> set[str]:
    """The files of one target's texts, from ``root`` on, as their list has them; none where there is no
    list."""
    if place.is_symlink() or not (place / STAGES_FILE).is_file():
        return set()
    try:
        record = _record(place)
    except (OSError, ValueError, TypeError, KeyError):
        return set()
    files = {STAGES_FILE, INDEX, plan_file(record), *record.common}
    files |= {stage.file for stage in record.graph if stage.file}
    files |= {file for kernel in record.kernels for file in kernel.files}
    return {(place.relative_to(root) / file).as_posix() for file in files}


def _record(folder: Path) -> StagesRecord:
    return StagesRecord.from_json(read_regular(folder / STAGES_FILE, _LARGEST).decode("utf-8"))


@dataclass(frozen=True)
class KeptStages:
    """A hidden folder that becomes the one that the user named.

    Attributes:
        folder: where the texts are written; None where none are kept.
        publish: puts it in the place of the user's folder. Raises ConfigError if that appeared in the
            meantime and may not be replaced, or cannot be written.
    """

    folder: Path | None
    publish: Callable[[], None]


@contextmanager
def kept_stages(destination: Path | None, *, force: bool) -> Iterator[KeptStages]:
    """A place for the texts, removed at the end with all that was not published.

    Args:
        destination: where the texts go; None where none are kept.
        force: replace what lies there.

    Raises:
        ConfigError: the folder of the destination cannot be made or written to.
    """
    if destination is None:
        yield KeptStages(None, lambda: None)
        return
    with workplace(destination) as place:

        def publish() -> None:
            check_stages_folder(destination, force=force)
            normalise_modes(place.bundle, set())
            try:
                replace_folder(place.bundle, destination, place.root / OLD)
            except OSError as error:
                raise refusal(error) or ConfigError(
                    f"{destination} cannot be written: {error.strerror or error}.",
                    hint="Choose another folder with --keep-stages.",
                ) from error

        yield KeptStages(place.bundle, publish)
