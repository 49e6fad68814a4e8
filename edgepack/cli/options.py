"""Options that commands share."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["json_option", "runner_option", "sdk_option", "threads_option", "timeout_option"]

#: Of the commands that run a bundle's program.
runner_option = click.option(
    "--runner",
    metavar="NAME[:PLACE]",
    help="What runs the program: native, qemu, ssh:USER@HOST, ...  [default: this machine, or the device's]",
)
threads_option = click.option(
    "--threads", type=click.IntRange(min=1), help="Threads that compute.  [default: the device's]"
)
timeout_option = click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds that the program may take."
)

#: Of those that compile.
sdk_option = click.option(
    "--sdk",
    type=click.Path(path_type=Path),
    help="Folder of the toolchain's SDK (the Android NDK).  [default: as the toolchain finds it]",
)

#: Of those that give a result.
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
