"""Damaged TFLite files end with exit code 0 or 3, whatever is changed in them."""

from __future__ import annotations

import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed: pip install edgepack[tflite]")

from tests.support import fuzz_models
from tests.support.forked_cases import Outcome


def wrong(count: int) -> list[Outcome]:
    first = fuzz_models.FIRST_TFLITE
    outcomes = fuzz_models.run_cases(range(first, first + count))
    return [one for one in outcomes if one.code not in (0, 3)]


def test_damaged_files_end_with_exit_code_0_or_3() -> None:
    assert not wrong(40)


@pytest.mark.slow
def test_many_damaged_files_end_with_exit_code_0_or_3() -> None:
    assert not wrong(20_000)
