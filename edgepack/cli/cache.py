"""``edgepack cache``."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from edgepack.cli.output import Settings, print_json, say, table, verbosity_options
from edgepack.render.formatting import human_bytes
from edgepack.text.printable import printable

if TYPE_CHECKING:
    from edgepack.pipeline.cache_usage import Removed

__all__ = ["command"]

#: What is removed unless kinds are named; Wine's folders may be in use, and nothing tells; by the notes of
#: folders on boards these are found and removed.
_USUAL = ("results", "compiler", "logs", "seals")

_kind_option = click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([*_USUAL, "boards", "wine"]),
    help="Only this; several times for several.  [default: all but boards and wine]",
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    from edgepack.config.models import parse_size

    del ctx, param
    try:
        size = parse_size(value)
        return None if size is None else int(size)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


@click.group("cache")
def command() -> None:
    """Show what the cache folder holds, and make it smaller.

    All of it can be made again. EDGEPACK_CACHE_DIR names another folder, EDGEPACK_CACHE_BYTES how many bytes
    results may take (4 GiB); a compiler's cache may take a quarter of that. docs/security.md says more.
    """


@command.command("size")
@_json_option
@verbosity_options
def size(as_json: bool, settings: Settings) -> None:
    """Show bytes and entries by kind, and the limits."""
    from edgepack.pipeline.cache_usage import cache_kinds
    from edgepack.system.paths import cache_dir

    kinds = cache_kinds()
    total = sum(one.nbytes for one in kinds)
    if as_json:
        print_json({"folder": str(cache_dir()), "nbytes": total, "kinds": [one.to_json() for one in kinds]})
        return
    rows = [
        [one.kind, human_bytes(one.nbytes), str(one.entries), _limit(one.limit), _about(one.kind)]
        for one in kinds
    ]
    rows.append(["total", human_bytes(total), "", "", printable(str(cache_dir()))])
    say(table(rows, header=["KIND", "SIZE", "ENTRIES", "LIMIT", ""], right=[1, 2, 3]))
    if not settings.quiet:
        say("\nEDGEPACK_CACHE_BYTES sets the limits; `edgepack cache prune` and `clear` make room.")


def _limit(limit: int | None) -> str:
    return "" if limit is None else human_bytes(limit)


def _about(kind: str) -> str:
    return {
        "results": "compiled models and C",
        "compiler": "zig's libraries and objects",
        "logs": "of failures, the newest 20",
        "seals": "of releases made here, the newest 1000",
        "boards": "notes of what killed runs left on boards",
        "wine": "Windows folders of Wine",
        "other": "not edgepack's, or of another version: never removed",
    }[kind]


@command.command("list")
@_json_option
@verbosity_options
def list_(as_json: bool, settings: Settings) -> None:
    """List the results, those that were not used for longest first."""
    from edgepack.pipeline.cache_usage import cache_entries

    entries = cache_entries()
    if as_json:
        print_json([one.to_json() for one in entries])
        return
    rows = []
    for one in entries:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.used))
        rows.append([one.key[:16], one.kind, human_bytes(one.nbytes), used, "in use" if one.locked else ""])
    say(table(rows, header=["ENTRY", "KIND", "SIZE", "LAST USED", ""], right=[2]))
    if not settings.quiet:
        total = human_bytes(sum(one.nbytes for one in entries))
        say(f"\n{len(entries)} entries, {total}")


@command.command("prune")
@click.option(
    "--max-bytes",
    "most",
    callback=_size,
    metavar="N",
    help="Bytes that each kind may keep, of what was used last (500MB, 2 GiB).",
)
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="Remove what was not used for so long.",
)
@_kind_option
@_json_option
@verbosity_options
def prune(
    most: int | None, older_than: float | None, kinds: Sequence[Any], as_json: bool, settings: Settings
) -> None:
    """Remove what was not used for longest.

    With both options, what is older goes until no more than the bytes are left. A compiler's cache goes as a
    whole, if it is larger or nothing was written to it for so long, and no process is there that uses it.
    """
    from edgepack.pipeline.cache_usage import remove

    if most is None and older_than is None:
        raise click.UsageError("Give --max-bytes or --older-than; `edgepack cache clear` removes all.")
    _show(remove(kinds or _USUAL, most=most, older_than=older_than), as_json, settings)


@command.command("clear")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@_kind_option
@_json_option
@verbosity_options
def clear(yes: bool, kinds: Sequence[Any], as_json: bool, settings: Settings) -> None:
    """Remove all that can be made again; what is in use, and what is not edgepack's, stays.

    Without its seal, a release that was made here is built anew where it would have been taken over.
    """
    from edgepack.pipeline.cache_usage import remove
    from edgepack.system.paths import cache_dir

    if not yes:
        if as_json or not sys.stdin.isatty():
            raise click.UsageError("Give --yes: there is nobody to ask.")
        click.confirm(printable(f"Remove {', '.join(kinds or _USUAL)} in {cache_dir()}?"), abort=True)
    _show(remove(kinds or _USUAL, most=0), as_json, settings)


def _show(removed: Sequence[Removed], as_json: bool, settings: Settings) -> None:
    if as_json:
        print_json({"removed": [one.to_json() for one in removed]})
        return
    rows = [
        [one.kind, human_bytes(one.nbytes), str(one.entries), one.kept]
        for one in removed
        if one.entries or one.kept or not settings.quiet
    ]
    say(table(rows, header=["KIND", "REMOVED", "ENTRIES", ""], right=[1, 2]))
