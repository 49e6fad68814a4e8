"""What leaves edgepack's Python API: an EdgepackError, also where a defect is to blame."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from edgepack.errors import EdgepackError, InternalError
from edgepack.system.log import save_log
from edgepack.system.refusals import refused_by_the_system
from edgepack.text.spelling import spelled
from edgepack.version import __version__

__all__ = ["guarded", "internal_error", "translated", "undisturbed"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _CallersError(BaseException):
    """Carries an exception of the caller's own code through edgepack's."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def guarded(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function of the API: whatever it raises is an EdgepackError, which names options as its
    caller gives them (:mod:`edgepack.text.spelling`).

    A file that the system refuses becomes a ConfigError, any other exception an InternalError with a saved
    log. A call with arguments that the function does not have stays a TypeError, and what :func:`undisturbed`
    code raises stays what it is.
    """

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except EdgepackError as error:
            error.message, error.hint = spelled(error.message), spelled(error.hint)
            error.args = (error.message,)
            raise
        except _CallersError as carrier:
            raise carrier.error from carrier.error.__cause__
        except Exception as error:
            trace = error.__traceback__
            if isinstance(error, TypeError) and trace is not None and trace.tb_next is None:
                raise  # the call itself: not a line of the function has run
            raise translated(error, function.__qualname__) from error

    return call


def undisturbed(told: Callable[_P, None] | None) -> Callable[_P, None] | None:
    """The caller's callback; what it raises passes through :func:`guarded` functions as it is."""
    if told is None:
        return None

    def call(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            told(*args, **kwargs)
        except Exception as error:
            raise _CallersError(error) from error

    return call


def internal_error(error: Exception, what: str) -> InternalError:
    """An exception that nobody foresaw as an InternalError, its traceback in a saved log.

    Args:
        what: what was being done, for the log.
    """
    text = "".join(traceback.format_exception(error))
    path = save_log("internal", f"edgepack {__version__}\n{what}\n\n{text}")
    said = f"{type(error).__name__}: {error}".rstrip(": ")
    hint = "" if path is None else f"The log is in {path}; please report it."
    return InternalError(f"An internal error: {said}.", hint=hint)


def translated(error: Exception, what: str) -> EdgepackError:
    """An exception that is no EdgepackError as one: what the system refuses is the user's to mend, anything
    else a defect.

    Args:
        what: what was being done, for the log.
    """
    return refused_by_the_system(error) or internal_error(error, what)
