"""``edgepack report``."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
from typing_extensions import Unpack

from edgepack.cli.catalogue import note_alias
from edgepack.cli.options import run_options
from edgepack.cli.output import Settings, progress, say, verbosity_options
from edgepack.errors import CheckFailedError
from edgepack.options import RunKeywords, RunOptions
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
@click.option(
    "--run/--no-run",
    default=True,
    show_default=True,
    help="Verify and measure BUNDLE by its own program, where no result of it is given.",
)
@run_options
@click.option("--force", is_flag=True, help="Replace a file at the output.")
@verbosity_options
def command(
    *,
    settings: Settings,
    bundle: Path,
    output: Path | None,
    bench: Path | None,
    verification: Path | None,
    run: bool,
    force: bool,
    **options: Unpack[RunKeywords],
) -> None:
    """Write a page about BUNDLE: its memory over time, work, times, kernels and errors, in one HTML file.

    BUNDLE is verified and measured for it, where its program can run here."""
    from edgepack.api import Bundle
    from edgepack.client.report import ReportInputs, report_of

    note_alias(settings, options["device"])
    inputs = ReportInputs(bench, verification, RunOptions(**options) if run else None)
    with progress(settings) as show:
        opened = Bundle(bundle)
        if run and None in (bench, verification):
            show("verify and bench", opened.manifest.name)
        report = report_of(opened.path, opened.manifest, output, inputs, force=force)
    say(printable(str(report.path)))
    if report.not_run and not settings.quiet:
        say(printable(f"note: not all was measured. {report.not_run}"), err=True)
    if report.ok is False:
        raise CheckFailedError(
            f"{opened.manifest.name} computes wrong results here; {report.path} shows them.",
            hint=f"edgepack verify {shlex.quote(str(bundle))} --layers MODEL finds the layer that is off.",
        )
