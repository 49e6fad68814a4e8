"""How a bundle is measured: what its program is told, and what is made of its times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgepack.errors import ConfigError
from edgepack.options import RunOptions
from edgepack.runners.bench import BenchOptions, percentile


def test_the_program_is_told_all_options() -> None:
    options = BenchOptions(3, 0, True, "linux-x86_64-v3", RunOptions(threads=2))
    assert options.decided(counting=False).arguments(counting=False) == [
        *("bench", Path("test"), "--threads", "2", "--warmup", "0", "--runs", "3", "--profile"),
        *("--variant", "linux-x86_64-v3"),
    ]
    start = ["bench", Path("test"), "--warmup"]
    assert BenchOptions().decided(counting=False).arguments(counting=False) == [*start, "5", "--runs", "50"]
    counted = BenchOptions().decided(counting=True).arguments(counting=True)
    assert counted == [*start, "0", "--runs", "2", "--instructions"]


@pytest.mark.parametrize(
    "wrong", [BenchOptions(runs=0), BenchOptions(warmup=-1), BenchOptions(where=RunOptions(threads=0))]
)
def test_what_cannot_be_measured_is_refused(wrong: BenchOptions) -> None:
    with pytest.raises(ConfigError, match="cannot"):
        wrong.decided(counting=False).arguments(counting=False)


@pytest.mark.parametrize("percent", [0, 50, 90, 99, 100])
@pytest.mark.parametrize("values", [[3.0], [2.0, 1.0], [5.0, 1.0, 4.0, 2.5, 9.0]])
def test_percentiles_are_numpys(values: list[float], percent: float) -> None:
    assert percentile(values, percent) == pytest.approx(float(np.percentile(values, percent)))
