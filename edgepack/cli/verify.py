"""``edgepack verify``."""

from __future__ import annotations

from pathlib import Path

import click
from typing_extensions import Unpack

from edgepack.cli.catalogue import note_alias
from edgepack.cli.options import json_option, run_options
from edgepack.cli.output import Settings, print_json, progress, say, table, verbosity_options
from edgepack.options import RunKeywords
from edgepack.text.printable import printable

__all__ = ["command"]


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option(
    "--signature",
    metavar="KEY.pub",
    help="Check the signature over SHA256SUMS first, by this public key of minisign or cosign.",
)
@run_options
@json_option
@verbosity_options
def command(
    *,
    settings: Settings,
    bundle: Path,
    signature: str | None,
    as_json: bool,
    **options: Unpack[RunKeywords],
) -> int:
    """Check BUNDLE's files, run its own program on the recorded data, and compare."""
    from edgepack.api import Bundle
    from edgepack.runners.program import STATUSES

    note_alias(settings, options["device"])
    with progress(settings) as show:
        opened = Bundle(bundle)
        show("verify", opened.manifest.name)
        result = opened.verify(signature=signature, **options)
    if as_json:
        print_json(result.to_json())
        return 0 if result.ok else 1
    checks = [(variant.name, variant.outputs) for variant in result.variants if not variant.missing]
    rows = [
        [
            f"{output.name} ({name})" if name else output.name,
            "ok" if output.ok else f"{output.mismatches} of {output.elements} wrong",
            f"{output.max_abs_err:.3g}",
            f"{output.max_abs_ref:.3g}",
            f"{output.atol:.3g} + {output.rtol:.3g}*|ref|",
        ]
        for name, outputs in checks or [("", result.outputs)]
        for output in outputs
    ]
    header = ["output", "result", "max abs error", "max abs reference", "tolerance"]
    say(table(rows, header=header, right=[2, 3]))
    threads_text = f"{result.threads} thread" + ("s" if result.threads != 1 else "")
    threads_text += " and one alone" if result.alone else ""
    verdict = "ok" if result.ok else "FAILED"
    where = f"{bundle} on {result.where}, {threads_text}, against {result.reference}"
    say(f"{verdict}: {printable(where)}")
    for variant in result.variants:
        if variant.missing:
            say(printable(f"not run: the kernels of {variant.name}; this machine lacks {variant.missing}"))
    for text in result.warnings:
        say(printable(f"warning: {text}"))
    if not result.ok:
        say(f"{STATUSES[result.status]}")
    return 0 if result.ok else 1
