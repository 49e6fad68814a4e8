"""What ``edgepack devices`` and ``edgepack toolchains`` do: show all fields of one file, or list all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from edgepack.cli.output import Settings, print_json, say, table
from edgepack.errors import ConfigError
from edgepack.text.printable import printable

if TYPE_CHECKING:
    from edgepack.config.load import Kind

__all__ = ["list_all", "note_alias", "show_one"]


def show_one(kind: Kind[Any], name: str, *, as_json: bool) -> None:
    """Prints all fields of a file, named or by its path; ConfigError if it cannot be loaded."""
    from edgepack.config.show import as_yaml

    resolved = kind.load(name)
    if as_json:
        print_json(resolved.model.model_dump(mode="json"))
    else:
        say(as_yaml(resolved), end="")


def note_alias(settings: Settings, *names: object) -> None:
    """Says on standard error, unless quiet, which device each alias of a chip or board stands for.

    Args:
        names: of devices, and paths of their files; None where none was named.
    """
    from edgepack.config.device import alias_note

    for name in names:
        if not settings.quiet and name is not None and (note := alias_note(str(name))):
            say(printable(note), err=True)


def list_all(
    kind: Kind[Any],
    settings: Settings,
    *,
    as_json: bool,
    header: Sequence[str],
    row: Callable[[Any], Sequence[str]],
    hint: str,
    more: Callable[[Any], dict[str, Any]] = lambda _: {},
) -> None:
    """Prints every file that can be loaded, and on standard error why the others cannot.

    Args:
        row: a model's cells under ``header``; columns of numbers are aligned to the right.
        hint: what comes under the table.
        more: what JSON has of a model beside its fields.
    """
    found, broken = [], []
    for name in kind.names():
        try:
            found.append(kind.load(name).model)
        except ConfigError as error:
            broken.append(error.message)
    if as_json:
        print_json([{**model.model_dump(mode="json"), **more(model)} for model in found])
    else:
        rows = [row(model) for model in found]
        numbers = [column for column in range(len(header)) if all(cells[column].isdigit() for cells in rows)]
        say(table(rows, header=header, right=numbers))
    for text in broken:
        say(f"edgepack: left out: {printable(text)}", err=True)
    if not (as_json or settings.quiet):
        say(f"\n{hint}")
