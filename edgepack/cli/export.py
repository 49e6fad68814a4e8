"""``edgepack export``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgepack.cli.options import format_option, json_option, package_options
from edgepack.cli.output import Settings, print_json, say, verbosity_options
from edgepack.text.printable import printable

__all__ = ["command"]


class _Command(click.Command):
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        from edgepack.registry import EXPORT_FORMATS

        with formatter.section("Formats"):
            formatter.write_dl([(name, EXPORT_FORMATS.find(name).title) for name in EXPORT_FORMATS.names()])


@click.command(cls=_Command)
@click.argument("bundles", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="BUNDLE...")
@format_option(required=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path(),
    help="Folder for the packages.  [default: .]",
)
@package_options
@click.option("--force", is_flag=True, help="Replace packages of the same names.")
@json_option
@verbosity_options
def command(settings: Settings, as_json: bool, **options: Any) -> None:
    """Make packages that an ecosystem's own tools install, of a BUNDLE or of several of one model."""
    del settings
    from edgepack import api
    from edgepack.bundle.manifest import load_manifest
    from edgepack.formats.wheel import import_line

    made = api.export(**options)
    if as_json:
        print_json({"files": [{"path": str(path), "nbytes": path.stat().st_size} for path in made]})
        return
    for path in made:
        say(printable(str(path)))
        if path.suffix == ".whl":
            say(f"  {import_line(load_manifest(options['bundles'][0]).name)}")
