"""``edgepack toolchains``."""

from __future__ import annotations

from typing import Any

import click

from edgepack.cli.catalogue import list_all, show_one
from edgepack.cli.complete import toolchain_names
from edgepack.cli.output import Settings, verbosity_options

__all__ = ["command"]


@click.command("toolchains")
@click.argument("name", required=False, shell_complete=toolchain_names)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@verbosity_options
def command(name: str | None, as_json: bool, settings: Settings) -> None:
    """List the toolchains, or show all fields of one.

    NAME is a toolchain's name or a path to a YAML file. Folders in the environment variable
    EDGEPACK_TOOLCHAIN_PATH are searched first. Whether they are installed is what `edgepack doctor` tells.
    """
    from edgepack.config.toolchain import TOOLCHAINS

    if name is not None:
        show_one(TOOLCHAINS, name, as_json=as_json)
        return
    hint = "`edgepack doctor --device NAME` tries each of them out."
    list_all(TOOLCHAINS, settings, as_json=as_json, header=_HEADER, row=_row, hint=hint)


_HEADER = ("TOOLCHAIN", "FAMILY", "")


def _row(toolchain: Any) -> tuple[str, ...]:
    return (toolchain.name, toolchain.family, toolchain.description)
