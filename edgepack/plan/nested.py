"""The file in which a frontend leaves how a module's arguments and results are nested."""

from __future__ import annotations

__all__ = ["NESTED"]

#: Beside an imported model: :class:`edgepack.bundle.structure.NestedRecord` as JSON.
NESTED = "nested.json"
