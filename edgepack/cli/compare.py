"""``edgepack compare``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgepack.cli.complete import device_names
from edgepack.cli.options import json_option, limit_option, runner_option, size_options
from edgepack.cli.output import Settings, heading, print_json, progress, say, table, verbosity_options
from edgepack.text.printable import printable

if TYPE_CHECKING:
    from edgepack.commands.compare import Comparison

__all__ = ["command"]

#: Layers that are named as those where most is lost.
_NAMED = 3


def _limits(function: Callable[..., Any]) -> Callable[..., Any]:
    """How near the results have to be."""
    options = (
        click.option(
            "--min-sqnr",
            type=float,
            metavar="DB",
            help="Fail where an output has a lower signal-to-noise ratio.",
        ),
        click.option(
            "--max-error",
            type=click.FloatRange(min=0),
            metavar="X",
            help="Fail where an output is further off.",
        ),
        click.option(
            "--min-top1",
            type=click.FloatRange(min=0, max=1),
            metavar="SHARE",
            help="Fail where fewer rows of scores have the same largest element: 0.99.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command()
@click.argument("first", metavar="A", type=click.Path(path_type=Path))
@click.argument("second", metavar="B", type=click.Path(path_type=Path))
@click.option(
    "--inputs",
    type=click.Path(path_type=Path),
    metavar="FOLDER|FILE",
    help="What both are run on: .npz files with an array for each input, whose first dimension can hold "
    "several samples; .npy files for one input.  [default: random; of two bundles what A has recorded]",
)
@click.option("--seed", default=0, show_default=True, help="Seed of random inputs.")
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    default=128,
    show_default=True,
    metavar="N",
    help="That are used at most; of random ones there are 8.",
)
@_limits
@size_options
@runner_option
@click.option(
    "--device",
    metavar="NAME|FILE",
    shell_complete=device_names,
    help="Whose settings of the runner are taken.  [default: this machine's of the bundle's device]",
)
@click.option("--threads", type=click.IntRange(min=1), help="Of bundles' programs.  [default: the device's]")
@limit_option
@json_option
@verbosity_options
def command(settings: Settings, first: Path, second: Path, *, as_json: bool, **options: Any) -> int:
    """Run A and B, each an ONNX file or a bundle, on the same inputs, and say how far B's results are from
    A's; of two models also layer by layer: where accuracy is lost."""
    from edgepack import api

    with progress(settings) as show:
        found = api.compare(first, second, **options, progress=show)
    if as_json:
        print_json(found.to_json())
    else:
        say(_shown(found, settings))
    return 0 if found.ok else 1


def _shown(found: Comparison, settings: Settings) -> str:
    samples = f"{found.samples} sample{'s' if found.samples != 1 else ''}"
    sides = [
        f"{side} ({place})" for side, place in zip((found.first, found.second), found.places, strict=True)
    ]
    parts = [heading(f"{sides[0]} and {sides[1]}") + f": {samples}"]
    if found.layers and not settings.quiet:
        parts.append(_layers(found))
        most = sorted((one for one in found.layers if (one.lost or 0) > 0), key=lambda one: -(one.lost or 0))[
            :_NAMED
        ]
        if most:
            named = ", ".join(f"{one.name} ({one.lost:.1f} dB)" for one in most)
            parts.append(printable(f"most is lost in: {named}"))
    parts.append(_outputs(found))
    if found.warnings:
        parts.append("\n".join(printable(f"warning: {text}") for text in found.warnings))
    if found.failures:
        parts.append("\n".join(printable(f"FAILED: {text}") for text in found.failures))
    return "\n\n".join(parts)


def _ratio(sqnr: float | None) -> str:
    return "exact" if sqnr is None else f"{sqnr:.1f}"


def _layers(found: Comparison) -> str:
    rows = [
        [
            one.name,
            one.operator,
            one.tensor,
            _ratio(one.sqnr),
            "" if one.lost is None else f"{one.lost:.1f}",
            f"{one.max_error:.3g}",
            f"{one.largest:.3g}",
        ]
        for one in found.layers
    ]
    header = ["layer", "operator", "tensor", "SQNR dB", "lost dB", "max error", "largest value"]
    return table(rows, header=header, right=[3, 4, 5, 6])


def _outputs(found: Comparison) -> str:
    rows = [
        [
            one.name,
            _ratio(one.sqnr),
            "" if one.cosine is None else f"{one.cosine:.6f}",
            f"{one.max_error:.3g}",
            f"{one.mean_error:.3g}",
            f"{one.largest:.3g}",
            "" if one.top1 is None else f"{100 * one.top1:.4g} %",
        ]
        for one in found.outputs
    ]
    header = ["output", "SQNR dB", "cosine", "max error", "mean error", "largest value", "same top-1"]
    return table(rows, header=header, right=[1, 2, 3, 4, 5, 6])
