"""Square tiles of a Winograd convolution: where they lie, and in what order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.winograd_integers import (
    INPUTS,
    IntegerOutputs,
    transformed_integers,
)
from edgepack.compiler.kernels.cpu.conv.winograd_transforms import (
    Transform,
    ordered,
    tile_side,
    transformed,
)
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import div, index, mod
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel

__all__ = ["Winograd2D"]


@dataclass(frozen=True)
class Winograd2D:
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
    def channels(self) -> int:
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

    @property
    def inputs(self) -> type[Transform]:
        """Transforms vectors of the input."""
        return INPUTS[self.conv.types.left] if self.integers else Transform

    @property
    def outputs(self) -> type[Transform]:
        """Transforms vectors of products."""
        return IntegerOutputs if self.integers else Transform

    @property
    def integers(self) -> bool:
        """Whether it is one of integers, whose channels in ``conv`` are the micro-kernel's units."""
        return self.conv.dtype == "int32"

    def pack(self, weights: Array, columns: tuple[int, int], micro: MicroKernel) -> Array:
        """HWIO (r, r, IC, OC) to U in the micro-kernel's units, see :func:`ordered`."""
        if self.integers:
            (u,) = micro.pack_units(transformed_integers(weights, self.m)[None])
        else:
            u = transformed(weights, self.m).reshape(self.positions, *weights.shape[2:])
        return ordered(u, columns, self.zeros, self.conv.groups)

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
        deep = (
            self.volume is not None
            and self.volume.depth_window is not None
            and self.volume.depth_window.padded
        )
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
    def run_length(self) -> int:
        """0: the input tiles of all tiles are equally far from each other."""
        return 0

    @property
    def input_tiles(self) -> int:
        """Input tiles of all tiles: each reads one."""
        return self.count

    @property
    def input_stride(self) -> int:
        """Input tiles from that of one tile to that of the next."""
        return 1

    @property
    def taps(self) -> tuple[tuple[int, int], ...]:
        """Empty: one filter is the whole window."""
        return ()

    @property
    def more_input_tiles(self) -> int:
        """Input tiles that only later filters read: none."""
        return 0

    def input_tile(self, tile: Any) -> Any:
        """The input tile of a tile: that of its number."""
        return tile

    def most_input_tiles(self, tiles: int) -> int:
        """Input tiles of a run of ``tiles``."""
        return tiles

    def by_need(self) -> Winograd2D:
        """The same, sorted where there is one image."""
        return replace(self, sorted=self.conv.batch == 1)

    def tiles_at(self, last_row: bool, last_column: bool) -> tuple[int, int]:
        """(first, end) of the tiles that need a position, given whether it is in the last row or column."""
        below, inside = self._sorted()
        without_row, without_column = last_row and self.cut_rows, last_column and self.cut_columns
        if without_column:
            return (below if without_row else 0), below + inside
        return (below, self.count - self.cut_columns) if without_row else (0, self.count)

    def _sorted(self) -> tuple[int, int]:
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
        below, inside = self._sorted()
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
