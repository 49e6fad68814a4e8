"""What a Winograd convolution asks of its tiles, whether they are squares or parts of lines.

Three kinds of tiles: *tiles* are m (x m) outputs; each reads one *input tile* in two dimensions, or several
in one dimension, where a window has several filters, and V has each once; a row panel
(``winograd_panels.py``) is some tiles.
"""

from __future__ import annotations

from typing import Any, Protocol

from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel

__all__ = ["CutTiling", "Tiling"]


class Tiling(Protocol):
    """The tiles of a convolution of stride 1 along the sides that are filtered."""

    @property
    def conv(self) -> Conv2d:
        """The convolution that is filtered: of images that have the channels of all planes of a window."""

    @property
    def image(self) -> Conv2d:
        """The convolution of images as they lie in memory."""

    @property
    def image_channels(self) -> int:
        """Channels of an image in memory."""

    @property
    def rule(self) -> str:
        """The name of the rule, for reports and symbols."""

    # Products -----------------------------------------------------------------------------------------------

    @property
    def positions(self) -> int:
        """Products of each pair of an input and an output channel."""

    @property
    def channels(self) -> int:
        """Elements of V of an input tile at a position: channels of a group."""

    @property
    def depth(self) -> int:
        """Length of the reduction: input channels of a group, of all filters."""

    @property
    def count(self) -> int:
        """Tiles of the output."""

    @property
    def run_length(self) -> int:
        """Tiles side by side whose input tiles are equally far from each other; 0 where those of all are."""

    # Input tiles --------------------------------------------------------------------------------------------

    @property
    def input_tiles(self) -> int:
        """Input tiles of all tiles."""

    @property
    def input_stride(self) -> int:
        """Input tiles from that of one tile to that of the next."""

    @property
    def taps(self) -> tuple[tuple[int, int], ...]:
        """The filters of a window, which read different input tiles: (number, input tiles from one to the
        next), of the rows of the window, then of the filters of a row; empty where one filter is the whole
        window."""

    @property
    def more_input_tiles(self) -> int:
        """Input tiles behind those of a run of tiles that its last filter reads."""

    def input_tile(self, tile: Any) -> Any:
        """The first input tile that a tile reads."""

    def most_input_tiles(self, tiles: int) -> int:
        """Input tiles, at most, that a run of so many tiles reads."""

    # Weights ------------------------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """Names the order of the weights."""

    @property
    def zeros(self) -> int:
        """Zeros behind the weights, which stand for what lies in the padding."""

    def pack(self, weights: Array, columns: tuple[int, int], micro: MicroKernel) -> Array:
        """HWIO to the transformed weights as a micro-kernel reads them, in stripes and panels of so many
        columns (:func:`ordered`), then the zeros."""

    def by_need(self) -> CutTiling | None:
        """The same tiles, numbered so that those follow each other that need the same positions; None where
        all need all."""


class CutTiling(Tiling, Protocol):
    """Tiles of a x a positions, of which those that reach beyond the image do not need the last row or
    column."""

    @property
    def a(self) -> int:
        """Side of the square of positions."""

    @property
    def cut_rows(self) -> bool:
        """Whether the last row of tiles reaches beyond the image."""

    @property
    def cut_columns(self) -> bool:
        """Whether the last column of tiles reaches beyond the image."""

    def tiles_at(self, last_row: bool, last_column: bool) -> tuple[int, int]:
        """(first, end) of the tiles that need a position, given whether it is in the last row or column."""
