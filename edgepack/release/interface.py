"""Releases from Python: what the commands do, without printing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgepack.boundary import guarded
from edgepack.options import PathLike, check_whole
from edgepack.release import starter
from edgepack.release.run import Release, ReleaseOptions, release

__all__ = ["make_release", "new_project"]


@guarded
def new_project(folder: PathLike, model: PathLike | None = None) -> Path:
    """Write a commented project file, for :func:`make_release`, and its JSON Schema into a folder.

    Args:
        folder: is made where it is missing.
        model: a model that the file names, with sizes for what the model leaves open.

    Returns:
        the project file, ``edgepack.yaml``.

    Raises:
        ConfigError: there is one already, or no such model.
        ModelError: the model cannot be read.
    """
    return starter.new_project(Path(folder), Path(model) if model is not None else None)


@guarded
def make_release(
    project: PathLike = "edgepack.yaml",
    output: PathLike = "dist",
    *,
    only: Sequence[str] = (),
    against: PathLike | None = None,
    jobs: int | None = None,
    executor: str = "processes",
    scheduler: str = "",
) -> Release:
    """Build what a project file describes, for all its devices, and publish it as one
    folder (docs/release.md).

    Args:
        project: the project file, or its folder.
        output: the release's folder; one that is there is replaced at once, when all is built.
        only: patterns of ``MODEL@DEVICE``; the release then holds these alone.
        against: folder or ``release.json`` of the release to compare with.
        jobs: how many units are built at once; default one for each CPU.
        executor: what builds them: ``processes`` of this machine, or ``dask``.
        scheduler: address of Dask's scheduler.

    Returns:
        what was published; or, where a unit could not be built, why, and nothing was published.

    Raises:
        ConfigError: what is wrong in the project file, with its line, or in the arguments.
    """
    check_whole("jobs", jobs, least=1)
    previous = Path(against) if against is not None else None
    options = ReleaseOptions(tuple(only), jobs, previous, executor, scheduler)
    return release(Path(project), Path(output), options)
