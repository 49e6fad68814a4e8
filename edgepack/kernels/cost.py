"""Which algorithm for a convolution: a cost model in fractions of the machine's peak.

All costs are in multiply-adds per vector lane, the unit in which a kernel that runs at peak costs exactly
what it computes. docs/performance.md says how the constants were measured and how well the model predicts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgepack.target import CpuTarget

if TYPE_CHECKING:
    from edgepack.kernels.conv2d import Conv2d

__all__ = ["winograd_tile"]

#: Fraction of peak that the register-tiled product reaches on a long reduction.
EFFICIENCY = 0.9

#: Steps of the reduction that it costs to start a tile, and to store it.
TILE_STEPS = 12

#: Cost of transforming one element of a tile, input and output, in multiply-adds per lane: the arithmetic of
#: the transform, its loads and its stores.
TRANSFORM_COST = {2: (6.0, 8.0), 4: (7.0, 9.0)}

#: Cost of one byte of weights that does not stay in the caches from run to run, in multiply-adds per lane.
#: A core reads 10 to 20 GB/s from memory while it could do 50 to 80 G multiply-adds.
STREAM_COST = 3.0

#: Weights up to this size, summed over the network's layers of that kind, tend to stay in the last cache.
RESIDENT_BYTES = 2 * 1024 * 1024

#: With ``optimize="balanced"`` weights may grow up to this size.
BALANCED_BYTES = 1024 * 1024


def winograd_tile(conv: Conv2d, target: CpuTarget) -> int:
    """Output tile m of F(m x m, 3 x 3) for a 3x3 convolution of stride 1; 0 for the direct one."""
    if target.vector_bits == 0 or target.strict_math or target.optimize == "size":
        return 0
    lanes = target.lanes("float32")
    channels = conv.in_channels * conv.out_channels
    vectors_in, vectors_out = (-(-c // lanes) * lanes for c in (conv.in_channels, conv.out_channels))

    def product(count: float, depth: int) -> float:
        return count / EFFICIENCY * (1 + TILE_STEPS / depth)

    def streamed(positions: int) -> float:
        nbytes = positions * channels * 4
        return STREAM_COST * lanes / 16 * nbytes if nbytes > RESIDENT_BYTES else 0.0

    best = product(conv.pixels * channels * 9, conv.depth) + streamed(9)
    chosen = 0
    for m in (2, 4):
        positions = (m + 2) ** 2
        if target.optimize == "balanced" and positions * channels * 4 > BALANCED_BYTES:
            continue
        tiles = conv.batch * -(-conv.out_height // m) * -(-conv.out_width // m)
        elements = tiles * positions
        cost_in, cost_out = TRANSFORM_COST[m]
        cost = (
            product(elements * channels, conv.in_channels)
            + elements * (vectors_in * cost_in + vectors_out * cost_out)
            + streamed(positions)
        )
        if cost < best:
            best, chosen = cost, m
    return chosen
