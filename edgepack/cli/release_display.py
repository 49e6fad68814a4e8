"""How far a release is, on standard error: a table that changes on a terminal, else a line for each event."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from edgepack.cli.course import shown_seconds
from edgepack.cli.output import Settings, say
from edgepack.release.executing import Show, State
from edgepack.text.printable import printable

__all__ = ["display"]


@contextmanager
def display(settings: Settings) -> Iterator[Show]:
    """A callback that shows a state; with ``--quiet`` it shows nothing."""
    if settings.quiet:
        yield lambda _state: None
    elif sys.stderr.isatty():
        with _table() as show:
            yield show
    else:
        yield _Lines()


def _left(state: State) -> str:
    return "" if state.left is None else f", about {shown_seconds(state.left)} left"


class _Lines:
    """A line when a unit begins to be built, one when it ended, and what a stage says beside its name."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._begun: set[str] = set()

    def __call__(self, state: State) -> None:
        for one in state.running:
            if one.name not in self._begun:
                self._say(f"{one.name}: build")
                self._begun.add(one.name)
            if ": " in one.stage and one.stage not in self._begun:
                self._say(f"{one.name}: {one.stage}")
                self._begun.add(one.stage)
        for name, failure in state.finished:
            result = "done" if failure is None else f"FAILED: {failure.message}"
            self._say(f"{name}: {result} ({state.done} of {state.total}{_left(state)})")

    def _say(self, text: str) -> None:
        say(f"[{time.monotonic() - self._start:6.1f} s] {printable(text)}", err=True)


@contextmanager
def _table() -> Iterator[Show]:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    start = time.monotonic()
    console = Console(stderr=True)
    with Live(console=console, transient=True, refresh_per_second=5) as live:

        def show(state: State) -> None:
            for name, failure in state.finished:
                result = "done" if failure is None else f"FAILED: {failure.message}"
                console.print(Text(printable(f"{name}: {result}")))
            table = Table("model", "device", "stage", "time", box=None, pad_edge=False)
            for one in state.running:
                model, _, device = one.name.partition("@")
                cells = (model, device, one.stage, f"{one.seconds:.0f} s")
                table.add_row(*(Text(printable(cell)) for cell in cells))
            passed = time.monotonic() - start
            table.caption = Text(f"{state.done} of {state.total} done, {passed:.0f} s{_left(state)}")
            table.caption_justify = "left"
            live.update(table)

        yield show
