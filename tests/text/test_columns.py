"""Tables that fit a terminal."""

from __future__ import annotations

import pytest

from edgepack.text.columns import columns, fitted

ROWS = [
    ["step", "us", "rule", "nodes"],
    ["0", "12.5", "conv2d.igemm tile=8x4", "/model.0/conv/Conv, /model.0/act/Mul, /model.0/act/Sigmoid"],
    ["1-4", "3.0", "elementwise", "Add_\x1b0"],
]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_the_last_columns_are_cut_until_lines_fit(width: int) -> None:
    rows = fitted(ROWS, width, [3, 2])
    lines = columns(rows, [0, 1])
    assert max(map(len, lines)) <= width
    assert [row[:2] for row in rows] == [row[:2] for row in ROWS]
    assert (rows[1][3] == ROWS[1][3]) == (width >= 100)
    assert (rows[1][2] == ROWS[1][2]) == (width >= 60), "the rule is cut last"


def test_what_cannot_fit_keeps_a_part_of_each_column() -> None:
    assert [len(cell) for cell in fitted(ROWS, 10, [3, 2])[1][2:]] == [8, 8]
    assert fitted(ROWS, 10, []) == ROWS
