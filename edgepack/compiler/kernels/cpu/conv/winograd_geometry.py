"""Which tiles the output of a Winograd convolution has, and how they are shared out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import tirx

from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.winograd_line_tiles import Lines
from edgepack.compiler.kernels.cpu.conv.winograd_transforms import tile_side, transform_weights
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter, balanced_split, div, index, mod
from edgepack.compiler.kernels.cpu.emit.register_tile import Tile
from edgepack.plan.target import CpuTarget

__all__ = ["Geometry", "Panels", "panels_of", "split_into_panels"]


@dataclass(frozen=True)
class Geometry:
    """Tiles of a convolution.

    Tiles that reach beyond the image need no product at the last row or column of positions: that goes only
    into the output's last row or column. ``sorted``, for one image, brings the tiles that need the same
    positions together: those of a cut last row, those that lie inside, those of a cut last column.

    Where windows have a depth, ``volume`` is the convolution, and ``conv`` that of images which have the
    channels of all planes of a window.
    """

    conv: Conv2d
    m: int
    sorted: bool = False
    volume: Conv2d | None = None

    #: A window is read once, by one filter, and tiles are as V has them; see :class:`Lines`.
    parts: ClassVar[tuple[tuple[int, int], ...]] = ()
    more_slots: ClassVar[int] = 0
    segment: ClassVar[int] = 0
    step: ClassVar[int] = 1

    @property
    def rule(self) -> str:
        return f"conv2d.winograd{self.m}"

    @property
    def image(self) -> Conv2d:
        """The convolution of images as they lie in memory."""
        return self.volume or self.conv

    @property
    def image_channels(self) -> int:
        """Channels of an image in memory."""
        return self.image.in_channels

    @property
    def row(self) -> int:
        """Elements of V of a tile at a position: channels of a group."""
        return self.conv.group_in

    @property
    def positions(self) -> int:
        """Products of each pair of an input and an output channel: a * a."""
        return self.a**2

    @property
    def depth(self) -> int:
        """Length of the reduction: input channels of a group."""
        return self.conv.group_in

    @property
    def key(self) -> str:
        """Names the order of the weights."""
        return f"winograd{self.m}"

    def pack(self, weights: Array, columns: int) -> Array:
        """HWIO to U, see :func:`transform_weights`."""
        return transform_weights(weights, self.m, columns, self.zeros, self.conv.groups)

    @property
    def a(self) -> int:
        """Side of an input tile."""
        return tile_side(self.m)

    @property
    def rows(self) -> int:
        return -(-self.conv.out_height // self.m)

    @property
    def columns(self) -> int:
        return -(-self.conv.out_width // self.m)

    @property
    def count(self) -> int:
        """Tiles of all images."""
        return self.conv.batch * self.rows * self.columns

    @property
    def zeros(self) -> int:
        """Zeros behind the weights: a row of a tile, if any lies in the padding."""
        rows = self.rows * self.m + self.a - self.m
        deep = self.volume is not None and self.volume.planes is not None and self.volume.planes.padded
        whole = self.conv.pad_top == 0 and rows <= self.conv.height and not deep
        return 0 if whole else self.a * self.conv.in_channels

    @property
    def cut_rows(self) -> bool:
        """Whether tiles are sorted because the last row of them reaches beyond the image."""
        return self.sorted and self.conv.out_height % self.m != 0

    @property
    def cut_columns(self) -> bool:
        """Whether tiles are sorted because the last column of them reaches beyond the image."""
        return self.sorted and self.conv.out_width % self.m != 0

    @property
    def slots(self) -> int:
        """Tiles that V has."""
        return self.count

    def slot(self, tile: Any) -> Any:
        """Where V has a tile."""
        return tile

    def most_slots(self, tiles: int) -> int:
        """Slots of a run of ``tiles``."""
        return tiles

    def tiles_at(self, last_row: bool, last_column: bool) -> tuple[int, int]:
        """(first, end) of the tiles that need a position, given whether it is in the last row or column."""
        below, inside = self._parts()
        without_row, without_column = last_row and self.cut_rows, last_column and self.cut_columns
        if without_column:
            return (below if without_row else 0), below + inside
        return (below, self.count - self.cut_columns) if without_row else (0, self.count)

    def _parts(self) -> tuple[int, int]:
        """Sorted tiles of the last row, if it is cut, and of the inside; the cut last column follows."""
        columns = self.columns - self.cut_columns
        return (columns if self.cut_rows else 0), (self.rows - self.cut_rows) * columns

    def position(self, e: Emitter, tile: Any) -> tuple[Any, Any, Any]:
        """(image, row, column) of a tile."""
        if self.sorted:
            return self._sorted_position(e, tile)
        area = self.rows * self.columns
        image = e.let(div(tile, area)) if self.conv.batch > 1 else index(0)
        rest = e.let(mod(tile, area)) if self.conv.batch > 1 else tile
        return image, e.let(div(rest, self.columns)), e.let(mod(rest, self.columns))

    def _sorted_position(self, e: Emitter, tile: Any) -> tuple[Any, Any, Any]:
        below, inside = self._parts()
        columns = max(1, self.columns - self.cut_columns)
        at = e.let(tile - below)
        row, column = div(at, columns), mod(at, columns)
        if self.cut_columns:
            last = at >= inside
            row, column = tirx.Select(last, at - inside, row), tirx.Select(last, self.columns - 1, column)
        if self.cut_rows:
            first = tile < below
            row, column = tirx.Select(first, self.rows - 1, row), tirx.Select(first, tile, column)
        return index(0), e.let(row), e.let(column)


@dataclass(frozen=True)
class Panels:
    """The tiles of a convolution as rows of products: as many as a register tile holds are a panel.

    Attributes:
        sizes: (tiles, number of panels), the larger panels first.
        whole: whether a task multiplies all panels: then they are cut anew at each position, without the
            tiles that need no product there.
    """

    geometry: Geometry | Lines
    tile: Tile
    target: CpuTarget
    sizes: tuple[tuple[int, int], ...]
    whole: bool = False

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
        return self.geometry.positions

    @property
    def depth(self) -> int:
        """Length of the reduction."""
        return self.geometry.depth

    @property
    def group_blocks(self) -> int:
        """Blocks of output channels of a group."""
        return -(-self.geometry.conv.group_out // self.tile.columns)

    @property
    def column_blocks(self) -> int:
        """Blocks of output channels."""
        return self.geometry.conv.groups * self.group_blocks

    @property
    def weight_elements(self) -> int:
        """Elements of the transformed weights."""
        return self.positions * self.depth * self.geometry.conv.out_channels

    @property
    def weight_bytes(self) -> int:
        return self.weight_elements * self.geometry.conv.element_bytes

    def first_tile(self, panel: Any) -> Any:
        """The first tile of a panel. The last ones of segments may share tiles with those before them."""
        size, large = self.sizes[-1][0], self.sizes[0][1]
        if segment := self.geometry.segment:
            each = -(-segment // size)
            return div(panel, each) * segment + tirx.min(mod(panel, each) * size, index(segment - size))
        if len(self.sizes) == 1:
            return panel * size
        return panel * size + tirx.min(panel, index(large))


def panels_of(
    geometry: Geometry | Lines, rows: int, threads: int, *, even: bool = True
) -> tuple[tuple[int, int], ...]:
    """Panels of at most ``rows`` tiles: of one size in segments, else as :func:`split_into_panels` says.

    Args:
        even: as many as threads share evenly, if that is cheap.

    Returns:
        ((size, count), ...).
    """
    if segment := geometry.segment:
        each = -(-segment // rows)
        return ((-(-segment // each), geometry.count // segment * each),)
    split = split_into_panels(geometry.count, rows, threads) if even else balanced_split(geometry.count, rows)
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
