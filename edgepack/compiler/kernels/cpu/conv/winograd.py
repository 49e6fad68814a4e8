"""Convolution by Winograd's minimal filtering, F(m x m, r x r), NHWC.

Each m x m tile of the output is computed from an a x a tile of the input, a = m + r - 1, by a * a products
per pair of channels instead of r * r * m * m: of 3x3, 4 times fewer for m = 4, 2.25 times fewer for m = 2; of
4x4, 4 times fewer for m = 3. Input tiles are transformed (V = B^T d B), multiplied with the weights that were
transformed when packing (U = G g G^T, in float64) as a * a matrix products over the channels, and transformed
back (Y = A^T M A), where the epilogue is applied.

A stride of 2 becomes one of 1 over the phases of the input (kernels/phases.py): the 7x7 that many networks
begin with is 4x4 over them.

Tiles are the rows of the products; as many as a register tile holds are a panel.

Two forms. "fused": a task is one panel; a thread works on blocks of its panels, whose V and M stay in its L2
cache. It reads the weights once per block. "split": one kernel transforms all tiles into the arena, another
multiplies; its tasks are blocks of output channels, so the weights are read once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import gcd
from typing import Any

from tvm import tirx

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Array, Implementation, Operand, Packing, RuleError, Stage
from edgepack.compiler.kernels.cpu.analysis.fused_group import AnchoredGroup, anchored
from edgepack.compiler.kernels.cpu.conv.cost import winograd_tile, worth_fusing
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.space_to_depth import Phases
from edgepack.compiler.kernels.cpu.conv.winograd_tiles import Geometry, Image, Output
from edgepack.compiler.kernels.cpu.conv.winograd_transforms import transform_weights
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter, balanced_split, div, index, mod
from edgepack.compiler.kernels.cpu.emit.register_tile import (
    LINE,
    Tile,
    accumulate,
    column_chunks,
    stream_prefetch,
    tile_for,
)
from edgepack.compiler.kernels.rule import FLOAT32, Rule
from edgepack.plan.target import CpuTarget

__all__ = ["winograd"]

#: Panels of one block of the fused form.
BLOCK_PANELS = 6


def winograd(group: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Rules ``conv2d.winograd2``, ``conv2d.winograd3`` and ``conv2d.winograd4``."""
    found = anchored(group, ["conv2d"])
    conv = Conv2d.of(found)
    taps = conv.kernel[0]
    if conv.kernel != (taps, taps) or conv.dilation != (1, 1) or conv.groups != 1:
        raise RuleError("not a convolution by a square")
    if found.operand(1) not in constants:
        raise RuleError("the weights are not constant")
    phases = None
    if conv.strides == (1, 1):
        m = winograd_tile(conv, target)
    elif conv.strides == (2, 2) and not target.arch.startswith("arm"):  # 32-bit ARM spills, see the docs
        m = winograd_tile(Phases(conv, 1).conv, target, conv)
        phases = Phases(conv, m) if m else None
    else:
        raise RuleError("no form for these strides")
    if m == 0:
        raise RuleError("the direct convolution is estimated to be faster")
    geometry = Geometry(phases.conv if phases else conv, m)
    tile = tile_for(target, geometry.count, conv.out_channels)

    def pack(weights: Array) -> Array:
        taken = phases.weights(weights) if phases else weights
        return transform_weights(taken, m, tile.columns, geometry.zeros)

    key = f"winograd{m}:{'phases:' if phases else ''}{tile.columns}:{geometry.zeros}"
    packing = Packing(found.operand(1), key, pack)

    def made(ahead: int) -> Implementation:
        emitter = _Winograd(geometry, tile, found, target, phases, ahead)
        return replace(emitter.implementation(packing, conv.flops), with_prefetch=made)

    return made(0)


