"""Which algorithm for a convolution: a cost model in fractions of the machine's peak.

All costs are in multiply-adds per vector lane, the unit in which a kernel that runs at peak costs exactly
what it computes. notes/2026-11-21-winograd.md has times of both algorithms, beside what is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from edgepack.compiler.kernels.cpu.conv.agreed_forms import agreed_forms
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.winograd_1d import Winograd1D, all_1d
from edgepack.compiler.kernels.cpu.conv.winograd_panels import RowPanels, panels_of
from edgepack.compiler.kernels.cpu.emit.register_tile import tile_for
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel
from edgepack.plan.target import CpuTarget

__all__ = ["Integers", "idle_bytes", "winograd_1d", "winograd_2d_tile", "worth_fusing"]

#: Fraction of peak that the register-tiled product reaches on a long reduction.
EFFICIENCY = 0.9

#: Steps of the reduction that it costs to start a tile, and to store it.
TILE_STEPS = 12

#: m of the F(m x m, r x r) that there are, by r.
OUTPUTS = {3: (2, 4), 4: (3,)}

#: Cost of transforming one element of a tile, input and output, in multiply-adds per lane: the arithmetic of
#: the transform, its loads and its stores.
TRANSFORM_COST = {2: (6.0, 8.0), 3: (7.0, 9.0), 4: (7.0, 9.0)}

#: The same of a tile of a line: one dimension instead of two.
LINE_TRANSFORM_COST = (4.0, 5.0)

#: Steps of the reduction that it costs to begin with another filter of a line.
PART_STEPS = 1

#: Cost of reading one byte of weights, in multiply-adds per lane of a 512-bit vector: they come from memory
#: or the last cache, for a network's weights do not stay in a core's own. A core of 237 GFLOPS read 20 GB/s.
STREAM_COST = 5.0
STREAM_VECTOR_BYTES = 512 // 8

#: How much of the shorter of computing and reading weights is not hidden behind the longer.
NOT_HIDDEN = 0.5

#: With ``optimize="balanced"`` weights may grow up to this size.
BALANCED_BYTES = 1024 * 1024

#: A block of the fused form transforms at most one in so many tiles that another block does too.
MOST_AGAIN = 4

#: What a byte of V in the arena costs in bytes of weights, which are read in order and fetched ahead.
ARENA_COST = 1.5


@dataclass(frozen=True)
class Integers:
    """How a convolution of integers is multiplied.

    Attributes:
        micro: in Winograd's form, and ``direct`` directly.
        tiles: m of the tiles by which Winograd's form is exact.
    """

    micro: MicroKernel
    direct: MicroKernel
    tiles: tuple[int, ...]


def winograd_2d_tile(
    conv: Conv2d, target: CpuTarget, direct: Conv2d | None = None, integers: Integers | None = None
) -> int:
    """Output tile m of F(m x m, r x r) for a convolution of stride 1 by r x r; 0 for the direct one.

    In a library for several kinds of CPU it is one by which others read the same weights, if that is almost
    as fast (:func:`agreed_forms`).

    Args:
        direct: what is computed directly, if that is not ``conv`` itself.
        integers: how these are multiplied, of which the convolution is.
    """
    if not _allowed(target, exact=integers is not None):
        return 0
    if not target.library_vector_bits or integers:
        costs = _tile_costs(conv, target, direct or conv, integers)
        return min(costs, key=costs.__getitem__)
    kinds = {bits: replace(target, vector_bits=bits) for bits in target.library_vector_bits}
    return agreed_forms({bits: _tile_costs(conv, kind, direct or conv) for bits, kind in kinds.items()})[
        target.vector_bits
    ]


def _tile_costs(
    conv: Conv2d, target: CpuTarget, direct: Conv2d, integers: Integers | None = None
) -> dict[int, float]:
    """The cost of each output tile m, and of the direct form, which is 0; the arguments as above."""
    step, outputs = 1.0, OUTPUTS.get(conv.kernel[0], ())
    if integers:
        costs = {0: _direct_cost(direct.in_units(integers.direct.group), target, _step_cost(integers.direct))}
        conv, step = conv.in_units(integers.micro.group), _step_cost(integers.micro)
        outputs = tuple(m for m in outputs if m in integers.tiles)
    else:
        costs = {0: _direct_cost(direct, target)}
    channels = conv.group_in * conv.out_channels
    for m in outputs:
        positions = (m + conv.kernel[0] - 1) ** 2
        nbytes = positions * channels * conv.element_bytes
        if _too_large(nbytes, target):
            continue
        tiles = conv.batch * -(-conv.out_height // m) * -(-conv.out_width // m)
        count = step * tiles * positions * channels * _filled(conv, target)
        cost = _product_cost(count, conv.group_in, nbytes, target)
        cost += _transform_cost(conv, target, tiles * positions, tiles * positions, TRANSFORM_COST[m])
        costs[m] = cost
    return costs


def winograd_1d(conv: Conv2d, target: CpuTarget, rate: float = 1) -> Winograd1D | None:
    """The tiles of lines by which a convolution is fastest; None for the direct one.

    Args:
        rate: multiply-adds of the direct one in the time of one in float32.
    """
    if not _allowed(target):
        return None
    best, chosen = _direct_cost(conv, target) / rate, None
    for lines in all_1d(conv):
        weights = lines.positions * lines.depth * conv.out_channels
        nbytes = weights * conv.element_bytes
        if _too_large(nbytes, target):
            continue
        rows = tile_for(target, lines.run_length or lines.count, conv.group_out, conv.dtype).rows
        tiles = sum(size * count for size, count in panels_of(lines, rows, 1))
        parts = prod(number for number, _ in lines.taps)
        cost = _product_cost(tiles * weights * _filled(conv, target), lines.depth, nbytes, target)
        cost += tiles * weights / lines.depth * PART_STEPS * (parts - 1)
        read, written = lines.input_tiles * lines.positions, lines.count * lines.positions
        cost += _transform_cost(conv, target, read, written, LINE_TRANSFORM_COST)
        if cost < best:
            best, chosen = cost, lines
    return chosen


def _allowed(target: CpuTarget, *, exact: bool = False) -> bool:
    small = target.short_of_memory or target.optimize == "size"
    return target.vector_bits > 0 and (exact or not target.strict_math) and not small


def _step_cost(micro: MicroKernel) -> float:
    """The cost of a multiply-add of units."""
    return micro.group / micro.rate


def _too_large(nbytes: int, target: CpuTarget) -> bool:
    """Whether transformed weights may not be of this size."""
    return target.optimize == "balanced" and nbytes > BALANCED_BYTES


def _filled(conv: Conv2d, target: CpuTarget) -> float:
    """Lanes of vectors by output channels, where several groups, each of which has its own vectors.

    The direct form of groups of few channels has several of them in a vector.
    """
    lanes = target.lanes(conv.dtype)
    return 1.0 if conv.groups == 1 else -(-conv.group_out // lanes) * lanes / conv.group_out


def _direct_cost(conv: Conv2d, target: CpuTarget, step: float = 1.0) -> float:
    """The cost of a convolution of units, a multiply-add of which costs ``step``."""
    weights = conv.depth * conv.out_channels
    return _product_cost(step * conv.pixels * weights, conv.depth, weights * conv.element_bytes, target)


def _product_cost(count: float, depth: int, weight_bytes: int, target: CpuTarget) -> float:
    """The cost of ``count`` multiply-adds in sums of ``depth`` terms, with weights of so many bytes."""
    computing = count / EFFICIENCY * (1 + TILE_STEPS / depth)
    reading = STREAM_COST * target.vector_bytes / STREAM_VECTOR_BYTES * weight_bytes
    return max(computing, reading) + NOT_HIDDEN * min(computing, reading)


def _transform_cost(
    conv: Conv2d, target: CpuTarget, read: int, written: int, cost: tuple[float, float]
) -> float:
    """The cost of transforming ``read`` elements of each input and ``written`` of each output channel."""
    lanes = target.lanes(conv.dtype)
    vectors_in, vectors_out = (-(-c // lanes) * lanes for c in (conv.in_channels, conv.out_channels))
    return read * vectors_in * cost[0] + written * vectors_out * cost[1]


def idle_bytes(multiply_adds: float, weights: int, target: CpuTarget) -> int:
    """Bytes that memory can give while a kernel multiplies, beyond its weights; negative: those that it waits
    for.

    Args:
        multiply_adds: those that the kernel does, in such of float32.
        weights: bytes of weights that it reads.
    """
    return (
        int(multiply_adds / EFFICIENCY / (STREAM_COST * target.vector_bytes / STREAM_VECTOR_BYTES)) - weights
    )


def worth_fusing(panels: RowPanels, block: int) -> bool:
    """Whether the fused form is faster, by what either reads and writes outside of the L2 cache.

    Fused, each block of ``block`` of the panels reads the weights, unless they stay in the cache. Split, V is
    written, perhaps read by another core, and read for each block of output channels.
    """
    g, target = panels.tiling, panels.target
    if (
        g.most_input_tiles(block * panels.largest) - block * panels.largest
    ) * MOST_AGAIN > block * panels.largest:
        return False
    each = -(-panels.count // target.threads)
    if block < min(2, each):
        return False
    if 2 * panels.weight_bytes <= target.l2_bytes:
        return True
    blocks = target.threads * -(-each // block)
    v_bytes = panels.positions * g.input_tiles * g.conv.in_channels * g.conv.element_bytes
    read = 2 + replace(panels, split=True).column_blocks
    return blocks * panels.weight_bytes <= ARENA_COST * read * v_bytes
