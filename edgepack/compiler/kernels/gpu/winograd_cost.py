"""Whether a convolution by 3x3 pays in Winograd's form on a GPU, and with tiles of which size.

Estimated, not measured: the time of multiply-adds, of bytes between the GPU and its memory, and of launches,
by what is known of the GPU's speed (``plan/gpu_speed.py``). The direct convolution is one launch, which reads
its input and weights and writes its results once. Winograd's form is three: of its product both operands and
the results have 16 / 4 or 36 / 16 times the elements, and two transforms do nothing but read and write.
"""

from __future__ import annotations

from edgepack.compiler.kernels.cpu.conv.winograd_transforms import tile_side
from edgepack.compiler.kernels.gpu.winograd_form import Filtering
from edgepack.plan.gpu_target import GpuTarget

__all__ = ["TILES", "winograd_tile"]

#: What of its peak a product reaches, in either form. It has not been measured; the more it is, the less
#: Winograd's form pays.
EFFICIENCY = 0.5

#: Microseconds that a kernel takes at least, beside its launch: a short one took 2.9 on a V100
#: (developer.nvidia.com/blog/cuda-graphs).
SHORTEST = 3

#: Rows of the smallest tile of a product: what lies between is computed too.
ROWS = 32

#: What of the direct convolution's cost is left at most: an estimate that has not been measured is not to
#: decide where it is close.
PAYS = 0.8

#: With ``--optimize balanced`` weights may grow up to this size.
BALANCED_BYTES = 1024 * 1024

#: Of a result's tile: m of F(m x m, 3 x 3).
TILES = (2, 4)


def winograd_tile(conv: Filtering, target: GpuTarget, *, half_input: bool, half_weights: bool) -> int:
    """m of the F(m x m, 3 x 3) that costs least, 0 for the direct convolution.

    Args:
        half_input: whether its input and result are float16 in memory; then F(4 x 4, 3 x 3), which loses more
            bits than F(2 x 2, 3 x 3), is none of them.
        half_weights: whether its weights are.
    """
    if target.host.strict_math or target.host.optimize == "size":
        return 0
    speed = target.estimated_speed
    activation, weight = 2 if half_input else 4, 2 if half_weights else 4
    window = conv.channels * conv.outputs

    def product(members: int, rows: int, nbytes: int) -> float:
        whole = -(-rows // ROWS) * ROWS
        computing = 2 * members * whole * window / (1e3 * speed.peak * EFFICIENCY)
        return max(computing, nbytes / (1e3 * speed.bandwidth))

    planes = conv.channels * conv.groups + conv.outputs
    moved = activation * conv.pixels * planes
    best, chosen = PAYS * product(9, conv.pixels, moved + weight * 9 * window), 0
    for m in TILES[:1] if half_input or half_weights else TILES:
        members, tiles = tile_side(m) ** 2, conv.tiles(m)
        if target.host.optimize == "balanced" and members * window * weight > BALANCED_BYTES:
            continue
        between = 4 * members * tiles * planes
        cost = product(members, tiles, between + weight * members * window)
        cost += (moved + between) / (1e3 * speed.bandwidth) + 2 * (speed.launch + SHORTEST)
        if cost < best:
            best, chosen = cost, m
    return chosen
