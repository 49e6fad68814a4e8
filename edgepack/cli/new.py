"""``edgepack new``."""

from __future__ import annotations

from pathlib import Path

import click

from edgepack.cli.output import Settings, say, verbosity_options
from edgepack.text.printable import printable

__all__ = ["command"]


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--model", type=click.Path(path_type=Path), help="A model that the project file names.")
@verbosity_options
def command(settings: Settings, folder: Path, model: Path | None) -> None:
    """Write a commented project file (edgepack.yaml) into FOLDER, for `edgepack release`."""
    from edgepack.release.starter import new_project

    path = new_project(folder, model)
    say(printable(str(path)))
    if not settings.quiet:
        say(printable(f"Next: edgepack release {path} --dry-run"))
