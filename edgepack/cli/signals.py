"""What Ctrl-C, SIGTERM and a terminal that goes away do to the program: they unwind the stack, so that child
processes and temporary folders go with it, and leave one line and the usual exit code, 128 and the signal's
number.

They do so at the next step of Python's that is not in the middle of an import or of pydantic's: compiled
modules that are being made, and code in Rust, may take a foreign exception for their own defect, and abort.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from edgepack.text.printable import printable

__all__ = ["leaving", "run_cleanly"]

#: What is said of each, by name: Windows has not all of them.
_SAID = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "its terminal is gone"}


#: Seconds after which a signal that came at a delicate moment is looked at again.
_LATER = 0.02


class _Ended(BaseException):
    """A signal came."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.left = "nothing was left behind"


@contextmanager
def leaving(what: Callable[[], str]) -> Iterator[None]:
    """Says what a signal leaves that comes meanwhile: called when all is cleaned up; "" for nothing."""
    try:
        yield
    except _Ended as end:
        end.left = what() or end.left
        raise


def run_cleanly(function: Callable[[], int], *, last: bool = False) -> int:
    """What the function returns, or the exit code for the signal that ended it.

    Args:
        last: the process ends with it: a signal that comes later comes too late to change what was done.
    """
    try:
        with _handlers(last):
            return function()
    except _Ended as end:
        number, left = end.number, end.left
    except KeyboardInterrupt:  # raised by something else, such as a test
        number, left = signal.SIGINT, _Ended(signal.SIGINT).left
    said = _SAID[signal.Signals(number).name]
    print(f"edgepack: {said}; {printable(left)}.", file=sys.stderr)
    return 128 + number


@contextmanager
def _handlers(last: bool) -> Iterator[None]:
    """Handlers for the signals that nobody ignores or handles. The first one that comes is the last: what
    cleans up is not to be interrupted."""
    usual = (signal.SIG_DFL, signal.default_int_handler)
    numbers = [number for name in _SAID if (number := getattr(signal, name, None)) is not None]
    mine: dict[int, object] = {}
    came: list[int] = []
    over = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal over
        if over:
            return
        came.append(number)
        if _is_delicate(frame) and hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, _LATER)
            return
        over = True
        raise _Ended(came[0])

    def on_alarm(number: int, frame: FrameType | None) -> None:
        del number
        if came:
            on_signal(came[0], frame)

    try:
        for number in numbers:
            if signal.getsignal(number) in usual:
                mine[number] = signal.signal(number, on_signal)
        if mine and hasattr(signal, "SIGALRM"):
            mine[signal.SIGALRM] = signal.signal(signal.SIGALRM, on_alarm)
    except ValueError:
        pass  # not the main thread: the caller's process decides
    try:
        yield
    finally:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, before in mine.items():
            # Not a handler: Python takes its own away before it ends.
            signal.signal(number, signal.SIG_IGN if over or last else before)  # type: ignore[arg-type]


def _is_delicate(frame: FrameType | None) -> bool:
    """Whether a module is being imported, or pydantic works."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if frame.f_code.co_filename.startswith("<frozen importlib") or module.startswith("pydantic"):
            return True
        frame = frame.f_back
    return False
