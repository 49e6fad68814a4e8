"""Rows of texts in aligned columns."""

from __future__ import annotations

from collections.abc import Sequence

from edgepack.text.printable import printable

__all__ = ["columns"]


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """A line for each row.

    Args:
        rows: texts, names of others too; all rows have the same length.
        right: indices of the columns that are aligned to the right.
    """
    every = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in every) for column in range(len(every[0]))] if every else []
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in every
    ]
