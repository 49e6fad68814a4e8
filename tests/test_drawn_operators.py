"""Operators drawn by seeds, with all that the standard lets them be given, compute what the references do.

ONNX's own evaluator and ONNX Runtime are the references. Where they differ one of them has to agree: the
evaluator has the newest version of an operator for all opsets, ONNX Runtime has forms of its own for NaN.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.models.drawn_operators.compared import Comparison, compare
from workbench.models.drawn_operators.drawn import RECIPES, drawn, references

#: Models in one library.
_TOGETHER = 60


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 120), *(pytest.param(n, 2000, marks=pytest.mark.slow) for n in range(1000, 21_000, 2000))],
)
def test_operators_compute_what_a_reference_does(first: int, count: int, tmp_path: Path) -> None:
    found = Comparison()
    for seed in range(first, first + count, _TOGETHER):
        folder = tmp_path / str(seed)
        folder.mkdir()
        operators = [drawn(one) for one in range(seed, min(seed + _TOGETHER, first + count))]
        compare([(operator, references(operator)) for operator in operators], folder, found)
    assert not found.wrong
    assert len(found.refused) <= count // 20, found.refused
    assert found.counts["no reference"] <= count // 20


def test_every_operator_can_be_drawn() -> None:
    for number, name in enumerate(sorted(RECIPES)):
        assert drawn(number, [name]).name == name.rpartition(".")[2]
