"""``edgepack new``."""

from __future__ import annotations

from collections.abc import Sequence
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
@verbosity_options
def command(settings: Settings, folder: Path, model: Path | None, ci: Sequence[str]) -> None:
    """Write a commented project file (edgepack.yaml) into FOLDER, for `edgepack release`."""
    from edgepack.release.starter import new_project_files

    paths = new_project_files(folder, model, ci)
    for path in paths:
        say(printable(str(path)))
    if not settings.quiet and not ci:
        say(printable(f"Next: edgepack release {paths[0]} --dry-run"))
