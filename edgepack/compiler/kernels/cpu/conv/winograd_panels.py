"""Row panels: the tiles of a Winograd convolution as rows of products, as many as a register tile holds at a
time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.conv.weight_panels import WeightPanels, block_columns, stripe_columns
from edgepack.compiler.kernels.cpu.conv.winograd_tiling import CutTiling, Tiling
from edgepack.compiler.kernels.cpu.emit.indices import balanced_split, div, index, mod
from edgepack.compiler.kernels.cpu.emit.register_tile import Tile
from edgepack.plan.target import CpuTarget

__all__ = ["RowPanels", "panels_of", "split_into_panels"]


#: Part of the L2 cache, one in so many bytes, that products with a stripe of weights may fill; from how many
#: stripes for each thread on one is a task.
PRODUCTS_PART, STRIPES_PER_THREAD = 4, 2


@dataclass(frozen=True)
class RowPanels:
    """The tiles of a convolution as rows of products: as many as a register tile holds are a panel.

    Attributes:
        tile: the register tile.
        sizes: (tiles, number of panels), the larger panels first.
        cut: the tiles, where a task multiplies all panels: then panels are cut anew at each position, without
            the tiles that need no product there.
        split: whether the form is "split".
    """

    tiling: Tiling
    tile: Tile
    target: CpuTarget
    sizes: tuple[tuple[int, int], ...]
    cut: CutTiling | None = None
    split: bool = False

    @property
    def count(self) -> int:
        """Panels of all images."""
        return sum(count for _, count in self.sizes)

    @property
    def largest(self) -> int:
        """Tiles of the largest panel."""
        return self.sizes[0][0]

    @property
    def positions(self) -> int:
        """Products of each pair of an input and an output channel."""
        return self.tiling.positions

    @property
    def depth(self) -> int:
        """Length of the reduction."""
        return self.tiling.depth

    @property
    def columns(self) -> int:
        """Output channels of a block: those of a register tile, see also :func:`block_columns`.

        Where weights are panels and the products of all tiles with a stripe fit the cache, a stripe: then
        each task of the split form reads its weights in the order in which they lie in memory.
        """
        block = block_columns(self.tile.columns, self.group_out, self.weight_columns)
        if not self.weight_columns:
            return block
        products = self.positions * self.tiling.count * self.stripe * self.tiling.conv.element_bytes
        fits = products <= self.target.l2_bytes // PRODUCTS_PART
        tasks = self.group_out // self.stripe >= STRIPES_PER_THREAD * self.target.threads
        whole = self.stripe % block or (self.split and fits and tasks)
        return min(self.stripe, self.group_out) if whole else block

    @property
    def weight_columns(self) -> int:
        """Columns of the panels of the weights; 0 where each block has its own."""
        return self.target.panel_columns if self.tiling.conv.dtype in {"float32", "int32"} else 0

    @property
    def stripe(self) -> int:
        """Output channels whose weights at a position lie behind each other."""
        return (
            stripe_columns(self.group_out, self.weight_columns) if self.weight_columns else self.tile.columns
        )

    def weights(self, columns: int) -> WeightPanels:
        """How the weights of a block of so many output channels are read at a position."""
        return WeightPanels(self.depth, columns, min(self.tile.columns, self.columns), self.weight_columns)

    @property
    def group_blocks(self) -> int:
        """Blocks of output channels of a group."""
        return -(-self.group_out // self.columns)

    @property
    def column_blocks(self) -> int:
        """Blocks of output channels."""
        return self.tiling.conv.groups * self.group_blocks

    @property
    def group_out(self) -> int:
        """Output channels of a group."""
        return self.tiling.conv.group_out

    @property
    def weight_elements(self) -> int:
        """Elements of the transformed weights."""
        return self.positions * self.depth * self.tiling.conv.out_channels

    @property
    def weight_bytes(self) -> int:
        return self.weight_elements * self.tiling.conv.element_bytes

    def first_tile(self, panel: Any) -> Any:
        """The first tile of a panel. The last ones of runs may share tiles with those before them."""
        size, large = self.sizes[-1][0], self.sizes[0][1]
        if run := self.tiling.run_length:
            each = -(-run // size)
            return div(panel, each) * run + tirx.min(mod(panel, each) * size, index(run - size))
        if len(self.sizes) == 1:
            return panel * size
        return panel * size + tirx.min(panel, index(large))


def panels_of(tiling: Tiling, rows: int, threads: int, *, even: bool = True) -> tuple[tuple[int, int], ...]:
    """Panels of at most ``rows`` tiles: of one size in runs, else as :func:`split_into_panels` says.

    Args:
        even: as many as threads share evenly, if that is cheap.

    Returns:
        ((size, count), ...).
    """
    if run := tiling.run_length:
        each = -(-run // rows)
        return ((-(-run // each), tiling.count // run * each),)
    split = split_into_panels(tiling.count, rows, threads) if even else balanced_split(tiling.count, rows)
    return tuple(split)


def split_into_panels(count: int, rows: int, threads: int) -> list[tuple[int, int]]:
    """Divides tiles into panels of two neighbouring sizes; as many as threads share evenly, if that is cheap.

    Returns:
        [(size, count), ...] as :func:`balanced_split`.
    """
    least = -(-count // rows)
    even = -(-least // threads) * threads
    if even <= count and even * rows * 4 <= count * 5:
        small, large = divmod(count, even)
        return [(s, n) for s, n in ((small + 1, large), (small, even - large)) if n]
    return balanced_split(count, rows)
