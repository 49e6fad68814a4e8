"""The ranges of a float model's tensors on the calibration data, by minimum and maximum, entropy or
percentile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.quantise.runs import runner
from edgepack.plan.quantisation import QuantiseSettings

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["Range", "measured_ranges"]

#: Bins of a tensor's histogram, and steps between the ends that entropy tries.
BINS, _STRIDE = 2048, 16

#: Bins that the values of int8 and of uint8 are for magnitudes.
_LEVELS = {False: 128, True: 256}


@dataclass(frozen=True)
class Range:
    """The ends of what a tensor's values are clipped to."""

    low: float
    high: float


def measured_ranges(
    model: onnx.ModelProto,
    tensors: Iterable[str],
    samples: Iterable[Mapping[str, NDArray[Any]]],
    settings: QuantiseSettings,
) -> dict[str, Range]:
    """The range of each tensor; one with values that are not finite has none.

    Args:
        tensors: names of float32 tensors of the model.
        samples: gone through once, and again for histograms.

    Raises:
        ModelError: the model does not run on them.
    """
    import numpy as np

    names = sorted(tensors)
    run = runner(model, names)
    low, high = dict.fromkeys(names, np.inf), dict.fromkeys(names, -np.inf)
    for arrays in samples:
        for name, array in run(arrays).items():
            if array.size:
                low[name] = min(low[name], float(array.min()))  # NaN stays: it is less than nothing
                high[name] = max(high[name], float(array.max()))
                if not np.isfinite(array).all():
                    low[name] = high[name] = np.nan
    ranges = {n: Range(low[n], high[n]) for n in names if np.isfinite(low[n]) and np.isfinite(high[n])}
    if settings.method == "minmax":
        return ranges
    counts = {name: np.zeros(BINS, np.int64) for name in ranges}
    run = runner(model, counts)
    for arrays in samples:
        for name, array in run(arrays).items():
            ends = _histogram_ends(ranges[name], settings)
            values = np.abs(array) if settings.method == "entropy" else array
            counts[name] += np.histogram(values, BINS, ends)[0]
    clip = _by_entropy if settings.method == "entropy" else _by_percentile
    return {name: clip(counts[name], found, settings) for name, found in ranges.items()}


def _histogram_ends(found: Range, settings: QuantiseSettings) -> tuple[float, float]:
    if settings.method == "entropy":
        return 0.0, max(abs(found.low), abs(found.high))
    return found.low, found.high


def _by_percentile(counts: NDArray[Any], found: Range, settings: QuantiseSettings) -> Range:
    """The range less as many values at each end as may be beyond it."""
    import numpy as np

    outer = (1 - settings.percentile / 100) / 2 * counts.sum()
    from_below, from_above = np.cumsum(counts), np.cumsum(counts[::-1])
    width = (found.high - found.low) / BINS
    below = int(np.searchsorted(from_below, outer, side="right"))
    above = int(np.searchsorted(from_above, outer, side="right"))
    low, high = found.low + below * width, found.high - above * width
    return Range(low, high) if low < high else found


def _by_entropy(counts: NDArray[Any], found: Range, settings: QuantiseSettings) -> Range:
    """The range clipped to the magnitude at which the distribution of the clipped and rounded magnitudes is
    nearest to that of the magnitudes, by Kullback and Leibler's divergence (S. Migacz, "8-bit Inference with
    TensorRT", 2017)."""
    largest = max(abs(found.low), abs(found.high))
    levels = _LEVELS[found.low >= 0 and not settings.symmetric]
    if not counts[1:].any() or largest == 0:
        return found
    counts[0] = counts[1]  # zeros, of Relu say, are exact in any range
    tried = range(levels, BINS + 1, _STRIDE)
    end = float(min(tried, key=lambda kept: _divergence(counts, kept, levels)) * largest / BINS)
    return Range(max(found.low, -end), min(found.high, end))


def _divergence(counts: NDArray[Any], kept: int, levels: int) -> float:
    """Of the distribution of the first ``kept`` bins, with what is beyond them in the last one, from that of
    these bins in ``levels`` groups, each bin with values as likely as the others of its group."""
    import numpy as np

    inside = counts[:kept].astype(np.float64)
    clipped = inside.copy()
    clipped[-1] += counts[kept:].sum()
    group = np.arange(kept) * levels // kept
    filled = inside > 0
    sums = np.bincount(group, inside, levels)
    members = np.bincount(group, filled, levels)
    rounded = np.where(filled, (sums / np.maximum(members, 1))[group], 0.0)
    there = clipped > 0
    if rounded.sum() == 0:
        return float(np.inf)
    p = clipped[there] / clipped.sum()
    q = np.maximum(rounded[there] / rounded.sum(), 1e-12)
    return float((p * np.log(p / q)).sum())
