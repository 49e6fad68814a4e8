"""Dilated convolutions by 3x3 as plain ones of the image's phases.

The taps of a convolution with dilation d read pixels that are d apart: the outputs at positions p, p + d,
p + 2 d, ... see only the inputs there, as a plain convolution over that part of the image does. The d * d
phases are a batch of smaller images ("space to batch"), and a plain convolution has Winograd's form: 2.3 to
2.6 times as fast, both copies counted (notes/2026-11-22-networks-that-nobody-chose.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tvm import relax

from edgepack.compiler.graph.rewrite import Array, Rewriter, constant
from edgepack.compiler.graph.taps import Axis

__all__ = ["FilteredTiles", "by_phases"]

#: Channels at least, and the part of the products that is left at most.
LEAST_CHANNELS, MOST_LEFT = 32, 0.6


@dataclass(frozen=True)
class FilteredTiles:
    """The square tiles by which a target convolves a plain image by 3x3, in Winograd's form.

    Attributes:
        side: outputs of a tile along each side.
        products: multiplications that a tile takes for each pair of channels, instead of 9 for each output.
    """

    side: int
    products: int


def by_phases(
    rewriter: Rewriter,
    data: relax.Expr,
    weights: Array,
    axes: Sequence[Axis],
    shape: Sequence[int],
    tiles: FilteredTiles,
) -> relax.Expr | None:
    """A convolution of the phases of an image; None where that has no form, or saves too little.

    Args:
        data: (N, H, W, C), float32, of this ``shape``.
        weights: (H, W, I, O), of one group.
        tiles: by which the target would convolve the phases.
    """
    if len(axes) != 2 or axes[0].dilation != axes[1].dilation or min(weights.shape[2:]) < LEAST_CHANNELS:
        return None
    d = axes[0].dilation
    same = all((a.taps, a.stride, a.before, a.after) == (3, 1, d, d) for a in axes)
    if d == 1 or not same or _products_left(axes, tiles) > MOST_LEFT:
        return None
    batch, _, _, channels = shape
    height, width = (-(-axis.size // d) for axis in axes)
    behind = [height * d - axes[0].size, width * d - axes[1].size]
    if any(behind):
        data = rewriter.emit(relax.op.nn.pad(data, [0, 0, 0, behind[0], 0, behind[1], 0, 0]))
    data = rewriter.emit(relax.op.reshape(data, (batch, height, d, width, d, channels)))
    data = rewriter.emit(relax.op.permute_dims(data, [0, 2, 4, 1, 3, 5]))
    data = rewriter.emit(relax.op.reshape(data, (batch * d * d, height, width, channels)))
    data = rewriter.emit(
        relax.op.nn.conv2d(data, constant(weights), padding=1, data_layout="NHWC", kernel_layout="HWIO")
    )
    outputs = weights.shape[-1]
    data = rewriter.emit(relax.op.reshape(data, (batch, d, d, height, width, outputs)))
    data = rewriter.emit(relax.op.permute_dims(data, [0, 3, 1, 4, 2, 5]))
    data = rewriter.emit(relax.op.reshape(data, (batch, height * d, width * d, outputs)))
    if any(behind):
        data = rewriter.emit(relax.op.strided_slice(data, [1, 2], [0, 0], [axis.size for axis in axes]))
    return data


def _products_left(axes: Sequence[Axis], tiles: FilteredTiles) -> float:
    """Products of Winograd's form of the phases, of those whose taps read the image."""
    sides = [-(-axis.size // axis.dilation) for axis in axes]
    count = prod(axis.dilation * -(-side // tiles.side) for axis, side in zip(axes, sides, strict=True))
    inside = prod(sum(len(axis.inside(o)) for o in range(axis.outputs)) for axis in axes)
    return count * tiles.products / inside
