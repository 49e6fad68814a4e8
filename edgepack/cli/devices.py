"""``edgepack devices``."""

from __future__ import annotations

from typing import Any

import click

from edgepack.cli.catalogue import list_all, show_one
from edgepack.cli.output import Settings, verbosity_options

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
    from edgepack.config.device import DEVICES

    if name is not None:
        show_one(DEVICES, name, as_json=as_json)
        return
    hint = "`edgepack devices NAME` shows all fields of one; `--device FILE.yaml` takes your own."
    list_all(DEVICES, settings, as_json=as_json, header=_HEADER, row=_row, right=[4], hint=hint)


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
