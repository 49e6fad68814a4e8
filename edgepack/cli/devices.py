"""``edgepack devices``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import click

from edgepack.cli.catalogue import list_all, note_alias, show_one
from edgepack.cli.complete import device_names
from edgepack.cli.output import Settings, table, verbosity_options

__all__ = ["command"]


@click.command("devices")
@click.argument("name", required=False, shell_complete=device_names)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@verbosity_options
def command(name: str | None, as_json: bool, settings: Settings) -> None:
    """List the devices that a model can be packed for, or show all fields of one.

    NAME is a device's name, that of a chip or board which is an alias of one, or a path to a YAML file.
    Folders in the environment variable EDGEPACK_DEVICE_PATH are searched first. How to write your own:
    docs/reference/device-files.md.
    """
    from edgepack.config.aliases import load_aliases
    from edgepack.config.device import DEVICES

    if name is not None:
        note_alias(settings, name)
        show_one(DEVICES, name, as_json=as_json)
        return
    hint = "`edgepack devices NAME` shows all fields of one; `--device FILE.yaml` takes your own."
    by_device: dict[str, dict[str, Any]] = {}
    for alias, one in load_aliases().aliases.items():
        by_device.setdefault(one.device, {})[alias] = one.model_dump(mode="json", exclude={"device"})
    hint = f"{_aliases(by_device)}\n\n{hint}"
    list_all(
        DEVICES,
        settings,
        as_json=as_json,
        header=_HEADER,
        row=_row,
        hint=hint,
        more=lambda device: {"aliases": by_device.get(device.name, {})},
    )


_HEADER = ("DEVICE", "ARCH", "CPU", "VECTOR", "THREADS", "TOOLCHAIN", "RUNNER", "")


def _aliases(by_device: Mapping[str, Iterable[str]]) -> str:
    """The chips and boards by the device that they are aliases of, in lines of a terminal's width."""
    rows = []
    for device in sorted(by_device):
        lines = textwrap.wrap(", ".join(by_device[device]), 80, break_on_hyphens=False)
        rows += [[device if line == lines[0] else "", line] for line in lines]
    return table(rows, header=("DEVICE", "ALSO CALLED (CHIPS AND BOARDS)"))


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
