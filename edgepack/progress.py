"""How long work reports what it is doing."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Progress"]

#: Called with a stage's name ("compile C") and a detail (a kernel's name, or "").
Progress = Callable[[str, str], None]
