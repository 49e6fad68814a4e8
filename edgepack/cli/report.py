"""``edgepack report``."""

from __future__ import annotations

from pathlib import Path

import click

from edgepack.cli.output import Settings, say, verbosity_options
from edgepack.text.printable import printable

__all__ = ["command"]


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE.html",
    help="The file to write.  [default: NAME-DEVICE.html]",
)
@click.option(
    "--bench",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What `edgepack bench BUNDLE --profile --json` printed: the report then has times.",
)
@click.option(
    "--verification",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What `edgepack verify BUNDLE --json` printed: the report then has the errors of the outputs.",
)
@click.option("--force", is_flag=True, help="Replace a file at the output.")
@verbosity_options
def command(
    *,
    settings: Settings,
    bundle: Path,
    output: Path | None,
    bench: Path | None,
    verification: Path | None,
    force: bool,
) -> None:
    """Write a page about BUNDLE: its memory over time, work, times, kernels and errors, in one HTML file."""
    del settings
    from edgepack.api import Bundle

    written = Bundle(bundle).report(output, bench=bench, verification=verification, force=force)
    say(printable(str(written)))
