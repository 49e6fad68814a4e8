"""``edgepack quantize``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from edgepack.cli.grouped import GroupedCommand
from edgepack.cli.options import calibration_options, json_option, limit_option, size_options
from edgepack.cli.output import Settings, heading, print_json, progress, say, table, verbosity_options
from edgepack.plan.quantisation import CalibrationMethod
from edgepack.text.printable import printable

if TYPE_CHECKING:
    from edgepack.commands.quantize import Quantized

__all__ = ["command"]

_F = TypeVar("_F", bound=Callable[..., Any])


_OPTIONS = (
    click.option(
        "--dynamic",
        is_flag=True,
        help="Compute ranges when the model runs: matrix products and LSTMs only; no data needed.",
    ),
    click.option(
        "--method",
        type=click.Choice(get_args(CalibrationMethod)),
        default="minmax",
        show_default=True,
        help="Of choosing ranges: all values, least change of their distribution, or all but the outermost.",
    ),
    click.option(
        "--percentile",
        type=float,
        default=99.99,
        show_default=True,
        metavar="P",
        help="Of the values that a range holds, with --method percentile.",
    ),
    click.option(
        "--symmetric", is_flag=True, help="Activations as int8 with zero point 0, instead of uint8 with any."
    ),
    click.option(
        "--accuracy",
        type=click.Path(path_type=Path),
        metavar="FILE.py",
        help="Measures float and quantised model: has a function accuracy(run) that returns a number.",
    ),
    click.option(
        "--min-accuracy",
        type=float,
        metavar="X",
        help="Leave as few layers float as bring the accuracy to X.",
    ),
    click.option(
        "--max-drop",
        type=click.FloatRange(min=0),
        metavar="X",
        help="Leave as few layers float as bring it to X below the float model's.",
    ),
    click.option(
        "--bias-correction/--no-bias-correction",
        default=True,
        show_default=True,
        help="Take the mean error that rounded weights make off the biases, unless it harms.",
    ),
    click.option(
        "--samples",
        type=click.IntRange(min=1),
        default=128,
        show_default=True,
        metavar="N",
        help="Of the calibration data that are used at most.",
    ),
)


def quantise_options(function: _F) -> _F:
    """How a model is quantised: the fields of :class:`edgepack.options.QuantizeOptions`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return calibration_options(function)


@click.command(cls=GroupedCommand)
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE.onnx",
    help="The quantised model to write.",
)
@click.option(
    "--like",
    type=click.Path(path_type=Path),
    metavar="OLD.onnx",
    help="Keep the scales of a quantised model of the same network: `edgepack update` takes it then.",
)
@quantise_options
@size_options
@click.option("--seed", default=0, show_default=True, help="Seed of random calibration data.")
@click.option("--force", is_flag=True, help="Replace a file at the output.")
@limit_option
@json_option
@verbosity_options
def command(settings: Settings, as_json: bool, **options: Any) -> None:
    """Make a quantised model (weights and activations of 8 bits) of MODEL, a float ONNX file, and say how far
    it is from it, layer by layer, on the calibration data."""
    from edgepack import api

    with progress(settings) as show:
        made = api.quantize(**options, progress=show)
    if as_json:
        print_json(made.to_json())
        return
    say(_shown(made, settings))


def _shown(made: Quantized, settings: Settings) -> str:
    from edgepack.cli.tables import quantised_outputs_table
    from edgepack.render.formatting import human_bytes

    sizes = f"weights {human_bytes(made.weight_bytes_before)} -> {human_bytes(made.weight_bytes_after)}"
    parts = [heading(f"{made.path}") + f": {sizes}, {made.samples} samples"]
    if made.layers and not settings.quiet:
        parts.append(_layers(made))
    parts.append(quantised_outputs_table(made.outputs))
    if made.kept_float:
        parts.append(printable(f"float for the sake of the outputs: {', '.join(made.kept_float)}"))
    if made.accuracy is not None:
        parts.append(f"accuracy {made.accuracy:.6g}, of the float model {made.float_accuracy:.6g}")
    if made.warnings:
        parts.append("\n".join(printable(f"warning: {text}") for text in made.warnings))
    return "\n\n".join(parts)


def _layers(made: Quantized) -> str:
    rows = [
        [
            one.name,
            one.operator if one.quantised else f"{one.operator} (float)",
            "" if one.low is None or one.high is None else f"{one.low:.4g} .. {one.high:.4g}",
            f"{100 * one.outside:.2g} %" if one.outside else "",
            "" if one.weight_sqnr is None else f"{one.weight_sqnr:.1f}",
            "" if one.sqnr is None else f"{one.sqnr:.1f}",
        ]
        for one in made.layers
    ]
    header = ["layer", "operator", "range", "outside", "weights dB", "result dB"]
    return table(rows, header=header, right=[3, 4, 5])
