"""Convolution by Winograd's minimal filtering, F(m x m, r x r), NHWC.

Each m x m tile of the output is computed from an a x a tile of the input, a = m + r - 1, by a * a products
per pair of channels instead of r * r * m * m: of 3x3, 4 times fewer for m = 4, 2.25 times fewer for m = 2; of
4x4, 4 times fewer for m = 3. Input tiles are transformed (V = B^T d B), multiplied with the weights that were
transformed when packing (U = G g G^T, in float64) as a * a matrix products over the channels, and transformed
back (Y = A^T M A), where the epilogue is applied.

A stride of 2 becomes one of 1 over the phases of the input (``space_to_depth.py``): the 7x7 that many
networks begin with is 4x4 over them.

Tiles are the rows of the products; as many as a register tile holds are a panel.

Two forms. "fused": a task is one panel; a thread works on blocks of its panels, whose V and M stay in its L2
cache. It reads the weights once per block. "split": one kernel transforms all tiles into the arena, another
multiplies; its tasks are blocks of output channels, so the weights are read once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import tirx

from edgepack.compiler.graph.filtered_integers import EXACT
from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.graph.integer_operands import BYTES
from edgepack.compiler.kernels.contract import Array, Implementation, Packing, RuleError, Stage
from edgepack.compiler.kernels.cpu.analysis.anchored_group import CONVOLUTIONS, AnchoredGroup, anchored
from edgepack.compiler.kernels.cpu.builder import KernelBuilder
from edgepack.compiler.kernels.cpu.conv.cost import Integers
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.tile_gemm import by_matrices
from edgepack.compiler.kernels.cpu.conv.winograd_1d import Winograd1D
from edgepack.compiler.kernels.cpu.conv.winograd_1d_transforms import Input1D, Output1D
from edgepack.compiler.kernels.cpu.conv.winograd_2d import Winograd2D
from edgepack.compiler.kernels.cpu.conv.winograd_input import Input2D
from edgepack.compiler.kernels.cpu.conv.winograd_integers import INPUTS
from edgepack.compiler.kernels.cpu.conv.winograd_output import Output2D
from edgepack.compiler.kernels.cpu.conv.winograd_panels import RowPanels, panels_of
from edgepack.compiler.kernels.cpu.conv.winograd_product import (
    ColumnBlock,
    PositionProducts,
    ProductBuffers,
    Span,
)
from edgepack.compiler.kernels.cpu.conv.winograd_schedule import Tiles, WinogradSchedule, propose
from edgepack.compiler.kernels.cpu.conv.winograd_transforms import input_row_groups, output_row_groups
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import div, index, mod, unravel
from edgepack.compiler.kernels.cpu.emit.register_tile import Tile
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel
from edgepack.compiler.kernels.cpu.micro.multiply_add import MultiplyAdd
from edgepack.compiler.kernels.cpu.micro.registry import micro_kernel_for
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.compiler.kernels.rule import OTHER_DTYPE, PRODUCTS, Rule
from edgepack.plan.opt_level import ALL
from edgepack.plan.target import CpuTarget

__all__ = ["Winograd", "winograd"]

#: All is left to the cost model.
OPEN = WinogradSchedule()


def winograd(
    fused: FusedGroup, target: CpuTarget, constants: frozenset[int], given: WinogradSchedule = OPEN
) -> Implementation:
    """Rules ``conv2d.winograd2``, ``3`` and ``4``, and ``conv2d.winograd1x4`` and ``1x6``."""
    found = anchored(fused, CONVOLUTIONS)
    conv = Conv2d.of(found)
    if found.operand(1) not in constants:
        raise RuleError("the weights are not constant")
    direct = micro_kernel_for(found.products, conv.group_sizes, target, constant=True)
    micro, integers = _product(found, conv, target), None
    if micro.types.sums == "int32":
        integers = Integers(micro, direct, tuple(found.anchor.attributes.get(EXACT, ())))
        if given.outputs is None and by_matrices(conv, direct):
            raise RuleError("this CPU multiplies matrices of bytes, which is faster")
    schedule = propose(conv, micro.target, given, direct.rate, integers)
    if schedule is None:
        raise RuleError("the direct convolution is estimated to be faster")
    return Winograd(conv, found, micro, schedule).build()


def _product(found: AnchoredGroup, conv: Conv2d, target: CpuTarget) -> MicroKernel:
    """What multiplies transformed inputs and weights, of float32 or of int16. RuleError for other types."""
    types = found.types
    if types.left == types.right == types.sums == "float32":
        return MultiplyAdd(ProductTypes.of("float32"), target)
    if types.left not in INPUTS or types.sums != "int32":
        raise RuleError(f"{OTHER_DTYPE}{types}")
    if not found.anchor.attributes.get(EXACT):
        raise RuleError("Winograd's form of these integers is not exact, or they are no 3x3 of stride 1")
    pairs = ProductTypes("int16", "int16", "int32", types.result)
    micro = micro_kernel_for([pairs], conv.group_sizes, target, constant=True)
    if micro.left_unit != "int32":
        raise RuleError("this CPU has no instruction for pairs of int16")
    return micro


class Winograd(KernelBuilder):
    """Builds the kernels.

    V is [groups][positions][tiles][IC of a group], in the fused form that of one group; M is
    [positions][tiles][columns of the tile].

    Args:
        elements: the convolution; what is computed is one of the micro-kernel's units.
        micro: multiplies.
        schedule: of which nothing is open.
    """

    def __init__(
        self, elements: Conv2d, fused: AnchoredGroup, micro: MicroKernel, schedule: WinogradSchedule
    ) -> None:
        assert schedule.outputs is not None
        assert schedule.register_tile is not None
        conv, target = elements.in_units(micro.group), micro.target
        tiles = Tiles.of(conv, schedule.outputs)
        tiling, self.phases = tiles.tiling, tiles.phases
        super().__init__(tiling.rule, target, dtype=conv.dtype, prefetch_bytes=schedule.prefetch_bytes)
        self.elements, self.micro = elements, micro
        self.conv, self.fused, self.schedule = conv, fused, schedule
        self.tile = Tile(*schedule.register_tile)
        panels, split = panels_of(tiling, self.tile.rows, target.threads), schedule.form == "split"
        self.panels = RowPanels(tiling, self.tile, target, panels, split=split)
        self.fuses, self.block, self.parts = (
            schedule.form == "fused",
            schedule.block or 0,
            schedule.parts or 0,
        )
        if self.parts == 1 and (cut := tiling.by_need()):
            tiling, panels = cut, panels_of(cut, self.tile.rows, target.threads, even=False)
            self.panels = RowPanels(cut, self.tile, target, panels, cut, split)
        self.tiling = tiling

    @property
    def product_tiles(self) -> int:
        """Tiles that M holds."""
        if self.fuses:  # an odd number spreads the places of a tile over the sets of the caches
            return self.block * self.panels.largest | 1
        return min(self.panels.tiling.count, -(-self.panels.count // self.parts) * self.panels.largest)

    @property
    def input_tiles(self) -> int:
        """Tiles that V holds: with those that only later filters need."""
        return self.tiling.most_input_tiles(self.product_tiles) if self.fuses else self.tiling.input_tiles

    @property
    def _group_elements(self) -> int:
        """Elements of V of a group of channels."""
        return self.panels.positions * self.input_tiles * self.tiling.channels

    def parameters(self) -> dict[str, Any]:
        slots = {"slots": str(self.product_tiles)} if self.fuses else {}
        return {**slots, **self.micro.parameters()}

    def packings(self) -> tuple[Packing, ...]:
        """The transformed weights, and what the padding is, where it does not stand behind them."""
        phases, g, micro = self.phases, self.tiling, self.micro
        stripe, columns = self.panels.stripe, self.panels.weight_columns or self.tile.columns
        conv = phases.whole if phases else self.elements
        shape = (-1, *conv.kernel, conv.group_in, conv.out_channels)
        param = self.fused.operand(1)

        def pack(weights: Array) -> Array:
            planes = weights.reshape(shape).transpose(1, 2, 0, 3, 4)
            weights = planes.reshape(*conv.kernel, -1, conv.out_channels)
            found = g.pack(phases.weights(weights) if phases else weights, (stripe, columns), micro)
            return found[: self.panels.weight_elements] if self._padding_apart else found

        order = f"{columns}" if stripe == columns else f"{stripe} by {columns}"
        zeros = 0 if self._padding_apart else g.zeros
        key = f"{g.key}:{g.conv.groups}:{'phases:' if phases else ''}{order}:{zeros}"
        packed = Packing(param, f"{key}:{micro.layout}" if micro.layout else key, pack)
        if not self._padding_apart:
            return (packed,)
        outside, value, dtype = g.zeros * micro.group, conv.outside, conv.types.left
        row = Packing(param, f"padding:{dtype}:{value}:{outside}", lambda _: np.full(outside, value, dtype))
        return (packed, row)

    def build(self) -> Implementation:
        g, panels = self.tiling, self.panels
        stages: list[Stage] = []
        temps: list[int] = []
        if self.phases:
            stages.append(self.phases.stage(self.target, self.fused.operand(0)))
            temps.append(self.phases.nbytes)
        if self.fuses:
            stages.append(self._fused())
        else:
            stages += [self._split_input(), self._split_product()]
            temps.append(g.conv.groups * self._group_elements * self.element_bytes)
        return Implementation(
            self.rule,
            tuple(stages),
            self.packings(),
            temps=tuple(temps),
            scratch=tuple(self.e.scratch_bytes),
            schedule=self.schedule,
            parameters=self.parameters(),
            flops=self.elements.flops,
            multiply_adds=panels.positions * g.count * panels.depth * g.conv.out_channels * self.micro.group,
            weights=panels.weight_bytes,
            rate=self.micro.rate,
            with_prefetch=self._with_prefetch,
        )

    def _with_prefetch(self, nbytes: int) -> Implementation:
        schedule = replace(self.schedule, prefetch_bytes=nbytes)
        return Winograd(self.elements, self.fused, self.micro, schedule).build()

    # Operands ---------------------------------------------------------------------------------------------

    @property
    def image_type(self) -> str:
        """Type of a unit of the image: that of sums, or of bytes two in one of int16."""
        return "int16" if self.elements.types.left in BYTES else self.dtype

    def _input(self, e: Emitter) -> Any:
        elements = self.tiling.image.input_elements
        if self.phases:
            return e.temp(0, elements)
        return self.fused.declare_operand(e, 0, elements, self.image_type)

    def _transformed_input(self, e: Emitter) -> Any:
        return e.temp(1 if self.phases else 0, self.tiling.conv.groups * self._group_elements)

    @property
    def _padding_apart(self) -> bool:
        """Whether what rows in the padding read has a constant of its own: where it is of another type than
        the weights, and where kinds of CPU share these, of which some pad the image of integers before."""
        shared = self.dtype == "int32" and self.panels.weight_columns > 0
        return self.tiling.zeros > 0 and (self.image_type != self.dtype or shared)

    def _weights(self, e: Emitter) -> Any:
        return e.packed(0, self.panels.weight_elements + (0 if self._padding_apart else self.tiling.zeros))

    def _reader(self, e: Emitter, x: Any, u: Any) -> Input2D | Input1D:
        """What transforms the input ``x``; behind the weights ``u`` are zeros, which rows in the padding
        read, unless they have a constant of their own."""
        g, zeros = self.tiling, self.panels.weight_elements
        if isinstance(g, Winograd1D):
            return Input1D(e, g, x, u, zeros)
        assert isinstance(g, Winograd2D)
        if self._padding_apart:
            u, zeros = e.packed(1, g.zeros, self.image_type), 0
        # The columns beside an image are not stored, and those of zeros not computed.
        staged = bool(self.schedule.staged_input) and not g.conv.outside
        rows = input_row_groups(g.m, self.target, staged=staged)
        return Input2D(e, g, rows, x, u, zeros)

    def _writer(self, y: Any, extra: dict[int, Any]) -> Output2D | Output1D:
        """What transforms products, and writes the output ``y``."""
        e, g, width = self.e, self.tiling, self.panels.columns
        if isinstance(g, Winograd1D):
            return Output1D(e, g, self.fused, y, extra, width)
        assert isinstance(g, Winograd2D)
        rows = output_row_groups(g.m, self.target, staged=bool(self.schedule.staged_output))
        return Output2D(e, g, rows, self.fused, y, extra, width)

    def _prefetched(self) -> Any:
        return self.e.prefetched(self.prefetch_bytes) if self.prefetch_bytes else None

    # The two forms ----------------------------------------------------------------------------------------

    def _fused(self) -> Stage:
        """Tasks: panels."""
        e, g, panels, tiles = self.e, self.tiling, self.panels, self.product_tiles
        x, u = self._input(e), self._weights(e)
        extra = self.fused.declare_epilogue(e)
        y = e.output(0, self.fused.output_elements, self.fused.types.result)
        v = e.scratch(self._group_elements)
        products = e.scratch(panels.positions * tiles * panels.columns)
        buffers = ProductBuffers(v, self.input_tiles, u, products, tiles, self._prefetched())
        image = self._reader(e, x, u)
        product = PositionProducts(e, self.micro, panels, buffers, self.prefetch_bytes)
        output = self._writer(y, extra)
        lo, hi = e.task_range()
        count = e.let(hi - lo)
        blocks = e.let(div(count + (self.block - 1), self.block))
        size = e.let(tirx.truncdiv(count + blocks - 1, tirx.max(blocks, index(1))))

        def block(b: Any) -> None:
            begin = e.let(lo + b * size)
            end = e.let(tirx.min(begin + size, hi))
            first, last = e.let(panels.first_tile(begin)), e.let(panels.first_tile(end))
            input_tile, after = e.let(g.input_tile(first)), last
            if g.taps:
                after = e.let(g.input_tile(last - 1) + (g.more_input_tiles + 1))

            def group(number: Any) -> None:
                e.loop(
                    input_tile,
                    after,
                    lambda t: image.read(v, t, e.let(t - input_tile), self.input_tiles, number),
                )
                self._for_column_blocks(number, columns)

            def columns(block: ColumnBlock) -> None:
                product.multiply(block, Span(begin, end, input_tile, first))
                at, width = block.column, block.width
                e.loop(first, last, lambda t: output.write(products, at, width, t, e.let(t - first), tiles))

            e.loop(0, g.conv.groups, group)

        e.loop(0, blocks, block)
        return e.stage(panels.count)

    def _for_column_blocks(self, group: Any, body: Callable[[ColumnBlock], None]) -> None:
        """``body`` for each block of output channels of a group."""
        e, out, width = self.e, self.tiling.conv.group_out, self.panels.columns
        first, before = e.let(group * out), e.let(group * self.panels.group_blocks)

        def block(b: Any, width: int) -> None:
            at = e.let(first + b * self.panels.columns)
            body(ColumnBlock(at, width, group, e.let(before + b), index(0)))

        full, rest = divmod(out, width)
        e.loop(0, full, lambda b: block(b, width))
        if rest:
            block(index(full), rest)

    def _split_input(self) -> Stage:
        """Tasks: (input tile, group of channels, plane of the window, chunk of its channels)."""
        e, g = Emitter(self.lanes, self.target, self.dtype), self.tiling
        groups, tiles = g.conv.groups, self.input_tiles
        depth = g.image_channels // groups
        planes = g.channels // depth
        vectors = max(1, depth // self.lanes)
        whole = depth % self.lanes == 0
        chunk = max(c for c in (8, 4, 2, 1) if vectors % c == 0) if whole else vectors
        chunks = vectors // chunk
        some = chunk * self.lanes if chunks > 1 else depth
        x, u = self._input(e), self._weights(e)
        v = self._transformed_input(e)
        image = self._reader(e, x, u)

        def task(t: Any) -> None:
            input_tile, group, plane, part = (
                e.let(index(i)) for i in unravel(t, (tiles, groups, planes, chunks))
            )
            place = e.let(group * self._group_elements + input_tile * g.channels + part * some)
            image.part(v, input_tile, (place, tiles), plane, (e.let(group * depth + part * some), some))

        e.tasks(task)
        return e.stage(tiles * groups * planes * chunks)

    def _split_product(self) -> Stage:
        """Tasks: (block of output channels, part of the panels)."""
        e, g, panels, width = self.e, self.tiling, self.panels, self.panels.columns
        parts, tiles, blocks = self.parts, self.product_tiles, panels.group_blocks
        v, u = self._transformed_input(e), self._weights(e)
        extra = self.fused.declare_epilogue(e)
        y = e.output(0, self.fused.output_elements, self.fused.types.result)
        products = e.scratch(panels.positions * tiles * width)
        buffers = ProductBuffers(v, self.input_tiles, u, products, tiles, self._prefetched())
        product = PositionProducts(e, self.micro, panels, buffers, self.prefetch_bytes)
        output = self._writer(y, extra)
        each = -(-panels.count // parts)

        def task(t: Any) -> None:
            number = e.let(div(t, parts))
            group, b = (e.let(index(i)) for i in unravel(number, (g.conv.groups, blocks)))
            at = e.let(group * g.conv.group_out + b * width)
            begin = e.let(mod(t, parts) * each)
            end = e.let(tirx.min(begin + each, index(panels.count)))
            first, last = e.let(panels.first_tile(begin)), e.let(panels.first_tile(end))

            def columns(width: int) -> None:
                source = e.let(group * self._group_elements)
                block = ColumnBlock(at, width, group, number, source)
                product.multiply(block, Span(begin, end, index(0), first))
                e.loop(first, last, lambda t: output.write(products, at, width, t, e.let(t - first), tiles))

            tail = g.conv.group_out - (blocks - 1) * width
            if tail == width or blocks == 1:
                columns(tail)
            else:
                e.branch(b < blocks - 1, lambda: columns(width), lambda: columns(tail))

        e.tasks(task)
        return e.stage(panels.column_blocks * parts)


RULE = Rule(
    "conv2d.winograd",
    order=200,
    dtypes=PRODUCTS,
    apply=winograd,
    heeds_row_stride=True,
    schedule=WinogradSchedule,
    level=ALL,
)
