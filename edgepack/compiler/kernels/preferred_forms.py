"""In which of the forms that a graph can have a target is fast."""

from __future__ import annotations

from edgepack.compiler.graph.dilated import FilteredTiles
from edgepack.compiler.graph.forms import Forms
from edgepack.compiler.kernels.cpu.conv.cost import OUTPUTS
from edgepack.compiler.kernels.cpu.conv.winograd_integers import exact_tiles
from edgepack.compiler.kernels.cpu.conv.winograd_transforms import tile_side
from edgepack.compiler.kernels.cpu.emit.vector_nearest import nearest_lanes
from edgepack.compiler.kernels.cpu.micro.dot2_int16 import dot2_lanes
from edgepack.compiler.kernels.cpu.micro.dot4_bytes import byte_products
from edgepack.compiler.kernels.cpu.micro.widened_pairs import widens_pairs
from edgepack.compiler.tvm_target import has_feature
from edgepack.plan.opt_level import ALL, TILED
from edgepack.plan.target import CpuTarget
from edgepack.plan.targets import Target

__all__ = ["preferred_forms"]

#: Outputs along each side of the largest square tile of a convolution by 3x3.
LARGEST = max(OUTPUTS[3])

#: Multiply-adds of int16 in the time of one of float32 where one instruction adds the products of a pair
#: (notes/quantised-networks.md).
PAIRS_RATE = 1.5


def preferred_forms(target: Target) -> Forms:
    """The forms that a CPU prefers, by what it multiplies fast; a GPU has none of its own."""
    if not isinstance(target, CpuTarget):
        return Forms(level=target.opt_level)
    every = target.opt_level >= ALL
    larger = every and target.optimize == "latency" and not target.short_of_memory
    winograd = larger and target.vector_bits > 0 and not target.strict_math
    filtered = FilteredTiles(LARGEST, tile_side(LARGEST) ** 2) if winograd else None
    vectors = target.word_lanes > 1
    widened = widens_pairs(target)
    quads, pairs = byte_products(target), dot2_lanes(target) > 0 or widened
    return Forms(
        fast_integers=target.opt_level >= TILED
        and (pairs or quads is not None or not target.computes_floats),
        quads=quads,
        narrows=nearest_lanes(target) > 0 and (target.rounds_to_integers or has_feature(target, "sse4.1")),
        filtered=filtered,
        exact_tiles=exact_tiles if every and pairs and vectors and target.optimize != "size" else None,
        pairs_rate=1.0 if widened else PAIRS_RATE,
        shuffles=vectors,
        copies_padding=larger and vectors,
        level=target.opt_level,
    )
