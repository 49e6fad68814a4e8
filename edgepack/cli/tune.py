"""``edgepack tune``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgepack.cli.catalogue import note_alias
from edgepack.cli.grouped import GroupedCommand
from edgepack.cli.options import device_option, json_option, kernel_options, model_options, runner_option
from edgepack.cli.output import Settings, print_json, say, table, verbosity_options
from edgepack.cli.tune_rounds import shown_rounds
from edgepack.text.printable import printable

if TYPE_CHECKING:
    from edgepack.commands.tune import Tuned

__all__ = ["command"]

#: Choices that are printed, those that gained most.
SHOWN = 20


@click.command(cls=GroupedCommand)
@click.argument("model", type=click.Path(path_type=Path), required=False)
@device_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="The file of tuned schedules; what it has is the start.",
)
@runner_option
@click.option(
    "--minutes", type=click.FloatRange(min=0, min_open=True), help="Time that it may take.  [default: 10]"
)
@click.option("--trials", type=click.IntRange(min=1), help="Versions with candidates that it may measure.")
@click.option(
    "--run-timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time that each run of a program may take.  [default: the device's]",
)
@click.option(
    "--merge",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Write what these files have into one, and measure nothing; without MODEL.",
)
@model_options
@kernel_options
@json_option
@verbosity_options
def command(
    *,
    settings: Settings,
    model: Path | None,
    output: Path,
    merge: Sequence[Path],
    as_json: bool,
    **options: Any,
) -> None:
    """Measure schedules of MODEL's kernels on a device, and write those that are faster to a file, which
    `pack --tuned FILE` reads."""
    if bool(merge) == (model is not None):
        raise click.UsageError("Give a MODEL to tune, or files with --merge.")
    if merge:
        _merge(merge, output)
        return
    from edgepack.commands.tune import tune

    assert model is not None
    note_alias(settings, options["device"])
    device = options.pop("device")
    with shown_rounds(settings, as_json=as_json) as (show, told):
        found = tune(model, device, output, progress=show, on_round=told, **options)
    if as_json:
        print_json(found.to_json())
        return
    say(_shown(found, str(device)))


def _merge(files: Sequence[Path], output: Path) -> None:
    from edgepack.config.tuned import read_all_tuned, write_tuned

    whole = read_all_tuned(files)
    write_tuned(output, whole)
    kinds = f"{len(whole.cpus)} kind{'s' if len(whole.cpus) != 1 else ''} of CPU or GPU"
    say(printable(f"{output}: {len(whole.choices)} schedules for {kinds}"))


def _shown(found: Tuned, device: str) -> str:
    """What was found, and how sure it is."""
    lines = [f"{found.path.name} for {device}, on {found.where}"]
    best = sorted(found.choices, key=lambda one: -one[1])
    if best:
        rows = [[f"{gain:.2f}x", group] for group, gain in best[:SHOWN]]
        lines += ["", *table(rows, header=["faster", "operators"], right=[0]).splitlines()]
        lines += [f"and {len(best) - SHOWN} more"] if len(best) > SHOWN else []
    unit = found.unit
    digits = 0 if unit == "instructions" else 3
    before, after = f"{found.before:,.{digits}f} {unit}", f"{found.after:,.{digits}f}"
    if found.kept:
        lines += ["", f"a run: {before} by the rules, {after} tuned: {found.speedup:.3f} times as fast"]
    else:
        lines += ["", f"a run: {before}; nothing was found that makes all of it faster, nothing is kept"]
    said = [f"{found.trials} versions measured"]
    said += [f"{found.failed} candidates failed"] if found.failed else []
    said += [f"measured again, for the device was disturbed: {found.disturbed}"] if found.disturbed else []
    said += [f"standard error {100 * found.noise:.1f} %"] if unit != "instructions" else []
    lines.append("; ".join(said))
    if unit == "instructions":
        lines.append("note: instructions were counted under an emulator; they are no times.")
    return "\n".join(printable(line) for line in lines)
