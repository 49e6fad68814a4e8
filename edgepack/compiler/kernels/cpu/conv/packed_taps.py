"""How a depthwise convolution's weights lie in memory: vector of channels by vector, tap by tap."""

from __future__ import annotations

import numpy as np

from edgepack.compiler.kernels.contract import Array

__all__ = ["INTERLEAVED", "pack_pairs", "pack_taps", "pairs_of_taps"]

#: Channels that an interleaving takes of each of its operands: x86 interleaves within 128 bits.
INTERLEAVED = 8


def pack_taps(weights: Array, lanes: int) -> Array:
    """(..., 1, C) to [step][taps][lanes]; the last step has the last channels."""
    return np.concatenate([step.reshape(-1) for step in _steps(weights, lanes)])


def pairs_of_taps(taps: int) -> list[tuple[int, tuple[int, int]]]:
    """The first tap of each pair of neighbours that a row of a window is computed by, and which tap's weight
    the two are multiplied with: -1 for none.

    The last one of an odd number is the second of a pair with the one before, so that nothing is read beyond
    the window, and neighbouring windows of stride 1 share the pair.
    """
    pairs = [(j, (j, j + 1)) for j in range(0, taps - 1, 2)]
    if taps % 2:
        pairs.append((taps - 2, (-1, taps - 1)))
    return pairs


def pack_pairs(weights: Array, lanes: int) -> Array:
    """(..., taps of a row, 1, C) of int16 to [step][row][pair][half of the channels][lanes / 2], whose units
    are two weights in an int32. The halves are what interleaving two vectors gives."""
    order = np.arange(lanes).reshape(-1, 2, INTERLEAVED // 2).transpose(1, 0, 2).reshape(-1)
    taps = weights.shape[-3]
    packed = []
    for step in _steps(weights, lanes):
        rows = step.reshape(-1, taps, lanes)[:, :, order]
        nothing = np.zeros_like(rows[:, 0])
        pairs = [
            np.stack([nothing if j < 0 else rows[:, j] for j in used], axis=-1)
            for _, used in pairs_of_taps(taps)
        ]
        packed.append(np.stack(pairs, axis=1).reshape(-1))
    return np.ascontiguousarray(np.concatenate(packed).astype("<i2")).view("<i4")


def _steps(weights: Array, lanes: int) -> list[Array]:
    """(taps, lanes) of each vector of channels, the last of which ends with the last channel."""
    flat = weights.reshape(-1, weights.shape[-1])
    firsts = [min(at, flat.shape[1] - lanes) for at in range(0, flat.shape[1], lanes)]
    return [flat[:, at : at + lanes] for at in firsts]
