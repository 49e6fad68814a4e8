"""What Ctrl-C, SIGTERM and a terminal that goes away do to the program: they unwind the stack, so that child
processes and temporary folders go with it, and leave one line and the usual exit code, 128 and the signal's
number."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["run_cleanly"]

#: What is said of each, by name: Windows has not all of them.
_SAID = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "its terminal is gone"}


class _Ended(BaseException):
    """A signal came."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def run_cleanly(function: Callable[[], int]) -> int:
    """What the function returns, or the exit code for the signal that ended it."""
    try:
        with _handlers():
            return function()
    except _Ended as end:
        number = end.number
    except KeyboardInterrupt:  # raised by something else, such as a test
        number = signal.SIGINT
    said = _SAID[signal.Signals(number).name]
    print(f"edgepack: {said}; nothing was left behind.", file=sys.stderr)
    return 128 + number


@contextmanager
def _handlers() -> Iterator[None]:
    """Handlers for the signals that nobody ignores or handles. The first one that comes is the last: what
    cleans up is not to be interrupted."""
    usual = (signal.SIG_DFL, signal.default_int_handler)
    numbers = [number for name in _SAID if (number := getattr(signal, name, None)) is not None]
    mine: dict[int, object] = {}
    came = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal came
        del frame
        if not came:
            came = True
            raise _Ended(number)

    try:
        for number in numbers:
            if signal.getsignal(number) in usual:
                mine[number] = signal.signal(number, on_signal)
    except ValueError:
        pass  # not the main thread: the caller's process decides
    try:
        yield
    finally:
        if not came:  # else the process is about to end
            for number, before in mine.items():
                signal.signal(number, before)  # type: ignore[arg-type]
