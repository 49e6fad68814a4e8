"""The products of a Winograd convolution: V times U at each position of a tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.conv.weight_panels import TileColumns
from edgepack.compiler.kernels.cpu.conv.winograd_panels import RowPanels
from edgepack.compiler.kernels.cpu.conv.winograd_tiling import CutTiling
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import balanced_split, div, index, mod
from edgepack.compiler.kernels.cpu.emit.register_tile import (
    Accumulators,
    Matrix,
    Steps,
    column_chunks,
    stream_prefetch,
)
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel

__all__ = ["ColumnBlock", "PositionProducts", "ProductBuffers", "Span"]


@dataclass(frozen=True)
class ProductBuffers:
    """The buffers of the kernel.

    Attributes:
        v: transformed input, [positions][v_tiles][IC].
        u: transformed weights, [block of columns][positions][filters * IC][columns], or
            [group][positions][panel][filters * IC][columns of the panel].
        m: products, [positions][m_tiles][columns of a block].
        prefetched: constants of a later call, or None.
    """

    v: Any
    v_tiles: int
    u: Any
    m: Any
    m_tiles: int
    prefetched: Any


@dataclass(frozen=True)
class Span:
    """The panels [begin, end), the input tile that V has first, and the tile that M has."""

    begin: Any
    end: Any
    v_first: Any
    m_first: Any


@dataclass(frozen=True)
class ColumnBlock:
    """``width`` output channels from ``column`` on.

    Attributes:
        group: of the convolution, and ``number`` which of all blocks.
        source: where V of its group begins.
    """

    column: Any
    width: int
    group: Any
    number: Any
    source: Any


@dataclass(frozen=True)
class _Panel:
    """A panel at a position.

    Attributes:
        position: which, and ``weights`` where its weights begin, or those of the block where they are panels.
        first: its first tile, and ``size`` how many it has.
        number: among the panels that are multiplied before the next weights, of which there are ``share``.
        turn: its number among all panels.
    """

    position: Any
    weights: Any
    first: Any
    size: int
    number: Any
    share: int
    turn: Any


class PositionProducts:
    """Emits M[k] = V[k] U[k] for each of the positions k, summed over the filters.

    Args:
        micro: multiplies units of V and U.
        prefetch_bytes: bytes of a later call's constants, of which each panel fetches its share.
    """

    def __init__(
        self,
        e: Emitter,
        micro: MicroKernel,
        panels: RowPanels,
        buffers: ProductBuffers,
        prefetch_bytes: int,
    ) -> None:
        self.e, self.micro, self.panels, self.buffers = e, micro, panels, buffers
        self.prefetch_bytes = prefetch_bytes
        # LLVM mixes two steps, for which few registers do not suffice; and where loads have no displacement,
        # it gives each vector of weights a pointer.
        target = panels.target
        alone = target.few_registers or not target.loads_have_displacement
        self.run = panels.tiling.channels
        self.unroll = 1 if alone else 2 - self.run % 2

    def multiply(self, block: ColumnBlock, span: Span) -> None:
        """The products of the panels of ``span`` with a block of output channels."""
        e, panels = self.e, self.panels
        if g := panels.cut:
            self._positions(g, lambda k, row, column: self._needed(block, span, k, g.tiles_at(row, column)))
        else:
            e.loop(0, panels.positions, lambda k: self._position(block, span, k))

    def _weights(self, block: ColumnBlock, position: Any) -> Any:
        panels = self.panels
        if panels.weight_columns:
            inside = block.column - block.group * panels.group_out
            stripe = block.group * panels.group_out + div(inside, panels.stripe) * panels.stripe
            start = stripe * (panels.positions * panels.depth) + mod(inside, panels.stripe) * panels.depth
            return self.e.let(start + position * self._apart(block))
        start = block.column * (panels.positions * panels.depth)
        return self.e.let(start + position * (panels.depth * block.width))

    def _apart(self, block: ColumnBlock) -> Any:
        """Elements from the weights of a block at a position, in panels, to those at the next: a stripe's."""
        panels = self.panels
        whole, rest = divmod(panels.group_out, panels.stripe)
        size, last = panels.stripe * panels.depth, rest * panels.depth
        if not rest or not whole:
            return last or size
        inside = block.column - block.group * panels.group_out
        return tirx.Select(inside < whole * panels.stripe, index(size), index(last))

    def _position(self, block: ColumnBlock, span: Span, position: Any) -> None:
        """All panels of ``span`` at one position."""
        e, panels = self.e, self.panels
        weights = self._weights(block, position)
        share = -(-self.buffers.m_tiles // panels.largest)
        for columns in panels.weights(block.width).tiles:
            done = 0
            for size, count in panels.sizes:
                low = e.let(tirx.max(span.begin, index(done)))
                high = e.let(tirx.max(low, tirx.min(span.end, index(done + count))))

                def one(p: Any, size: int = size, columns: TileColumns = columns) -> None:
                    first = e.let(panels.first_tile(p))
                    panel = _Panel(position, weights, first, size, e.let(p - span.begin), share, p)
                    self._panel(block, span, panel, columns)

                e.loop(low, high, one)
                done += count

    def _needed(self, block: ColumnBlock, span: Span, position: Any, tiles: tuple[int, int]) -> None:
        """The tiles [first, end) that need a position."""
        e, panels = self.e, self.panels
        weights = self._weights(block, position)
        first, end = tiles
        sizes = balanced_split(end - first, panels.tile.rows) if first < end else []
        share = sum(count for _, count in sizes)
        for columns in panels.weights(block.width).tiles:
            at, done = first, 0
            for size, count in sizes:

                def one(
                    p: Any, size: int = size, at: int = at, done: int = done, columns: TileColumns = columns
                ) -> None:
                    number = e.let(p + done)
                    start = e.let(p * size + at)
                    panel = _Panel(position, weights, start, size, number, share, number)
                    self._panel(block, span, panel, columns)

                e.loop(0, count, one)
                at, done = at + size * count, done + count

    def _positions(self, g: CutTiling, body: Callable[[Any, bool, bool], None]) -> None:
        """``body(position, in the last row, in the last column)`` in order, apart where tiles are cut."""
        e, a = self.e, g.a

        def row(i: Any, last: bool) -> None:
            each = a - 1 if g.cut_columns else a
            e.loop(0, each, lambda j: body(e.let(i * a + j), last, False))
            if each < a:
                body(e.let(i * a + (a - 1)), last, True)

        rows = a - 1 if g.cut_rows else a
        e.loop(0, rows, lambda i: row(i, False))
        if rows < a:
            row(index(a - 1), True)

    # One panel --------------------------------------------------------------------------------------------

    def _panel(self, block: ColumnBlock, span: Span, panel: _Panel, columns: TileColumns) -> None:
        """Multiplies one panel by some columns of a block at one position, and writes its products."""
        e, buffers, tiling = self.e, self.buffers, self.panels.tiling
        # Not rebased: LLVM is told that buffers do not overlap, and these are written and read.
        first = tiling.input_tile(panel.first)
        source = (panel.position * buffers.v_tiles + first - span.v_first) * self.run
        source = e.let(source + block.source)
        row = self.panels.columns
        target = e.let((panel.position * buffers.m_tiles + panel.first - span.m_first) * row)
        sums = Accumulators(e, panel.size, column_chunks(columns.width, e.lanes))
        sums.clear()
        self._tile(sums, block, panel, columns, source)
        for r in range(panel.size):
            for column, lanes in sums.chunks:
                place = target + (r * row + column + columns.first)
                e.vstore(buffers.m, place, sums.get(r, column, lanes), lanes)

    def _prefetches(
        self, block: ColumnBlock, panel: _Panel, columns: TileColumns, source: Any
    ) -> list[Callable[[Any], None]]:
        """What a tile of a panel fetches, given a step of its reduction."""
        found = []
        streams = self.panels.weight_bytes > self.panels.target.l1d_bytes
        if streams and self.panels.weight_columns:
            found += self._next_of_panels(block, panel, columns)
        elif streams:
            found.append(self._next_weights(block.width, panel))
        if streams and columns.ends:
            found.append(self._next_rows(panel, source))
        if self.prefetch_bytes and columns.begins:
            turn = (block.number * self.panels.positions + panel.position) * self.panels.count + panel.turn
            found.append(self._later_constants(turn))
        return found

    def _tile(
        self, sums: Accumulators, block: ColumnBlock, panel: _Panel, columns: TileColumns, source: Any
    ) -> None:
        """Adds the products of a panel with some columns of a block at one position."""
        e, buffers, run, tiling = self.e, self.buffers, self.run, self.panels.tiling
        prefetches = self._prefetches(block, panel, columns, source)

        def part(number: Any, behind: Any) -> None:
            """The products of one filter, whose inputs are so many input tiles behind the first one's."""

            def prefetch(step: Any) -> None:
                for one in prefetches:
                    one(number * run + step if tiling.taps else step)

            start = e.let(source + behind * run) if tiling.taps else source
            self.micro.add_product(
                e,
                sums,
                lambda r, d: e.load(buffers.v, start + d + r * (tiling.input_stride * run)),
                self._weights_of(sums, block, panel, columns, number),
                Steps(run, self.unroll, prefetch=prefetch),
            )

        def parts(left: Sequence[tuple[int, int]], number: Any, behind: Any) -> None:
            if not left:
                part(number, behind)
                return
            (count, apart), *rest = left
            e.loop(0, count, lambda i: parts(rest, e.let(number * count + i), e.let(behind + i * apart)))

        parts(tiling.taps, index(0), index(0))

    def _weights_of(
        self, sums: Accumulators, block: ColumnBlock, panel: _Panel, columns: TileColumns, number: Any
    ) -> Matrix:
        """The weights of filter ``number`` for some columns of a block at the panel's position."""
        e, run, u = self.e, self.run, self.buffers.u
        if self.panels.weight_columns:
            weights = self.panels.weights(block.width)
            return weights.matrix(e, (u, panel.weights), (number, run), columns.first, sums.chunks)
        if not self.panels.tiling.taps:
            return Matrix(u, panel.weights, block.width)
        return Matrix(u, e.let(panel.weights + number * (run * block.width)), block.width)

    def _next_weights(self, width: int, panel: _Panel) -> Callable[[Any], None]:
        """The panel's share of the weights of the next position.

        In a few streams, each a part of those weights that is walked through in order, over all panels:
        memory is read 1.4 times as fast as in one stream, and twice as fast as without prefetching.
        """
        e, depth, unroll = self.e, self.panels.depth, self.unroll
        iterations = depth // unroll
        lines = -(-depth * width // e.line)
        streams = -(-lines // (panel.share * iterations))
        part = -(-lines // streams)
        start = e.let(panel.weights + depth * width + panel.number * (iterations * e.line))

        def prefetch(step: Any) -> None:
            for s in range(streams):
                e.prefetch(self.buffers.u, start + div(step, unroll) * e.line + s * (part * e.line))

        return prefetch

    def _next_of_panels(
        self, block: ColumnBlock, panel: _Panel, columns: TileColumns
    ) -> list[Callable[[Any], None]]:
        """The same of weights in panels, whose steps are a cache line: those that some columns read.

        A row panel fetches runs of as many lines as the product has iterations.
        """
        e, depth, unroll, width = self.e, self.panels.depth, self.unroll, self.panels.weight_columns
        if columns.first % width:
            return []
        iterations, first = depth // unroll, columns.first * depth
        runs = -(-columns.width // width) * unroll
        streams = -(-runs // panel.share)
        each = -(-runs // streams)
        length, where = iterations * e.line, e.let(panel.weights + first)
        if self.panels.columns == self.panels.stripe:
            # Those of the block's next columns follow, then those of the next position.
            start = e.let(where + (panel.number + runs) * length)
            starts = [start + s * (each * length) for s in range(streams)]
        else:
            apart = e.let(self._apart(block))
            numbers = [e.let(panel.number + s * each) for s in range(streams)]
            starts = [
                e.let(where + (div(run, runs) + 1) * apart + mod(run, runs) * length) for run in numbers
            ]

        def prefetch(step: Any) -> None:
            line = div(step, unroll) * e.line
            for start in starts:
                e.prefetch(self.buffers.u, start + line)

        return [prefetch]

    def _next_rows(self, panel: _Panel, source: Any) -> Callable[[Any], None]:
        """What follows the panel's rows in V: those of the next panel, or of the next position."""
        e, depth = self.e, self.panels.depth
        elements = panel.size * self.run
        start, lines = e.let(source + elements), -(-elements // e.line)
        return stream_prefetch(e, self.buffers.v, start, lines, depth, self.unroll)

    def _later_constants(self, turn: Any) -> Callable[[Any], None]:
        """The share of product number ``turn`` of all in what a later call needs."""
        e, panels = self.e, self.panels
        products = panels.column_blocks * panels.positions * panels.count
        share = -(-self.prefetch_bytes // (panels.tiling.conv.element_bytes * e.line * products))
        start = e.let(turn * (share * e.line))
        later = self.buffers.prefetched
        return stream_prefetch(e, later, start, share, panels.depth, self.unroll, locality=1)
