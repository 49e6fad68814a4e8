"""``edgepack devices``."""

from __future__ import annotations

from typing import Any

import click

from edgepack.cli.output import Settings, print_json, table, verbosity_options
from edgepack.errors import ConfigError

__all__ = ["command"]


@click.command("devices")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@verbosity_options
def command(name: str | None, as_json: bool, settings: Settings) -> None:
    """List the devices that a model can be packed for, or show all fields of one.

    NAME is a device's name or a path to a YAML file. Folders in the environment variable
    EDGEPACK_DEVICE_PATH are searched first. How to write your own: docs/devices.md.
    """
    from edgepack.config.device import DEVICES, resolve_device

    if name is not None:
        from edgepack.config.show import as_yaml

        resolved = resolve_device(name)
        if as_json:
            print_json(resolved.model.model_dump(mode="json"))
        else:
            click.echo(as_yaml(resolved), nl=False)
        return
    devices, broken = [], []
    for each in DEVICES.names():
        try:
            devices.append(resolve_device(each).model)
        except ConfigError as error:
            broken.append(str(error.message))
    if as_json:
        print_json([device.model_dump(mode="json") for device in devices])
    else:
        click.echo(table([_row(device) for device in devices], header=_HEADER, right=[4]))
    for text in broken:
        click.echo(f"edgepack: left out: {text}", err=True)
    if not (as_json or settings.quiet):
        click.echo("\n`edgepack devices NAME` shows all fields of one; `--device FILE.yaml` takes your own.")


_HEADER = ("DEVICE", "ARCH", "CPU", "VECTOR", "THREADS", "TOOLCHAIN", "RUNNER", "")


def _row(device: Any) -> tuple[str, ...]:
    vector = f"{device.cpu.vector_bits} bits" if device.cpu.vector_bits else "none"
    return (
        device.name,
        device.arch,
        device.llvm.cpu or "generic",
        vector,
        str(device.threads),
        device.toolchain,
        device.runner.name,
        device.description,
    )
