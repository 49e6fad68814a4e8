"""Which algorithm for a convolution: a cost model in fractions of the machine's peak.

All costs are in multiply-adds per vector lane, the unit in which a kernel that runs at peak costs exactly
what it computes. docs/lab-book.md has times of both algorithms, beside what is chosen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgepack.plan.target import CpuTarget

if TYPE_CHECKING:
    from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
    from edgepack.compiler.kernels.cpu.conv.winograd_tiles import Geometry

__all__ = ["idle_bytes", "winograd_tile", "worth_fusing"]

#: Fraction of peak that the register-tiled product reaches on a long reduction.
EFFICIENCY = 0.9

#: Steps of the reduction that it costs to start a tile, and to store it.
TILE_STEPS = 12

#: m of the F(m x m, r x r) that there are, by r.
OUTPUTS = {3: (2, 4), 4: (3,)}

#: Cost of transforming one element of a tile, input and output, in multiply-adds per lane: the arithmetic of
#: the transform, its loads and its stores.
TRANSFORM_COST = {2: (6.0, 8.0), 3: (7.0, 9.0), 4: (7.0, 9.0)}

#: Cost of reading one byte of weights, in multiply-adds per lane of a 512-bit vector: they come from memory
#: or the last cache, for a network's weights do not stay in a core's own. A core of 237 GFLOPS read 20 GB/s.
STREAM_COST = 5.0

#: How much of the shorter of computing and reading weights is not hidden behind the longer.
NOT_HIDDEN = 0.5

#: With ``optimize="balanced"`` weights may grow up to this size.
BALANCED_BYTES = 1024 * 1024

#: What a byte of V in the arena costs in bytes of weights, which are read in order and fetched ahead.
ARENA_COST = 1.5


def winograd_tile(conv: Conv2d, target: CpuTarget, direct: Conv2d | None = None) -> int:
    """Output tile m of F(m x m, r x r) for a convolution of stride 1 by r x r; 0 for the direct one.

    Args:
        direct: what is computed directly, if that is not ``conv`` itself.
    """
    if target.vector_bits == 0 or target.strict_math or target.optimize == "size":
        return 0
    direct = direct or conv
    lanes = target.lanes("float32")
    channels = conv.in_channels * conv.out_channels
    vectors_in, vectors_out = (-(-c // lanes) * lanes for c in (conv.in_channels, conv.out_channels))

    def product(count: float, depth: int, nbytes: int) -> float:
        computing = count / EFFICIENCY * (1 + TILE_STEPS / depth)
        reading = STREAM_COST * lanes / 16 * nbytes
        return max(computing, reading) + NOT_HIDDEN * min(computing, reading)

    weights = direct.depth * direct.out_channels
    best = product(conv.pixels * weights, direct.depth, weights * 4)
    chosen = 0
    for m in OUTPUTS.get(conv.kernel[0], ()):
        positions = (m + conv.kernel[0] - 1) ** 2
        if target.optimize == "balanced" and positions * channels * 4 > BALANCED_BYTES:
            continue
        tiles = conv.batch * -(-conv.out_height // m) * -(-conv.out_width // m)
        elements = tiles * positions
        cost_in, cost_out = TRANSFORM_COST[m]
        cost = product(elements * channels, conv.in_channels, positions * channels * 4)
        cost += elements * (vectors_in * cost_in + vectors_out * cost_out)
        if cost < best:
            best, chosen = cost, m
    return chosen


def idle_bytes(products: int, weights: int, target: CpuTarget) -> int:
    """Bytes that memory can give while a kernel multiplies, beyond its weights; negative: those that it waits
    for.

    Args:
        products: multiply-adds of the kernel.
        weights: bytes of weights that it reads.
    """
    return int(products / EFFICIENCY / (STREAM_COST * target.lanes("float32") / 16)) - weights


def worth_fusing(g: Geometry, panels: int, block: int, columns: int, target: CpuTarget) -> bool:
    """Whether the fused form is faster, by what either reads and writes outside of the L2 cache.

    Fused, each block of ``block`` of the ``panels`` reads the weights, unless they stay in the cache. Split,
    V is written, perhaps read by another core, and read for each of ``columns`` blocks of output channels.
    """
    each = -(-panels // target.threads)
    if block < min(2, each):
        return False
    a2, depth = g.a**2, g.conv.in_channels
    weights = a2 * depth * g.conv.out_channels * 4
    if 2 * weights <= target.l2_bytes:
        return True
    blocks = target.threads * -(-each // block)
    return blocks * weights <= ARENA_COST * (2 + columns) * (a2 * g.count * depth * 4)
