"""Work items of a group agree on who reads and writes what, and when: seen by Oclgrind, item by item."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.oclgrind import MODELS, reports


@pytest.mark.slow
def test_kernels_have_no_races(tmp_path: Path) -> None:
    """Nor do they reach outside their tensors."""
    assert reports(list(MODELS), tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_each_barrier_is_needed(name: str, tmp_path: Path) -> None:
    """Without it there is a race, and it is seen."""
    for barrier in range(1000):
        found = reports([name], tmp_path, barrier)
        if found is None:
            assert barrier >= 1
            return
        assert any("data race" in line for line in found), barrier
