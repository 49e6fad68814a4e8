"""``edgepack pack``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from edgepack.cli.catalogue import note_alias
from edgepack.cli.course import PACK
from edgepack.cli.grouped import GroupedCommand
from edgepack.cli.options import (
    calibration_options,
    device_option,
    format_option,
    json_option,
    kernel_options,
    limit_option,
    model_options,
    package_options,
    sdk_option,
    toolchain_option,
)
from edgepack.cli.output import Settings, print_json, progress, say, table, verbosity_options
from edgepack.plan.quantisation import Quantize
from edgepack.text.printable import printable

if TYPE_CHECKING:
    from edgepack.api import Bundle

__all__ = ["command"]

#: Behind the figures of the outputs of a model that was quantised.
_OF_LAYERS = "(on the calibration data, beside the float model; `edgepack report BUNDLE` has each layer)"


def _files(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, Path]:
    del ctx, param
    files = {}
    for value in values:
        name, separator, path = value.partition("=")
        if not separator or not name or not path:
            raise click.BadParameter(f"{value!r} is not of the form NAME=FILE.npy.")
        files[name] = Path(path)
    return files


@click.command(cls=GroupedCommand)
@click.argument("model", type=click.Path(path_type=Path))
@device_option
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The bundle's folder.  [default: ./NAME-DEVICE]"
)
@click.option(
    "--name", help="Of library, header and symbol, as a C identifier.  [default: from the file's name]"
)
@model_options
@toolchain_option("the device's")
@sdk_option
@click.option(
    "--params",
    type=click.Choice(["file", "embed", "caller"]),
    help="Where the params go: a file that the library maps, inside the library, or a file that the "
    "application hands in.  [default: the device's]",
)
@click.option(
    "--params-key",
    type=click.Path(path_type=Path),
    metavar="KEY.pub",
    help="Public key of minisign: the library takes other params that it signed (`edgepack update`).",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    callback=_files,
    metavar="NAME=FILE.npy",
    help="An input of the recorded data; the others are random.",
)
@click.option(
    "--expected",
    multiple=True,
    callback=_files,
    metavar="OUTPUT=FILE.npy",
    help="An output of the recorded data, where nothing here can compute it; of all, with all inputs.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the random recorded inputs.")
@kernel_options
@click.option(
    "--quantize",
    type=click.Choice(get_args(Quantize)),
    help="Quantise the float model first: int8 with calibration data, dynamic without.",
)
@calibration_options
@click.option(
    "--strict-speed",
    is_flag=True,
    help="Refuse a model of which a large part would be far slower than the CPU could be.",
)
@format_option()
@package_options
@click.option(
    "--keep-stages",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write what the model becomes on the way: the graph after each group of passes, TIR, LLVM IR and "
    "assembly of each kernel, the plan (`edgepack stages` shows it).",
)
@click.option("--force", is_flag=True, help="Replace a bundle at the output, and what lies in --keep-stages.")
@click.option("--no-cache", is_flag=True, help="Compile anew; neither read nor fill the cache.")
@limit_option
@json_option
@verbosity_options
def command(settings: Settings, as_json: bool, no_cache: bool, **options: Any) -> None:
    """Compile MODEL (an ONNX or .pt2 file) into a bundle for a device.

    Prints what the device gets and what a run needs; with --verbose every file, the memory step by step and
    the times of the stages."""
    from edgepack import api
    from edgepack.formats.wheel import import_line

    note_alias(settings, options["device"])
    with progress(settings, PACK) as show:
        bundle = api.pack(**options, cache=not no_cache, progress=show)
    if as_json:
        seconds = {stage: round(value, 3) for stage, value in bundle.stage_seconds.items()}
        print_json(
            {
                "bundle": str(bundle.path),
                "seconds": seconds,
                "manifest": bundle.manifest.model_dump(mode="json"),
            }
        )
        return
    say(_summary(bundle, settings))
    if "wheel" in options["formats"]:
        say(f"wheel: {import_line(bundle.manifest.name)}")


def _summary(bundle: Bundle, settings: Settings) -> str:
    from edgepack.bundle.live_memory import all_arena_uses
    from edgepack.cli import tables
    from edgepack.cli.arena_chart import arena_chart

    manifest = bundle.manifest
    total = sum(bundle.stage_seconds.values())
    about = f"{manifest.model.file} for {manifest.device.name}: {_shown(bundle.path)} ({total:.1f} s)"
    if manifest.name != Path(manifest.model.file).stem:
        about += f", named {manifest.name}"
    lines = [printable(about)]
    if (quantised := manifest.model.quantised) is not None:
        lines += ["", tables.quantised_outputs_table(quantised.outputs)]
        if quantised.kept_float:
            lines += [printable(f"float for the sake of the outputs: {', '.join(quantised.kept_float)}")]
        lines += [] if settings.quiet else [_OF_LAYERS]
    if not settings.quiet:
        if settings.verbose:
            charts = [arena_chart(use, every_step=True) for use in all_arena_uses(manifest)]
            parts = [tables.files_table(manifest), tables.memory_table(manifest), *charts]
        else:
            parts = [tables.overview_table(manifest)]
        parts.append(tables.footprint_table(manifest))
        if settings.verbose:
            taken = [
                [stage, f"{seconds:.1f} s"]
                for stage, seconds in bundle.stage_seconds.items()
                if seconds >= 0.05
            ]
            parts.append(table(taken, header=["stage", "time"], right=[1]))
        for part in parts:
            lines += ["", part] if part else []
    lines += [printable(f"note: {text}") for text in manifest.recorded.notes]
    lines += [printable(f"warning: {text}") for text in manifest.warnings]
    return "\n".join(lines)


def _shown(path: Path) -> str:
    """The path as short as it can be typed in the current folder."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
