"""Inputs for sessions of the small bundle, and sessions whose runs last as long as a test says."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

import edgepack
from tests.support.worker import COLUMNS, ROWS

__all__ = ["Slow", "random_input", "slowed"]


def random_input(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((ROWS, COLUMNS)).astype("f4")


class Slow:
    """The library's functions, of which a run waits until it may go on; what was called, in order."""

    def __init__(self, api: Any) -> None:
        self.api = api
        self.calls: list[str] = []
        self.inside, self.go_on = threading.Event(), threading.Event()
        self.session_create = api.session_create

    def __getattr__(self, name: str) -> Any:
        return getattr(self.api, name)

    def slow_run(self, *arguments: Any) -> int:
        self.inside.set()
        assert self.go_on.wait(60)
        status: int = self.api.session_run(*arguments)
        self.calls.append("run")
        return status

    def session_destroy(self, handle: Any) -> None:
        self.calls.append("destroy")
        self.api.session_destroy(handle)

    def model_close(self, model: Any) -> None:
        self.calls.append("close")
        self.api.model_close(model)


def slowed(session: edgepack.Session) -> Slow:
    """Its one native session now has runs that wait."""
    session._model.api = slow = Slow(session._model.api)
    assert session._pool is not None
    (call,) = session._pool.calls
    call.function = slow.slow_run
    return slow
