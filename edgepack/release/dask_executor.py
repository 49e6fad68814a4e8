"""Runs calls on the workers of a Dask scheduler, for a matrix that outgrows one machine: the extra ``dask``.

The workers need the same edgepack, and the same folders at the same paths: models, project, and where the
release is written (a shared file system). A worker that is lost is no failure: Dask has another one do its
call again (https://distributed.dask.org/en/stable/resilience.html).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

from edgepack.errors import ConfigError
from edgepack.system.installation import extra_command

__all__ = ["DaskExecutor", "open_executor"]

#: Seconds until a scheduler that does not answer is given up.
_PATIENCE = 30

_P = ParamSpec("_P")
_R = TypeVar("_R")


class DaskExecutor(Executor):
    """Calls on a scheduler's workers. Left by an exception, a ``with`` statement cancels what waits; a call
    that runs on a worker ends by itself."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._calls = client.get_executor(pure=False)

    def submit(self, fn: Callable[_P, _R], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_R]:
        """Call ``fn`` on a worker."""
        future: Future[_R] = self._calls.submit(fn, *args, **kwargs)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends what any executor's does; the scheduler and its workers run on."""
        self._calls.shutdown(wait=wait and not cancel_futures)
        self._client.close()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.shutdown(cancel_futures=kind is not None)


def open_executor(jobs: int, scheduler: str) -> DaskExecutor:
    """The executor; how many calls run at once is the workers' business.

    Raises:
        ConfigError: Dask is not installed, no scheduler was named or it does not answer, or ``jobs`` was
            given.
    """
    if not scheduler:
        raise ConfigError("The executor dask needs a scheduler.", hint="Add --scheduler tcp://HOST:8786.")
    if jobs:
        raise ConfigError(
            "How many units are built at once is up to Dask's workers.", hint="Leave --jobs out."
        )
    try:
        from distributed import Client
    except ImportError as error:
        raise ConfigError("Dask is not installed.", hint=extra_command("dask")) from error
    try:
        client = Client(scheduler, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise ConfigError(
            f"Dask's scheduler {scheduler} does not answer: {error}.", hint="Look whether it runs there."
        ) from error
    return DaskExecutor(client)
