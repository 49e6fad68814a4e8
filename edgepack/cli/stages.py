"""``edgepack stages``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgepack.cli.catalogue import note_alias
from edgepack.cli.course import PACK
from edgepack.cli.grouped import GroupedCommand
from edgepack.cli.options import device_option, json_option, kernel_options, limit_option, model_options
from edgepack.cli.output import Settings, print_json, progress, say, verbosity_options
from edgepack.text.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgepack.commands.look_inside import TargetStages

__all__ = ["command"]

#: Between two pages.
_RULE = "-" * 100


@click.command(cls=GroupedCommand)
@click.argument("model", type=click.Path(path_type=Path))
@device_option
@click.option(
    "--kernel",
    metavar="NAME",
    help="Show the texts of this kernel: TIR, LLVM IR and assembly, or the source for a GPU.",
)
@model_options
@kernel_options
@limit_option
@json_option
@verbosity_options
def command(
    settings: Settings, as_json: bool, model: Path, device: str, kernel: str | None, **options: Any
) -> None:
    """Show what MODEL (an ONNX or .pt2 file) becomes on its way to a device: how many operators each stage
    leaves, the kernels with the nodes that they compute, the graph after each group of passes, the plan.

    On a terminal it is shown page by page, by the program that PAGER names, or less."""
    from edgepack.commands.look_inside import kernels_named, look_inside
    from edgepack.options import PackOptions

    note_alias(settings, device)
    with progress(settings, PACK) as show:
        found = look_inside(model, device, PackOptions(**options), show)
    if kernel is None:
        if as_json:
            print_json([{"variant": one.variant, **one.record.to_json()} for one in found])
        else:
            _show([page for one in found for page in _headed(one, one.pages)])
        return
    named = kernels_named(found, kernel)
    if as_json:
        print_json(
            [
                {
                    "variant": one.variant,
                    "name": that.name,
                    "symbol": that.symbol,
                    "nodes": that.nodes,
                    "texts": {file: one.texts[file] for file in that.files},
                }
                for one, that in named
            ]
        )
        return
    from edgepack.render.stages_text import kernel_heading

    pages = []
    for one, that in named:
        texts = [f"{file}\n\n{one.texts[file]}" for file in that.files]
        pages += _headed(one, [kernel_heading(that), *texts])
    _show(pages)


def _headed(one: TargetStages, pages: Sequence[str]) -> list[str]:
    """The pages of a target, the first with its name where there are more targets."""
    return [f"{one.variant}\n\n{pages[0]}", *pages[1:]] if one.variant else list(pages)


def _show(pages: Sequence[str]) -> None:
    """Prints pages, on a terminal by a pager."""
    text = f"{_RULE}\n".join(page if page.endswith("\n") else f"{page}\n" for page in pages)
    if sys.stdout.isatty():
        click.echo_via_pager(printable(text, keep="\n\t"), color=False)
    else:
        say(text, end="")
