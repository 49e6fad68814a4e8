"""What commands share to print: settings, tables, progress."""

from __future__ import annotations

import codecs
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from edgepack.cli.course import Course, shown_seconds
from edgepack.text.columns import columns, fitted
from edgepack.text.printable import printable

__all__ = [
    "Settings",
    "heading",
    "hint_lines",
    "print_json",
    "progress",
    "say",
    "settings_of",
    "table",
    "verbosity_options",
]

_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass
class Settings:
    """What holds for a whole run of the program."""

    quiet: bool = False
    verbose: bool = False


def settings_of(ctx: click.Context) -> Settings:
    """The run's settings (``obj`` of the outermost context)."""
    settings: Settings = ctx.ensure_object(Settings)
    return settings


def verbosity_options(function: _F) -> _F:
    """Adds ``--quiet`` and ``--verbose`` to a command too, so that they can stand at the end of a line."""

    @click.option("-q", "--quiet", is_flag=True, help="Print results only, no progress.")
    @click.option("-v", "--verbose", is_flag=True, help="Print more; with an error, its Python traceback.")
    @click.pass_context
    @wraps(function)
    def wrapper(ctx: click.Context, /, *args: Any, quiet: bool, verbose: bool, **kwargs: Any) -> Any:
        settings = settings_of(ctx)
        settings.quiet |= quiet
        settings.verbose |= verbose
        return ctx.invoke(function, *args, settings=settings, **kwargs)

    return wrapper  # type: ignore[return-value]


def heading(text: str) -> str:
    """``text``, a name of others too, in bold where standard output is a terminal and NO_COLOR is not set."""
    return f"{_BOLD}{printable(text)}{_PLAIN}" if _styled() else printable(text)


def _styled() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def hint_lines(hint: str) -> str:
    """A hint, whose lines after the first are indented: no name in it begins a line of its own."""
    return re.sub(r"\n(?! )", "\n  ", printable(hint, keep="\n"))


def say(text: str = "", *, end: str = "\n", err: bool = False) -> None:
    """Print lines: the one way from a command to the terminal.

    Whatever in them would act on a terminal is spelled out (:func:`edgepack.text.printable.printable`), but
    for line ends and tabs: what may hold one of others is spelled out before it becomes part of a line.

    Args:
        end: what follows the text.
        err: on standard error.
    """
    styles = (_BOLD, _PLAIN) if _styled() and not err else ()
    parts = re.split(r"(\x1b\[[01]m)", text)
    shown = "".join(part if part in styles else printable(part, keep="\n\t") for part in parts)
    encoding = getattr(sys.stderr if err else sys.stdout, "encoding", None) or "utf-8"
    click.echo((shown + end).encode(encoding, "backslashreplace").decode(encoding), nl=False, err=err)


def print_json(data: Any) -> None:
    """``data`` as JSON on standard output; in its texts, what would act on a terminal is escaped."""
    known = getattr(sys.stdout, "encoding", None) or "utf-8"
    text = json.dumps(data, indent=1, ensure_ascii=codecs.lookup(known).name != "utf-8")
    if not all(line.isprintable() for line in text.split("\n")):
        text = "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text)
    say(text)


def table(
    rows: Sequence[Sequence[str]],
    *,
    header: Sequence[str] = (),
    right: Sequence[int] = (),
    cut: Sequence[int] = (),
) -> str:
    """Rows in aligned columns.

    Args:
        rows: texts, names of others too; all rows have the same length.
        header: the columns' names; none: no header.
        right: indices of the columns that are aligned to the right.
        cut: indices of the columns that are cut where a line would be wider than the terminal, the first of
            them first.
    """
    every = [header, *rows] if header else rows
    if cut and sys.stdout.isatty():
        every = fitted(every, shutil.get_terminal_size().columns, cut)
    lines = columns(every, right)
    if header:
        lines[0] = heading(lines[0])
    return "\n".join(lines)


@contextmanager
def progress(
    settings: Settings, stages: Mapping[str, float] | None = None
) -> Iterator[Callable[[str, str], None]]:
    """A callback ``(stage, detail)`` that shows what is being done, on standard error.

    On a terminal it is one line with a running clock; else a line per stage; with ``--quiet`` nothing.

    Args:
        stages: the work's stages in their order, with their usual seconds: the line on a terminal then has
            the share of the whole that is done and, if it takes long, the time that is left.
    """
    if settings.quiet:
        yield lambda _stage, _detail: None
    elif sys.stderr.isatty():
        with _live(stages) as show:
            yield show
    else:
        yield _Lines()


class _Lines:
    def __init__(self) -> None:
        self.start = time.monotonic()
        self.stage = ""

    def __call__(self, stage: str, detail: str) -> None:
        if stage != self.stage:
            self.stage = stage
            text = f"{stage}: {detail}" if detail else stage
            say(f"[{time.monotonic() - self.start:6.1f} s] {printable(text)}", err=True)


@contextmanager
def _live(stages: Mapping[str, float] | None) -> Iterator[Callable[[str, str], None]]:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
    from rich.text import Text

    course = Course(stages or {})

    class _ShareColumn(ProgressColumn):
        max_refresh = 0.5

        def render(self, task: Task) -> Text:
            share, left = course.look()
            remaining = "" if left is None else f", about {shown_seconds(left)} left"
            return Text(f"{share:4.0%}{remaining}" if stages else "")

    text = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), text, TimeElapsedColumn(), *([_ShareColumn()] if stages else []))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("start", total=None)

        def show(stage: str, detail: str) -> None:
            course.enter(stage)
            bar.update(task, description=printable(f"{stage}: {detail}" if detail else stage))

        yield show
