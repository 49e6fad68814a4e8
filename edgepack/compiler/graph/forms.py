"""The forms that a graph may have on a target that is fast with them."""

from __future__ import annotations

from dataclasses import dataclass

from edgepack.compiler.graph.dilated import FilteredTiles
from edgepack.compiler.graph.filtered_integers import ExactTiles
from edgepack.compiler.graph.quantised_values import ByteProducts
from edgepack.plan.opt_level import ALL, OptLevel

__all__ = ["Forms"]


@dataclass(frozen=True)
class Forms:
    """What a graph may become on a target that is fast with it.

    Attributes:
        fast_integers: the target multiplies integers faster than float32: products of dequantised tensors are
            those of their integers.
        quads: how it multiplies bytes, if it does.
        narrows: it rounds vectors of float32 to integers by one instruction, and narrows integers with
            saturation.
        filtered: the tiles by which convolutions by 3x3 have Winograd's form, whose weights take more memory:
            dilated ones are taken apart for it; None where they may not have it.
        pairs_rate: multiply-adds of int16 in the time of one of float32.
        exact_tiles: the tiles by which convolutions of integers by 3x3 have Winograd's form, given their
            bounds; None where they may not have it.
        copies_padding: small images of bytes are copied with their padding before a window slides over them.
        level: of optimisation: groups of passes of higher ones are left out.
        shuffles: elements at steps along a row are loads and shuffles: small windows are pooled as slices
            where an image is channels first.
    """

    fast_integers: bool = False
    quads: ByteProducts | None = None
    narrows: bool = False
    filtered: FilteredTiles | None = None
    exact_tiles: ExactTiles | None = None
    pairs_rate: float = 1.0
    shuffles: bool = False
    copies_padding: bool = False
    level: OptLevel = ALL

    @property
    def words(self) -> bool:
        """Whether bytes are multiplied in words of general registers, by CPUs that are short of memory."""
        return self.quads is not None and not self.quads.whole
