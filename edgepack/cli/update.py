"""``edgepack update``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from typing_extensions import Unpack

from edgepack.cli.catalogue import note_alias
from edgepack.cli.options import (
    custom_option,
    json_option,
    limit_options,
    run_options,
    toolchain_option,
    tuned_option,
)
from edgepack.cli.output import Settings, print_json, progress, say, verbosity_options
from edgepack.render.formatting import human_bytes
from edgepack.text.printable import printable

if TYPE_CHECKING:
    from edgepack.commands.update import UpdateKeywords

__all__ = ["command"]


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option(
    "--model", required=True, type=click.Path(path_type=Path), help="The same network with other weights."
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE.params",
    help="The params file to write.",
)
@click.option(
    "--key",
    metavar="FILE|env://NAME",
    help="The secret key of minisign that belongs to the key of `pack --params-key`; without it the params "
    "are for callers that list their id.",
)
@click.option(
    "--params-version",
    type=int,
    default=0,
    metavar="N",
    help="Sign this number too, higher for later params: devices can refuse older ones.",
)
@toolchain_option("what has the name of the bundle's")
@custom_option
@tuned_option
@limit_options
@click.option("--force", is_flag=True, help="Replace a file at the output.")
@run_options
@json_option
@verbosity_options
def command(
    *,
    settings: Settings,
    bundle: Path,
    model: Path,
    output: Path,
    key: str | None,
    params_version: int,
    force: bool,
    as_json: bool,
    **options: Unpack[UpdateKeywords],
) -> None:
    """Make new params for BUNDLE's library from a retrained model, signed, and tried by a program."""
    from edgepack.commands.update import update

    note_alias(settings, options["device"])
    with progress(settings) as show:
        made = update(
            bundle,
            model,
            output,
            key=key,
            params_version=params_version,
            force=force,
            progress=show,
            **options,
        )
    if as_json:
        verified = made.verification.to_json()
        print_json({"path": str(made.path), "params_id": made.params_id, "verification": verified})
        return
    size = human_bytes(made.path.stat().st_size)
    program = f"the program of {bundle}" if key else "a program of the same code"
    where = f"{made.path} ({size}), verified by {program} on {made.verification.where}; id {made.params_id}"
    say(printable(where))
