"""Releases from Python: what the commands do, without printing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TypedDict

from typing_extensions import Unpack

from edgepack.config.option_checks import check_whole
from edgepack.errors import ConfigError
from edgepack.options import PathLike
from edgepack.release import starter
from edgepack.release.run import Release, ReleaseOptions, release
from edgepack.system.boundary import guarded

__all__ = ["ReleaseKeywords", "make_release", "new_project"]


class ReleaseKeywords(TypedDict, total=False):
    """The fields of :class:`edgepack.release.run.ReleaseOptions` as keyword arguments."""

    only: Sequence[str]
    against: PathLike | None
    jobs: int | None
    executor: str
    scheduler: str
    bench: bool
    allow_same_version: bool
    unsigned: bool


@guarded
def new_project(
    folder: PathLike,
    model: PathLike | None = None,
    ci: Sequence[str] = (),
    edgepack: str | PathLike | None = None,
) -> Path:
    """Write a commented project file, for :func:`make_release`, and its JSON Schema into a folder.

    Args:
        folder: is made where it is missing.
        model: a model that the file names, with sizes for what the model leaves open.
        ci: ``github``, ``gitlab``: for whom to write a workflow into the repository that holds the folder
            (docs/ship/ci.md). A project file that is there stays then.
        edgepack: what the workflow installs: a wheel of edgepack, which is copied into the repository, or
            ``git+https://HOST/OWNER/edgepack@COMMIT``; default this edgepack, of which a wheel is made if it
            is from a checkout.

    Returns:
        the project file, ``edgepack.yaml``.

    Raises:
        ConfigError: there is one already, a project file or a workflow, or no such model.
        ModelError: the model cannot be read.
        ToolchainError: no wheel can be made of the checkout that this edgepack is from.
    """
    file = Path(model) if model is not None else None
    installed = str(edgepack) if edgepack is not None else None
    return starter.new_project_files(Path(folder), file, ci, installed)[0]


@guarded
def make_release(
    project: PathLike = "edgepack.yaml",
    output: PathLike = "dist",
    **options: Unpack[ReleaseKeywords],
) -> Release:
    """Build what a project file describes, for all its devices, and publish it as one
    folder (docs/ship/releases.md).

    Args:
        project: the project file, or its folder.
        output: the release's folder; one that is there is replaced at once, when all is built.
        options: ``only``, patterns of ``MODEL@DEVICE``: the release then holds these alone; ``against``, the
            folder or ``release.json`` of the release to compare with; ``jobs``, how many units are built at
            once (default: one for each CPU); ``executor``, what builds them: ``processes`` of this machine or
            ``dask``; ``scheduler``, the address of Dask's; ``bench``, whether what runs here at its own
            speed is measured; ``allow_same_version``, whether a model may differ from the one that was
            released under the same version without a warning; ``unsigned``, whether it is not signed though
            the project names a key.

    Returns:
        what was published; or, where a unit could not be built, why, and nothing was published.

    Raises:
        ConfigError: what is wrong in the project file, with its line, or in the arguments.
    """
    names = [field.name for field in fields(ReleaseOptions)]
    for name in options:
        if name not in names:
            raise ConfigError(f"make_release has no option {name!r}.", hint=f"It has {', '.join(names)}.")
    check_whole("jobs", options.get("jobs"), least=1)
    against = options.get("against")
    chosen = replace(
        ReleaseOptions(),
        **{key: value for key, value in options.items() if key not in ("against", "only")},  # type: ignore[arg-type]
        only=tuple(options.get("only") or ()),
        against=Path(against) if against is not None else None,
    )
    return release(Path(project), Path(output), chosen)
