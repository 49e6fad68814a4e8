"""Which algorithm for a convolution: a cost model in fractions of the machine's peak.

All costs are in multiply-adds per vector lane, the unit in which a kernel that runs at peak costs exactly
what it computes. docs/lab-book.md has times of both algorithms, beside what is chosen.
"""

from __future__ import annotations

from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.winograd_geometry import Panels
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget

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
STREAM_VECTOR_BYTES = 512 // 8

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
    lanes, nbytes = target.lanes(conv.dtype), conv.element_bytes
    channels = conv.in_channels * conv.out_channels
    vectors_in, vectors_out = (-(-c // lanes) * lanes for c in (conv.in_channels, conv.out_channels))

    def product(count: float, depth: int, weights: int) -> float:
        computing = count / EFFICIENCY * (1 + TILE_STEPS / depth)
        reading = STREAM_COST * (lanes * nbytes) / STREAM_VECTOR_BYTES * (weights * nbytes)
        return max(computing, reading) + NOT_HIDDEN * min(computing, reading)

    weights = direct.depth * direct.out_channels
    best = product(conv.pixels * weights, direct.depth, weights)
    chosen = 0
    for m in OUTPUTS.get(conv.kernel[0], ()):
        positions = (m + conv.kernel[0] - 1) ** 2
        if target.optimize == "balanced" and positions * channels * nbytes > BALANCED_BYTES:
            continue
        tiles = conv.batch * -(-conv.out_height // m) * -(-conv.out_width // m)
        elements = tiles * positions
        cost_in, cost_out = TRANSFORM_COST[m]
        cost = product(elements * channels, conv.in_channels, positions * channels)
        cost += elements * (vectors_in * cost_in + vectors_out * cost_out)
        if cost < best:
            best, chosen = cost, m
    return chosen


def idle_bytes(multiply_adds: int, weights: int, target: CpuTarget, dtype: str = "float32") -> int:
    """Bytes that memory can give while a kernel multiplies, beyond its weights; negative: those that it waits
    for.

    Args:
        multiply_adds: those that the kernel does.
        weights: bytes of weights that it reads.
    """
    vector_bytes = target.lanes(dtype) * DTYPE_BYTES[dtype]
    return int(multiply_adds / EFFICIENCY / (STREAM_COST * vector_bytes / STREAM_VECTOR_BYTES)) - weights


def worth_fusing(panels: Panels, block: int) -> bool:
    """Whether the fused form is faster, by what either reads and writes outside of the L2 cache.

    Fused, each block of ``block`` of the panels reads the weights, unless they stay in the cache. Split, V is
    written, perhaps read by another core, and read for each block of output channels.
    """
    g, target = panels.geometry, panels.target
    each = -(-panels.count // target.threads)
    if block < min(2, each):
        return False
    if 2 * panels.weight_bytes <= target.l2_bytes:
        return True
    blocks = target.threads * -(-each // block)
    v_bytes = panels.positions * g.count * panels.depth * g.conv.element_bytes
    return blocks * panels.weight_bytes <= ARENA_COST * (2 + panels.column_blocks) * v_bytes
