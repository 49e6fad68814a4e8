"""How far compilation has come, for whoever wants to know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Reporter", "hearing", "running"]


class Reporter:
    """Is told of progress; the default says nothing."""

    def stage(self, name: str) -> None:
        """What is done from now on."""

    def kernel(self, name: str) -> None:
        """The kernel ``name`` is about to be scheduled."""

    def warning(self, text: str) -> None:
        """One sentence about what is not as good as it could be."""

    def running(self, name: str) -> None:
        """Somebody else's program runs the user's model from now on; "" if none does any more."""


_reporter: ContextVar[Reporter] = ContextVar("edgepack_reporter", default=Reporter())  # noqa: B039 (not changed)


@contextmanager
def hearing(reporter: Reporter) -> Iterator[None]:
    """Who is told of what :func:`running` says in the body."""
    token = _reporter.set(reporter)
    try:
        yield
    finally:
        _reporter.reset(token)


@contextmanager
def running(name: str) -> Iterator[None]:
    """The body has somebody else's program run the user's model: where it crashes, the model is to blame, and
    the job ends with a ModelError.

    Args:
        name: of the program, as a message begins with it.
    """
    reporter = _reporter.get()
    reporter.running(name)
    try:
        yield
    finally:
        reporter.running("")
