"""Rows of texts in aligned columns."""

from __future__ import annotations

from collections.abc import Sequence

from edgepack.text.printable import printable

__all__ = ["columns", "fitted"]

#: Characters of a column that is cut that stay.
_LEAST = 8
_GAP = 2


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """A line for each row.

    Args:
        rows: texts, names of others too; all rows have the same length.
        right: indices of the columns that are aligned to the right.
    """
    every = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in every) for column in range(len(every[0]))] if every else []
    return [
        (" " * _GAP)
        .join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        .rstrip()
        for row in every
    ]


def fitted(rows: Sequence[Sequence[str]], width: int, cut: Sequence[int]) -> list[list[str]]:
    """The rows, such that :func:`columns` gives lines of at most ``width`` characters, where that can be.

    Args:
        rows: texts, of the same length; a header too.
        cut: indices of the columns whose texts may be cut, the first of them first.
    """
    every = [list(row) for row in rows]
    for column in cut:
        widths = [max(len(printable(row[one])) for row in every) for one in range(len(every[0]))]
        over = sum(widths) + _GAP * (len(widths) - 1) - width
        if over > 0:
            room = max(_LEAST, widths[column] - over)
            for row in every:
                if len(text := printable(row[column])) > room:
                    tail = (room - 3) // 2  # of names with the same folders in front, the end is what differs
                    row[column] = text[: room - 3 - tail] + "..." + text[len(text) - tail :]
    return every
