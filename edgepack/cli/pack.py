"""``edgepack pack``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgepack.cli.options import json_option, sdk_option
from edgepack.cli.output import Settings, print_json, progress, table, verbosity_options

if TYPE_CHECKING:
    from edgepack.api import Bundle

__all__ = ["command"]


def _pairs(what: str, values: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for value in values:
        # A tensor's name may hold an equals sign; what stands behind the last one cannot.
        name, separator, rest = value.rpartition("=")
        if not separator or not name or not rest:
            raise click.BadParameter(f"{value!r} is not of the form {what}.")
        if name in pairs:
            raise click.BadParameter(f"{name!r} is given twice.")
        pairs[name] = rest
    return pairs


def _shapes(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, tuple[int, ...]]:
    del ctx, param
    shapes = {}
    for name, text in _pairs("INPUT=1,3,224,224", values).items():
        try:
            shapes[name] = tuple(int(part) for part in text.split(",")) if text != "()" else ()
        except ValueError:
            raise click.BadParameter(f"{text!r} is no shape: write whole numbers with commas.") from None
        if any(extent < 0 for extent in shapes[name]):
            raise click.BadParameter(f"{text!r} has a negative extent.")
    return shapes


def _dims(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, int]:
    del ctx, param
    pairs = _pairs("SYMBOL=1", values)
    for text in pairs.values():
        if not text.isdecimal():
            raise click.BadParameter(f"{text!r} is not a whole number.")
    return {name: int(text) for name, text in pairs.items()}


def _files(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, Path]:
    del ctx, param
    files = {}
    for value in values:
        name, separator, path = value.partition("=")
        if not separator or not name or not path:
            raise click.BadParameter(f"{value!r} is not of the form INPUT=FILE.npy.")
        files[name] = Path(path)
    return files


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-d", "--device", default="host", show_default=True, help="Name of a device, or its YAML file.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The bundle's folder.  [default: ./NAME-DEVICE]"
)
@click.option(
    "--name", help="C identifier that names library, header and symbol.  [default: from the file's name]"
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    callback=_shapes,
    metavar="INPUT=1,3,224,224",
    help="An input's shape.",
)
@click.option(
    "--dim", "dims", multiple=True, callback=_dims, metavar="SYMBOL=1", help="A symbolic dimension."
)
@click.option(
    "--inputs",
    "cut_inputs",
    multiple=True,
    metavar="TENSOR,...",
    help="Cut the model: tensors that become inputs; what stands before them is left out.",
)
@click.option(
    "--outputs",
    "cut_outputs",
    multiple=True,
    metavar="TENSOR,...",
    help="Cut the model: tensors that become the outputs.",
)
@click.option("--toolchain", help="Name of a toolchain, or its YAML file.  [default: the device's]")
@sdk_option
@click.option(
    "--params",
    type=click.Choice(["file", "embed", "caller"]),
    help="Where the params go: a file that the library maps, inside the library, or a file that the "
    "application hands in.  [default: the device's]",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    callback=_files,
    metavar="INPUT=FILE.npy",
    help="An input of the recorded data; the others are random.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the random recorded inputs.")
@click.option(
    "--optimize",
    type=click.Choice(["latency", "size", "balanced"]),
    default="latency",
    show_default=True,
    help="Latency lets params grow where that is faster (Winograd), size never, balanced only small ones.",
)
@click.option(
    "--strict-math", is_flag=True, help="No Winograd, and libm's functions instead of vector polynomials."
)
@click.option("--force", is_flag=True, help="Replace a bundle at the output.")
@click.option("--no-cache", is_flag=True, help="Compile anew; neither read nor fill the cache.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds that compiling may take.  [default: 3600]",
)
@json_option
@verbosity_options
def command(settings: Settings, as_json: bool, no_cache: bool, **options: Any) -> None:
    """Compile MODEL (an ONNX file) into a bundle for a device."""
    from edgepack import api

    with progress(settings) as show:
        bundle = api.pack(**options, cache=not no_cache, progress=show)
    if as_json:
        seconds = {stage: round(value, 3) for stage, value in bundle.stage_seconds.items()}
        print_json({"bundle": str(bundle.path), "seconds": seconds, "manifest": bundle.inspect()})
        return
    click.echo(_summary(bundle, settings))


def _summary(bundle: Bundle, settings: Settings) -> str:
    from edgepack.cli.report import files_table, footprint_table, memory_table

    manifest = bundle.manifest
    total = sum(bundle.stage_seconds.values())
    lines = [f"{manifest.model.file} for {manifest.device.name}: {_shown(bundle.path)} ({total:.1f} s)"]
    if not settings.quiet:
        for part in (files_table(manifest), memory_table(manifest), footprint_table(manifest)):
            lines += ["", part] if part else []
        lines.append("")
        rows = [
            [stage, f"{seconds:.1f} s"] for stage, seconds in bundle.stage_seconds.items() if seconds >= 0.05
        ]
        lines.append(table(rows, header=["stage", "time"], right=[1]))
    lines += [f"warning: {text}" for text in manifest.warnings]
    return "\n".join(lines)


def _shown(path: Path) -> str:
    """As short as it can be typed from here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
