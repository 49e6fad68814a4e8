"""Every error that reaches a user: what happened, where, what to try. Each class has its own exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgepack.text.printable import printable

__all__ = [
    "CheckFailedError",
    "ConfigError",
    "EdgepackError",
    "EdgepackWarning",
    "InternalError",
    "ModelError",
    "ToolchainError",
]


class EdgepackError(Exception):
    """Base of all errors that edgepack raises on purpose.

    Args:
        message: one sentence: what happened and where (``file:line``, node name, command).
        hint: one sentence: what to try. Empty if there is nothing to try.
        detail: longer text that helps to diagnose, such as a compiler's stderr. Shown below the message.
    """

    exit_code = 5

    def __init__(self, message: str, *, hint: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.detail = detail

    def __str__(self) -> str:
        parts = (
            printable(self.message),
            printable(self.detail, keep="\n\t"),
            printable(self.hint, keep="\n"),
        )
        return "\n".join(part for part in parts if part)


class CheckFailedError(EdgepackError):
    """The thing asked about failed: outputs do not match, an audit found what is not allowed."""

    exit_code = 1


class ConfigError(EdgepackError):
    """Wrong usage or configuration: an unknown device, a bad YAML field, an output that exists."""

    exit_code = 2


class ModelError(EdgepackError):
    """The model cannot be read or compiled.

    Args:
        refused: what cannot be compiled, plain data: ``operator``, ``nodes`` (their names) and ``reason``.
        cuts: parts of the model that can be compiled, plain data: ``part`` ("before" or "after" what cannot),
            ``inputs`` and ``outputs`` (tensors to cut at; empty for the model's own), ``nodes`` (how many of
            the model's are in it) and ``of`` (how many there are).
    """

    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        detail: str = "",
        refused: Sequence[Mapping[str, Any]] = (),
        cuts: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(message, hint=hint, detail=detail)
        self.refused = tuple(refused)
        self.cuts = tuple(cuts)


class ToolchainError(EdgepackError):
    """A compiler, linker or runner is missing or failed."""

    exit_code = 4


class InternalError(EdgepackError):
    """A defect of edgepack or of TVM; a log is saved."""

    exit_code = 5


class EdgepackWarning(UserWarning):
    """Something is not as it should be, and the work goes on without it: a cache that others can write to."""
