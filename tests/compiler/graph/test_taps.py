"""Taps that read nothing but padding are left out, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from edgepack.compiler.graph.taps import Axis, trimmed


def convolved(x: np.ndarray, weights: np.ndarray, axis: Axis) -> np.ndarray:
    padded = np.pad(x, (axis.before, axis.after))
    starts = np.arange(axis.outputs)[:, None] * axis.stride
    return (padded[starts + np.arange(axis.taps)[None, :] * axis.dilation] * weights).sum(axis=1)


def outputs_of(size: int, taps: int, stride: int, dilation: int, before: int, after: int) -> int:
    return (size + before + after - (taps - 1) * dilation - 1) // stride + 1


def test_every_small_convolution() -> None:
    random, shorter, tried = np.random.default_rng(1), 0, 0
    for size, taps, stride, dilation in np.ndindex(6, 5, 3, 7):
        for before, after in np.ndindex(8, 8):
            fixed = (size + 1, taps + 1, stride + 1, dilation + 1, before, after)
            outputs = outputs_of(*fixed)
            if outputs < 1:
                continue
            axis = Axis(size + 1, outputs, *fixed[1:])
            weights, x = random.normal(size=taps + 1), random.normal(size=size + 1)
            left, (kept,) = trimmed(weights, [axis])
            assert (
                outputs_of(kept.size, kept.taps, kept.stride, kept.dilation, kept.before, kept.after)
                >= outputs
            )
            assert np.allclose(convolved(x, left, kept), convolved(x, weights, axis))
            shorter, tried = shorter + (len(left) < len(weights)), tried + 1
    assert 0 < shorter < tried


@pytest.mark.parametrize(("dilation", "taps"), [(1, 3), (13, 3), (14, 1), (24, 1)])
def test_atrous_taps(dilation: int, taps: int) -> None:
    axis = Axis(14, 14, 3, 1, dilation, dilation, dilation)
    weights, (kept, _) = trimmed(np.ones((3, 3, 2, 2), np.float32), [axis, axis])
    assert weights.shape == (taps, taps, 2, 2)
    assert (kept.before, kept.after) == ((dilation, dilation) if taps == 3 else (0, 0))


def test_infinite_weights_stay() -> None:
    """Infinity times the padding is no number, which the model's own arithmetic gives too."""
    axis = Axis(4, 4, 3, 1, 9, 9, 9)
    weights = np.array([np.inf, 1, 1])
    assert trimmed(weights, [axis]) == (weights, [axis])
