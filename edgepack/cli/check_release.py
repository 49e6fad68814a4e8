"""``edgepack check-release``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from edgepack.cli.options import json_option
from edgepack.cli.output import Settings, print_json, progress, say, table, verbosity_options
from edgepack.release.check import check_release

__all__ = ["command"]


@click.command("check-release")
@click.argument("release", type=click.Path(path_type=Path))
@click.option(
    "--signature", metavar="KEY.pub", help="Public key of minisign or cosign that must have signed it."
)
@click.option("--no-run", is_flag=True, help="Do not run the programs of its bundles.")
@click.option("--sandbox", is_flag=True, help="Run them under bubblewrap.")
@json_option
@verbosity_options
def command(
    *, settings: Settings, release: Path, signature: str | None, no_run: bool, sandbox: bool, as_json: bool
) -> int:
    """Check the folder RELEASE: sums, signature, index, manifests, that all packages unpack safely, and that
    the programs that can run here compute what was recorded. Exit code 1 if something fails."""
    with progress(settings) as show:
        findings = check_release(release, key=signature, run=not no_run, sandbox=sandbox, show=show)
    ok = all(one.status != "failed" for one in findings)
    if as_json:
        print_json({"ok": ok, "findings": [asdict(one) for one in findings]})
    else:
        chosen = [one for one in findings if not settings.quiet or one.status == "failed"]
        say(table([[one.what, one.status, one.text] for one in chosen], header=["checked", "result", ""]))
        say(f"{release}: {'ok' if ok else 'FAILED'}")
    return 0 if ok else 1
