"""The command lines behind an error's cuts: the parts of a refused model that can be compiled."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgepack.errors import ModelError
from edgepack.options import PackOptions
from edgepack.text.printable import printable

__all__ = ["cut_command", "names_of", "suggesting_cuts"]


@contextmanager
def suggesting_cuts(model: Path, device: str, options: PackOptions) -> Iterator[None]:
    """Writes into the hint of a ModelError that leaves the block how each of its ``cuts`` is packed.

    Args:
        device: the device's name, or the path of its YAML file.
        options: those of the pack that is refused; its sizes hold for the parts too.
    """
    try:
        yield
    except ModelError as error:
        for cut in error.cuts:
            share = f"{cut['nodes']} of {cut['of']} nodes"
            command = cut_command(cut, model, device, options)
            text = f"What stands {cut['part']} it ({share}) can be compiled:\n    {printable(command)}"
            error.hint = f"{error.hint}\n  {text}" if error.hint else text
        raise


def cut_command(cut: Mapping[str, Any], model: Path, device: str, options: PackOptions) -> str:
    """The command line that packs one of an error's ``cuts``."""
    words = ["edgepack", "pack", str(model)]
    if device != "host":
        words += ["--device", device]
    for name, shape in (options.shapes or {}).items():
        words += ["--shape", f"{name}={','.join(map(str, shape)) or '()'}"]
    for name, size in (options.dims or {}).items():
        words += ["--dim", f"{name}={size}"]
    if options.custom is not None:
        words += ["--custom", str(options.custom)]
    for name, size in (options.maxima or {}).items():
        words += ["--max", f"{name}={size}"]
    if options.max_trips:
        words += ["--max-trips", str(options.max_trips)]
    if options.set_batch:
        words += ["--set-batch", str(options.set_batch)]
    for option, names in (
        ("--inputs", cut["inputs"] or names_of(options.cut_inputs)),
        ("--outputs", cut["outputs"] or names_of(options.cut_outputs)),
    ):
        words += _option(option, names)
    return shlex.join(words)


def names_of(value: Sequence[str]) -> tuple[str, ...]:
    """Names as a user gave them: one string is one name."""
    return (value,) if isinstance(value, str) else tuple(value)


def _option(option: str, names: Sequence[str]) -> list[str]:
    """Names with commas between them, each of its own where one has a comma in it."""
    if any("," in name for name in names):
        return [word for name in names for word in (option, name)]
    return [option, ",".join(names)] if names else []
