"""How long work reports what it is doing, and what it was doing when its time was over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from edgepack.errors import ModelError
from edgepack.system.deadline import OutOfTimeError, check_time, time_limit

__all__ = ["Progress", "Stages"]

#: Called with a stage's name ("compile C") and a detail (a kernel's name, or "").
Progress = Callable[[str, str], None]

_HINT = (
    "Raise the limit with --timeout SECONDS (0 for none): a large network takes longer, as all does on a "
    "slow or busy machine."
)


class Stages:
    """Passes progress on, measures each stage, and ends what takes too long.

    Attributes:
        seconds: that each stage took.
    """

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}
        self._stage = ""
        self._where = "at its start"
        self._since = time.monotonic()

    def __call__(self, stage: str, detail: str = "") -> None:
        check_time()
        if stage != self._stage:
            self.end()
            self._stage = stage
        self._where = f"in kernel {detail} (stage {stage})" if detail else f"in the stage {stage}"
        if self.progress is not None:
            self.progress(stage, detail)

    def end(self) -> None:
        """The last stage is over."""
        now = time.monotonic()
        if self._stage:
            self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now - self._since
        self._since = now
        self._stage = ""

    @contextmanager
    def within(self, seconds: float, what: str, *, hint: str = _HINT) -> Iterator[None]:
        """The body may take ``seconds``; 0 for no limit.

        Args:
            what: is being done, for the message: ``Packing net.onnx``.
            hint: what to try.

        Raises:
            ModelError: it took longer. What it waited for was ended.
        """
        try:
            with time_limit(seconds):
                yield
        except OutOfTimeError:
            raise ModelError(
                f"{what} did not end within {seconds:g} s; it was {self._where}.",
                hint=hint,
            ) from None
