"""Convolutions by weights that are computed: a stage of its own packs or scales them before each run of the
kernel.

The kernel is that for constant weights; where it reads a packed constant, it reads a buffer in the arena.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Buffer

from edgepack.compiler.kernels.contract import Implementation, Operand, Stage
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import index, unravel
from edgepack.compiler.kernels.cpu.emit.register_tile import column_chunks

__all__ = ["by_computed_weights", "packed_by_columns", "packed_by_steps", "scaled_by_channels"]

#: Elements that a task packs, about.
TASK_ELEMENTS = 8 * 1024


def packed_by_columns(e: Emitter, conv: Conv2d, param: int, columns: int, zeros: int) -> Stage:
    """A stage that packs weights as :func:`edgepack.compiler.kernels.cpu.conv.geometry.pack_weights` does.

    Args:
        e: a new emitter.
        param: the weights, (KH, KW, IC / groups, OC).
    """
    elements = conv.depth * conv.out_channels
    source = e.param(param, elements)
    packed = e.temp(0, elements + zeros)

    def row(to: Expr, first: Expr, r: Expr, width: int) -> None:
        at = e.let(r * conv.out_channels + first)
        for i, lanes in column_chunks(width, e.lanes):
            e.vstore(packed, to + i, e.vload(source, at + i, lanes), lanes)

    return _row_by_row(e, conv, packed, (columns, zeros), row)


def scaled_by_channels(e: Emitter, conv: Conv2d, scales: int, columns: int, zeros: int) -> Stage:
    """A stage that multiplies packed weights of a 1x1 convolution, in one group, by a factor for each input
    channel.

    Args:
        e: a new emitter.
        scales: the parameter that has the factors.
        columns, zeros: as they were packed.
    """
    elements = conv.depth * conv.out_channels
    source = e.packed(0, elements + zeros)
    factors = e.param(scales, conv.in_channels)
    scaled = e.temp(0, elements + zeros)

    def row(to: Expr, first: Expr, r: Expr, width: int) -> None:
        factor = e.let(e.load(factors, r))
        for i, lanes in column_chunks(width, e.lanes):
            e.vstore(scaled, to + i, e.vload(source, to + i, lanes) * e.splat(factor, lanes), lanes)

    return _row_by_row(e, conv, scaled, (columns, zeros), row)


def _row_by_row(
    e: Emitter,
    conv: Conv2d,
    packed: Buffer,
    layout: tuple[int, int],
    row: Callable[[Expr, Expr, Expr, int], None],
) -> Stage:
    """A stage that writes weights as a matrix product reads them, a row of a block of columns at a time.

    Args:
        layout: columns of a block, and zeros that stand behind the weights.
        row: writes row ``r`` of a block of ``width`` columns, whose first output channel is ``first``, to
            element ``to``: ``row(to, first, r, width)``.
    """
    columns, zeros = layout
    depth, elements = conv.depth, conv.depth * conv.out_channels
    blocks = -(-conv.group_out // columns)
    last = conv.group_out - (blocks - 1) * columns
    per_task = max(1, min(depth, TASK_ELEMENTS // min(columns, conv.group_out)))
    counts = (conv.groups, blocks, -(-depth // per_task))

    def task(t: Expr) -> None:
        group, block, part = unravel(t, counts)
        first = e.let(group * conv.group_out + block * columns)
        begin = e.let(part * per_task)
        end = e.let(tirx.min(begin + per_task, index(depth)))

        def rows(width: int) -> None:
            e.loop(begin, end, lambda r: row(e.let(first * depth + r * width), first, r, width))

        if last == columns or blocks == 1:
            rows(last)
        else:
            e.branch(index(block) < index(blocks - 1), lambda: rows(columns), lambda: rows(last))
        if zeros:
            e.branch(tirx.EQ(t, index(prod(counts) - 1)), lambda: e.loop(0, zeros, clear))

    def clear(i: Expr) -> None:
        e.vstore(packed, i + elements, tirx.const(0, e.dtype), 1)

    e.tasks(task)
    return e.stage(prod(counts))


def packed_by_steps(e: Emitter, param: int, taps: int, channels: int) -> Stage:
    """A stage that packs the weights (..., 1, C) of a depthwise convolution, a vector of channels after the
    other, the last of which ends with the last channel.

    Args:
        e: a new emitter, whose vectors have no more lanes than there are channels.
    """
    lanes, steps = e.lanes, -(-channels // e.lanes)
    source = e.param(param, taps * channels)
    packed = e.temp(0, taps * steps * lanes)

    def task(step: Expr) -> None:
        first = e.let(tirx.min(step * lanes, index(channels - lanes)))

        def tap(i: Expr) -> None:
            e.vstore(packed, (step * taps + i) * lanes, e.vload(source, i * channels + first, lanes), lanes)

        e.loop(0, taps, tap)

    e.tasks(task)
    return e.stage(steps)


def by_computed_weights(implementation: Implementation, pack: Stage, nbytes: int) -> Implementation:
    """An implementation with one packed constant, as one for which ``pack`` computes its bytes."""
    assert not implementation.temps and len(implementation.packed) == 1

    def computed(stage: Stage) -> Stage:
        operands = (Operand("temp", 0) if o.kind == "packed" else o for o in stage.operands)
        return replace(stage, operands=tuple(operands))

    return replace(
        implementation,
        stages=(pack, *(computed(stage) for stage in implementation.stages)),
        packed=(),
        temps=(nbytes,),
        parameters={**implementation.parameters, "weights": "computed"},
        weights=0,
        with_prefetch=None,
    )