class _Winograd:
    """Emits the kernels. V is [a * a][slots][IC], M is [a * a][slots][columns of the tile]."""

    def __init__(
        self,
        geometry: Geometry,
        tile: Tile,
        group: AnchoredGroup,
        target: CpuTarget,
        phases: Phases | None,
        ahead: int,
    ) -> None:
        #: Bytes to fetch for a later kernel.
        self.ahead = ahead
        #: Takes the input apart first; what comes of it is the first temp.
        self.phases = phases
        self.input = Operand("temp", 0) if phases else Operand("param", group.operand(0))
        self.v = Operand("temp", 1 if phases else 0)
        self.g, self.tile, self.group, self.target = geometry, tile, group, target
        self.lanes = target.lanes("float32")
        #: Steps of the reduction per loop. LLVM mixes two, for which few registers do not suffice, and on
        #: RISC-V, which has no displacements, gives each vector of weights a pointer.
        alone = self._emitter().few_registers or target.arch.startswith("riscv")
        self.unroll = 1 if alone else 2 - geometry.conv.in_channels % 2
        self.a2, self.depth = geometry.a**2, geometry.conv.in_channels
        self.blocks = -(-geometry.conv.out_channels // tile.columns)
        self.panels = _panels(geometry.count, tile.rows, target.threads)
        self.panel_count = sum(n for _, n in self.panels)
        self.block_panels = self._block_panels()
        self.weight_bytes = self.a2 * self.depth * geometry.conv.out_channels * 4
        self.fused = worth_fusing(geometry, self.panel_count, self.block_panels, self.blocks, target)
        #: Of the split form, whether a task multiplies all tiles.
        self.whole = not self.fused and self._groups() == 1
        if self.whole:
            self.panels = balanced_split(geometry.count, tile.rows)
            self.panel_count = sum(n for _, n in self.panels)
            self.g = replace(geometry, sorted=geometry.conv.batch == 1)

    def _block_panels(self) -> int:
        """Panels of one block of the fused form: V and M fill at most half of the L2 cache."""
        panel = self.a2 * self.tile.rows * (self.depth + self.tile.columns) * 4
        fits = self.target.l2_bytes // 2 // panel
        return max(1, min(fits, BLOCK_PANELS, -(-self.panel_count // self.target.threads)))

    def _groups(self) -> int:
        """Parts of the panels that are tasks of their own in the split form, so that threads can share them.

        Each part reads the weights again.
        """
        threads = self.target.threads
        if self.blocks >= 4 * threads:
            return 1
        return min(threads // gcd(self.blocks, threads), self.panel_count)

    def implementation(self, packing: Packing, flops: int) -> Implementation:
        g, columns = self.g, self.tile.columns
        parameters = {"tile": f"{self.tile.rows}x{columns}", "form": "fused" if self.fused else "split"}
        if self.ahead:
            parameters["ahead"] = str(self.ahead)
        rule = f"conv2d.winograd{g.m}"
        multiply_adds = self.a2 * g.count * self.depth * g.conv.out_channels
        before: tuple[Stage, ...] = ()
        temps: tuple[int, ...] = ()
        if self.phases:
            source = Operand("param", self.group.operand(0))
            before, temps = (self.phases.stage(self.target, source, self.input),), (self.phases.nbytes,)
        if self.fused:
            # An odd number of slots spreads the places of a tile over the sets of the caches.
            slots = self.block_panels * self.panels[0][0] | 1
            scratch = (self.a2 * slots * self.depth * 4, self.a2 * slots * columns * 4)
            parameters["slots"] = str(slots)
            stages = (*before, self._fused(slots))
            return Implementation(
                rule,
                stages,
                (packing,),
                temps=temps,
                scratch=scratch,
                parameters=parameters,
                flops=flops,
                multiply_adds=multiply_adds,
                weights=self.weight_bytes,
            )
        groups = self._groups()
        slots = min(g.count, -(-self.panel_count // groups) * self.panels[0][0])
        parameters["parts"] = str(groups)
        return Implementation(
            rule,
            (*before, self._split_input(), self._split_product(groups, slots)),
            (packing,),
            temps=(
                *temps,
                self.a2 * g.count * self.depth * 4,
            ),
            scratch=(self.a2 * slots * columns * 4,),
            parameters=parameters,
            flops=flops,
            multiply_adds=multiply_adds,
            weights=self.weight_bytes,
        )

    # Pointers --------------------------------------------------------------------------------------------

    def _emitter(self) -> Emitter:
        return Emitter(self.lanes, self.target)

    def _input(self, e: Emitter) -> Any:
        conv = self.g.conv
        return e.pointer(conv.batch * conv.height * conv.width * conv.in_channels)

    def _weights(self, e: Emitter) -> Any:
        return e.pointer(self._zero_at + self.g.zeros)

    def _later(self, e: Emitter) -> tuple[Operand, ...]:
        """Declares the pointer to what a later kernel needs, if that is to be fetched."""
        if not self.ahead:
            return ()
        self.later = e.pointer(self.ahead // 4)
        return (Operand("prefetch", 0),)

    @property
    def _zero_at(self) -> int:
        return self.a2 * self.depth * self.g.conv.out_channels

    # The two forms ---------------------------------------------------------------------------------------

    def _fused(self, slots: int) -> Stage:
        e, g = self._emitter(), self.g
        x, u = self._input(e), self._weights(e)
        extra, operands = self.group.epilogue_pointers(e)
        y = e.pointer(self.group.output_elements)
        v = e.pointer(self.a2 * slots * self.depth)
        products = e.pointer(self.a2 * slots * self.tile.columns)
        later = self._later(e)
        image = Image(e, g, self.target, x, u, self._zero_at)
        output = Output(e, g, self.target, self.group, y, extra, self.tile.columns)
        lo, hi = e.task_range()
        count = e.let(hi - lo)
        blocks = e.let(div(count + (self.block_panels - 1), self.block_panels))
        size = e.let(tirx.truncdiv(count + blocks - 1, tirx.max(blocks, index(1))))

        def block(b: Any) -> None:
            begin = e.let(lo + b * size)
            end = e.let(tirx.min(begin + size, hi))
            first, last = e.let(self._first_tile(begin)), e.let(self._first_tile(end))
            e.loop(first, last, lambda t: image.read(v, t, e.let(t - first), slots))

            def columns(at: Any, width: int) -> None:
                self._multiply(e, v, u, products, at, width, slots, slots, (begin, end), first, first)
                e.loop(first, last, lambda t: output.write(products, at, width, t, e.let(t - first), slots))

            self._for_column_blocks(e, columns)

        e.loop(0, blocks, block)
        ends = (self.input, Operand("packed", 0))
        tail = (Operand("output", 0), Operand("scratch", 0), Operand("scratch", 1), *later)
        return Stage(e.finish(), self.panel_count, (*ends, *operands, *tail))

    def _for_column_blocks(self, e: Emitter, body: Callable[[Any, int], None]) -> None:
        """``body(first column, width)`` for each block of output channels."""
        width = self.tile.columns
        full, rest = divmod(self.g.conv.out_channels, width)
        e.loop(0, full, lambda b: body(e.let(b * width), width))
        if rest:
            body(index(full * width), rest)

    def _split_input(self) -> Stage:
        """Tasks: (tile, chunk of channels)."""
        e, g = self._emitter(), self.g
        vectors = max(1, self.depth // self.lanes)
        whole = self.depth % self.lanes == 0
        chunk = max(c for c in (8, 4, 2, 1) if vectors % c == 0) if whole else vectors
        chunks = vectors // chunk
        x, u = self._input(e), self._weights(e)
        v = e.pointer(self.a2 * g.count * self.depth)
        image = Image(e, g, self.target, x, u, self._zero_at)

        def task(t: Any) -> None:
            tile, part = e.let(div(t, chunks)), e.let(mod(t, chunks))
            channels = None if chunks == 1 else (e.let(part * (chunk * self.lanes)), chunk * self.lanes)
            image.read(v, tile, tile, g.count, channels)

        e.tasks(task)
        operands = (self.input, Operand("packed", 0), self.v)
        return Stage(e.finish(), g.count * chunks, operands)

    def _split_product(self, groups: int, slots: int) -> Stage:
        """Tasks: (block of output channels, part of the panels)."""
        e, g, width = self._emitter(), self.g, self.tile.columns
        v, u = e.pointer(self.a2 * g.count * self.depth), self._weights(e)
        extra, operands = self.group.epilogue_pointers(e)
        y = e.pointer(self.group.output_elements)
        products = e.pointer(self.a2 * slots * width)
        later = self._later(e)
        output = Output(e, g, self.target, self.group, y, extra, width)
        each = -(-self.panel_count // groups)

        def task(t: Any) -> None:
            at = e.let(div(t, groups) * width)
            begin = e.let(mod(t, groups) * each)
            end = e.let(tirx.min(begin + each, index(self.panel_count)))
            first, last = e.let(self._first_tile(begin)), e.let(self._first_tile(end))

            def columns(width: int) -> None:
                self._multiply(e, v, u, products, at, width, g.count, slots, (begin, end), index(0), first)
                e.loop(first, last, lambda t: output.write(products, at, width, t, e.let(t - first), slots))

            tail = g.conv.out_channels - (self.blocks - 1) * width
            if tail == width or self.blocks == 1:
                columns(tail)
            else:
                e.branch(at + width <= g.conv.out_channels, lambda: columns(width), lambda: columns(tail))

        e.tasks(task)
        ends = (self.v, Operand("packed", 0))
        tail = (Operand("output", 0), Operand("scratch", 0), *later)
        return Stage(e.finish(), self.blocks * groups, (*ends, *operands, *tail))

    # The product -----------------------------------------------------------------------------------------

    def _first_tile(self, panel: Any) -> Any:
        """The first tile of a panel."""
        size, large = self.panels[-1][0], self.panels[0][1]
        if len(self.panels) == 1:
            return panel * size
        return panel * size + tirx.min(panel, index(large))

    def _multiply(
        self,
        e: Emitter,
        v: Any,
        u: Any,
        products: Any,
        column: Any,
        width: int,
        v_slots: int,
        m_slots: int,
        panels: tuple[Any, Any],
        v_first: Any,
        m_first: Any,
    ) -> None:
        """M[k] = V[k] U[k] for each of the a * a positions k, of the tiles of ``panels``.

        Args:
            v_first, m_first: the tiles in the first slots of V and M.
        """
        depth = self.depth
        chunks = column_chunks(width, self.lanes)
        large = self.weight_bytes > self.target.l1d_bytes
        begin, end = panels
        block = e.let(div(column, self.tile.columns))

        def weights_at(k: Any) -> Any:
            return e.let(column * (self.a2 * depth) + k * (depth * width))

        def panel(k: Any, weights: Any, number: tuple[Any, Any], first: Any, size: int, share: int) -> None:
            # Not rebased: LLVM is told that buffers do not overlap, and these are written and read.
            source = e.let((k * v_slots + first - v_first) * depth)
            target = e.let((k * m_slots + first - m_first) * self.tile.columns)
            accumulators = e.local(size * width)
            for r in range(size):
                for c, lanes in chunks:
                    e.vstore(accumulators, r * width + c, e.f32(0, lanes), lanes)
            prefetches = []
            if large:
                rest = (v, source + size * depth, size * depth)
                prefetches.append(self._prefetch(e, u, weights, width, number[0], share, *rest))
            if self.ahead:
                turn = (block * self.a2 + k) * self.panel_count + number[1]
                prefetches.append(self._fetch(e, turn))

            def prefetch(step: Any) -> None:
                for one in prefetches:
                    one(step)

            accumulate(
                e,
                accumulators,
                size,
                chunks,
                depth,
                lambda r, d: e.load(v, source + d + r * depth),
                u,
                weights,
                width,
                self.unroll,
                prefetch,
            )
            for r in range(size):
                for c, lanes in chunks:
                    value = e.vload(accumulators, r * width + c, lanes)
                    e.vstore(products, target + (r * self.tile.columns + c), value, lanes)

        def some(k: Any) -> None:
            weights = weights_at(k)
            done, share = 0, -(-m_slots // self.panels[0][0])
            for size, count in self.panels:
                low = e.let(tirx.max(begin, index(done)))
                high = e.let(tirx.max(low, tirx.min(end, index(done + count))))

                def one(p: Any, size: int = size) -> None:
                    first = e.let(self._first_tile(p))
                    panel(k, weights, (e.let(p - begin), p), first, size, share)

                e.loop(low, high, one)
                done += count

        def whole(k: Any, last_row: bool, last_column: bool) -> None:
            weights = weights_at(k)
            first, after = self.g.tiles_at(last_row, last_column)
            cut = balanced_split(after - first, self.tile.rows) if first < after else []
            done, share = 0, sum(count for _, count in cut)
            for size, count in cut:

                def one(p: Any, size: int = size, first: int = first, done: int = done) -> None:
                    number = e.let(p + done)
                    panel(k, weights, (number, number), e.let(p * size + first), size, share)

                e.loop(0, count, one)
                first, done = first + size * count, done + count

        if self.whole:
            self._positions(e, whole)
        else:
            e.loop(0, self.a2, some)

    def _positions(self, e: Emitter, body: Callable[[Any, bool, bool], None]) -> None:
        """``body(position, in the last row, in the last column)`` in order, apart where tiles are cut."""
        a = self.g.a

        def row(i: Any, last: bool) -> None:
            each = a - 1 if self.g.cut_columns else a
            e.loop(0, each, lambda j: body(e.let(i * a + j), last, False))
            if each < a:
                body(e.let(i * a + (a - 1)), last, True)

        rows = a - 1 if self.g.cut_rows else a
        e.loop(0, rows, lambda i: row(i, False))
        if rows < a:
            row(index(a - 1), True)

    def _fetch(self, e: Emitter, turn: Any) -> Callable[[Any], None]:
        """The product number ``turn`` of all asks for its share of what a later kernel needs."""
        share = -(-self.ahead // (4 * LINE * self.blocks * self.a2 * self.panel_count))
        start = e.let(turn * (share * LINE))
        return stream_prefetch(e, self.later, start, share, self.depth, self.unroll, locality=1)

    def _prefetch(
        self,
        e: Emitter,
        u: Any,
        weights: Any,
        width: int,
        number: Any,
        panels: int,
        v: Any,
        rows: Any,
        elements: int,
    ) -> Callable[[Any], None]:
        """Panel ``number`` of ``panels`` asks for its share of the weights of the next position.

        In a few streams, each a part of those weights that is walked through in order, over all panels:
        memory is read 1.4 times as fast as in one stream, and twice as fast as without prefetching.

        It also asks for what follows its rows in V: those of the next panel, or of the next position.

        Args:
            rows, elements: where that begins and how much of it the next panel needs.
        """
        unroll = self.unroll
        iterations = self.depth // unroll
        lines = -(-self.depth * width // LINE)
        streams = -(-lines // (panels * iterations))
        part = -(-lines // streams)
        start = e.let(weights + self.depth * width + number * (iterations * LINE))
        ahead = stream_prefetch(e, v, e.let(rows), -(-elements // LINE), self.depth, unroll)

        def prefetch(step: Any) -> None:
            for s in range(streams):
                e.prefetch(u, start + div(step, unroll) * LINE + s * (part * LINE))
            ahead(step)

        return prefetch


def _panels(count: int, rows: int, threads: int) -> list[tuple[int, int]]:
    """Cuts tiles into panels of two neighbouring sizes; as many as threads share evenly if that costs little.

    Returns:
        [(size, count), ...] as :func:`balanced_split`.
    """
    least = -(-count // rows)
    even = -(-least // threads) * threads
    if even <= count and even * rows * 4 <= count * 5:
        small, large = divmod(count, even)
        return [(s, n) for s, n in ((small + 1, large), (small, even - large)) if n]
    return balanced_split(count, rows)


RULE = Rule("conv2d.winograd", order=200, dtypes=FLOAT32, apply=winograd, heeds_pitch=True)
