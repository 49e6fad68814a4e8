"""What ``edgepack tune`` shows while it searches: a table on a terminal, lines elsewhere, or JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from edgepack.cli.course import shown_seconds
from edgepack.cli.output import Settings, progress, say
from edgepack.text.printable import printable

if TYPE_CHECKING:
    from edgepack.commands.tune_results import TuneRound

__all__ = ["round_line", "rounds_table", "shown_rounds"]

#: Layers in the table, those that take longest.
SHOWN = 16

#: Characters of a layer's operators.
LONGEST = 60

#: Told of a stage; told of a round.
Shown = tuple[Callable[[str, str], None], Callable[["TuneRound"], None]]


@contextmanager
def shown_rounds(settings: Settings, *, as_json: bool) -> Iterator[Shown]:
    """What shows, on standard error, what is being done, and what each round found.

    On a terminal that is one table; else a line a stage and a round; with ``as_json`` a JSON object a round;
    with ``--quiet`` nothing.
    """
    if settings.quiet:
        yield _silent, _silent
    elif as_json:
        yield _silent, lambda one: say(json.dumps({"event": "round", **asdict(one)}), err=True)
    elif sys.stderr.isatty():
        with _live() as shown:
            yield shown
    else:
        with progress(settings) as show:
            yield show, lambda one: say(f"{'':11}{round_line(one)}", err=True)


def _silent(*_: Any) -> None:
    """Says nothing."""


def round_line(one: TuneRound) -> str:
    """What a round found, in a line."""
    said = [f"{one.faster} of {one.candidates} candidates are faster"]
    said += [f"{one.confirmed} of the last round's are so again"] if one.confirmed else []
    said += [f"{one.failed} failed so far"] if one.failed else []
    said.append(f"a run {one.speedup:.3f} times as fast so far")
    said += [f"error {100 * one.error:.1f} %"] if one.error else []
    said += [f"{shown_seconds(one.seconds_left)} left"] if one.seconds_left is not None else []
    return f"round {one.number}: {'; '.join(said)}"


def rounds_table(stage: str, one: TuneRound | None) -> Any:
    """The table of a terminal, of rich's kind: the layers, what the last round found, what is being done."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    if one is None:
        return Text(printable(stage))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("share", "faster", "tried"):
        table.add_column(name, justify="right")
    table.add_column("operators", no_wrap=True, overflow="ellipsis")
    for layer in one.layers[:SHOWN]:
        gain = f"{layer.gain:.2f}x" if layer.gain > 1 else ""
        operators = Text(printable(layer.title)[:LONGEST])
        table.add_row(f"{100 * layer.share:.1f} %", gain, str(layer.tried), operators)
    more = len(one.layers) - SHOWN
    rest = [Text(f"and {more} more layers")] if more > 0 else []
    return Group(table, *rest, Text(round_line(one)), Text(printable(stage)))


@contextmanager
def _live() -> Iterator[Shown]:
    from rich.console import Console
    from rich.live import Live

    started = time.monotonic()
    known: list[Any] = ["start", None]

    def drawn() -> Any:
        stage, last = known
        return rounds_table(f"[{time.monotonic() - started:6.1f} s] {stage}", last)

    with Live(get_renderable=drawn, console=Console(stderr=True), transient=True, refresh_per_second=2):

        def show(stage: str, detail: str) -> None:
            known[0] = f"{stage}: {detail}" if detail else stage

        def told(one: TuneRound) -> None:
            known[1] = one

        yield show, told
