"""``edgepack doctor``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgepack.cli.catalogue import note_alias
from edgepack.cli.install_command import install_commands, missing
from edgepack.cli.options import device_option, runner_option, sdk_option
from edgepack.cli.output import Settings, heading, print_json, progress, say, table, verbosity_options
from edgepack.errors import ToolchainError
from edgepack.text.printable import printable

if TYPE_CHECKING:
    from edgepack.commands.doctor import Diagnosis

__all__ = ["command"]


@click.command("doctor")
@device_option
@sdk_option
@runner_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@verbosity_options
def command(device: str, sdk: Path | None, runner: str | None, as_json: bool, settings: Settings) -> int:
    """Try every toolchain and runner for a device, and say how to get what is missing.

    What is missing comes first, with the command that gets it; then all that fits the device, and with
    --verbose all others. Each toolchain really compiles, links and checks a small library and program. Exit
    code 4 if the device's own toolchain does not work, or no runner can run its programs here; with --runner,
    if that one cannot. For a device with a GPU: also what compiles its kernels, without which some cannot be
    packed for, and the drivers that this machine has for it.
    """
    from edgepack.commands.doctor import diagnose
    from edgepack.config.device import load_device

    note_alias(settings, device)
    profile = load_device(device)
    found: list[Diagnosis] = []
    with progress(settings) as show:
        show("trying the toolchains", f"for {profile.name}")
        for each in diagnose(profile, runner=runner or "", sdk=sdk):
            found.append(each)
            show(f"tried {each.kind}", each.name)
    healthy = any(d.ok for d in found if d.kind == "runner" and (d.chosen or not runner)) and all(
        d.ok for d in found if d.kind != "runner" and d.chosen
    )
    if as_json:
        print_json({"device": profile.name, "ok": healthy, "found": [d.to_json() for d in found]})
    else:
        _print(profile.name, found, missing(found, runner=bool(runner)), settings)
    return 0 if healthy else ToolchainError.exit_code


def _aside(d: Diagnosis) -> bool:
    """Whether a line is enough: what is for other devices, and runners that this one does not name."""
    return not d.chosen and (not d.fits or d.kind == "runner")


def _explain(d: Diagnosis, settings: Settings) -> None:
    what = f"{d.kind} {d.name}"
    say(f"\n{heading(what)}: {printable(d.problem.removeprefix(f'{what}: '))}")
    if d.detail and (settings.verbose or d.chosen):
        say("\n".join(f"  | {line}" for line in d.detail.splitlines()))
    if d.hint:
        say(f"  {printable(d.hint)}")


def _print(device: str, found: list[Diagnosis], lacking: list[Diagnosis], settings: Settings) -> None:
    if lacking:
        say(heading(f"Missing for {device}:"))
        for d in lacking:
            say(f"  {printable(f'{d.kind} {d.name}: {_why(d)}')}")
        if commands := install_commands(lacking):
            say("Get it:" if len(lacking) == 1 else "Get them:")
            say("\n".join(f"  {command}" for command in commands))
        say()
    shown = [d for d in found if settings.verbose or d.ok or not _aside(d)]
    rows = [
        ("ok" if d.ok else "--", d.kind, d.name + (" *" if d.chosen else ""), d.version, d.found)
        for d in shown
    ]
    say(table(rows, header=("", "KIND", "NAME", "VERSION", "FOUND")))
    failed = [d for d in shown if not d.ok]
    for d in failed:
        if not _aside(d):
            _explain(d, settings)
    if others := [d for d in failed if _aside(d)]:
        say()
    for d in others:
        say(f"{heading(f'{d.kind} {d.name}')}: {printable(d.problem if d.kind == 'toolchain' else d.hint)}")
    if not settings.quiet:
        hidden = len(found) - len(shown)
        also = f"; {hidden} more are for other devices or places: --verbose" if hidden else ""
        say(f"\n* what {printable(device)} uses unless told otherwise{also}")


def _why(d: Diagnosis) -> str:
    """What is wrong, without how to get it."""
    if d.kind == "toolchain":
        return d.problem.removeprefix(f"toolchain {d.name}: ")
    return d.hint.partition(": ")[0].rstrip(".") or d.problem
