"""``edgepack new``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from edgepack.cli.output import Settings, say, verbosity_options
from edgepack.text.printable import printable

__all__ = ["command"]


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--model", type=click.Path(path_type=Path), help="A model that the project file names.")
@click.option(
    "--ci",
    multiple=True,
    type=click.Choice(["github", "gitlab"]),
    help="Write the workflow by which GitHub or GitLab checks and releases the project too; a project file "
    "that is there stays.",
)
@click.option(
    "--edgepack",
    "installed",
    metavar="WHEEL|GIT",
    help="What --ci's workflow installs: a wheel of edgepack, which is copied into the repository, or "
    "git+https://HOST/OWNER/edgepack@COMMIT; default this edgepack.",
)
@verbosity_options
def command(
    settings: Settings, folder: Path, model: Path | None, ci: Sequence[str], installed: str | None
) -> None:
    """Write a commented project file (edgepack.yaml) into FOLDER, for `edgepack release`."""
    from edgepack.release.starter import new_project_files

    paths = new_project_files(folder, model, ci, installed)
    for path in paths:
        say(printable(str(path)))
    if not settings.quiet:
        for line in _next(shlex.quote(str(paths[0])), model is not None, bool(ci)):
            say(printable(line))


def _next(project: str, has_model: bool, has_ci: bool) -> Iterator[str]:
    """What to do with what was written."""
    if not has_model:
        yield f"Next: name your models and devices in {project}"
    begins = "Next" if has_model else "Then"
    yield f"{begins}: edgepack release {project} --dry-run   # what would be built"
    if has_ci:
        yield "Then: commit these files and the models, and push; a tag (v and the version) makes a release"
