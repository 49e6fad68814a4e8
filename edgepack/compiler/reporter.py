"""How far compilation has come, for whoever wants to know."""

from __future__ import annotations

__all__ = ["Reporter"]


class Reporter:
    """Is told of progress; the default says nothing."""

    def stage(self, name: str) -> None:
        """What is done from now on."""

    def kernel(self, name: str) -> None:
        """The kernel ``name`` is about to be scheduled."""

    def warning(self, text: str) -> None:
        """One sentence about what is not as good as it could be."""
