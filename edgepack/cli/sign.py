"""``edgepack sign``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from edgepack.cli.output import Settings, say, verbosity_options
from edgepack.text.printable import printable

__all__ = ["command"]


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--key",
    required=True,
    metavar="FILE|env://NAME",
    help="Secret key of minisign or cosign: its file, or the environment variable that holds it.",
)
@click.option("--comment", default="", metavar="TEXT", help="A line that minisign's signature covers too.")
@verbosity_options
def command(*, settings: Settings, folder: Path, key: str, comment: str) -> None:
    """Sign the SHA256SUMS of FOLDER, a bundle or a release, as minisign or cosign do, after all files were
    compared with them.

    The password of an encrypted key is in EDGEPACK_SIGNING_PASSWORD; on a terminal it is asked for.
    """
    del settings
    import os

    from edgepack import api
    from edgepack.signing.sums import PASSWORD, is_encrypted

    password = None
    if PASSWORD not in os.environ and sys.stdin.isatty() and is_encrypted(key):
        password = click.prompt("Password", hide_input=True, err=True)
    say(printable(str(api.sign(folder, key, comment=comment, password=password))))
