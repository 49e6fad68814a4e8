"""The time that a whole piece of work may take, whatever it waits for in between."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["TICK", "OutOfTimeError", "check_time", "time_left", "time_limit"]

#: Seconds between two looks at the clock of whatever waits: an exception that is raised in a thread from
#: outside, and Ctrl-C on Windows, are seen as often too.
TICK = 0.2

_end: ContextVar[float | None] = ContextVar("edgepack_deadline", default=None)


class OutOfTimeError(Exception):
    """The time of the whole work is over."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """The body, and the threads that ``process.side_by_side`` runs in it, have ``seconds``; None or 0 for no
    limit. A limit that holds already stays where it is sooner.

    Raises:
        OutOfTimeError: from the body, where it waits or asks by :func:`check_time`.
    """
    outer = _end.get()
    mine = time.monotonic() + seconds if seconds else None
    token = _end.set(min((end for end in (outer, mine) if end is not None), default=None))
    try:
        yield
    finally:
        _end.reset(token)


def time_left() -> float:
    """Seconds that are left, at least 0; infinity without a limit."""
    end = _end.get()
    return float("inf") if end is None else max(0.0, end - time.monotonic())


def check_time() -> None:
    """Raise OutOfTimeError if the time is over."""
    if time_left() <= 0:
        raise OutOfTimeError
