"""``edgepack toolchains``."""

from __future__ import annotations

import click

from edgepack.cli.output import Settings, print_json, table, verbosity_options
from edgepack.errors import ConfigError

__all__ = ["command"]


@click.command("toolchains")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@verbosity_options
def command(name: str | None, as_json: bool, settings: Settings) -> None:
    """List the toolchains, or show all fields of one.

    NAME is a toolchain's name or a path to a YAML file. Folders in the environment variable
    EDGEPACK_TOOLCHAIN_PATH are searched first. Whether they are installed is what `edgepack doctor` tells.
    """
    from edgepack.config.toolchain import TOOLCHAINS, resolve_toolchain

    if name is not None:
        from edgepack.config.show import as_yaml

        resolved = resolve_toolchain(name)
        if as_json:
            print_json(resolved.model.model_dump(mode="json"))
        else:
            click.echo(as_yaml(resolved), nl=False)
        return
    found, broken = [], []
    for each in TOOLCHAINS.names():
        try:
            found.append(resolve_toolchain(each).model)
        except ConfigError as error:
            broken.append(error.message)
    if as_json:
        print_json([toolchain.model_dump(mode="json") for toolchain in found])
    else:
        rows = [(t.name, t.family, t.description) for t in found]
        click.echo(table(rows, header=("TOOLCHAIN", "FAMILY", "")))
    for text in broken:
        click.echo(f"edgepack: left out: {text}", err=True)
    if not (as_json or settings.quiet):
        click.echo("\n`edgepack doctor --device NAME` tries each of them out.")
