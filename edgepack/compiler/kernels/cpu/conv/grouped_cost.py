"""How a convolution in groups of few channels is computed by units: what is decided, and whether it pays."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.grouped_layout import GroupLayout, layouts
from edgepack.compiler.kernels.cpu.conv.window import Window
from edgepack.compiler.kernels.cpu.conv.window_schedule import GroupedSchedule, fitting
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel
from edgepack.compiler.kernels.schedule import ScheduleError
from edgepack.plan.target import CpuTarget

__all__ = ["propose_units"]

#: Pixels of a step, at most, and what at least there must be registers for.
MOST_COLUMNS, LEAST_COLUMNS = 14, 3

#: Instructions for a vector of sums that is stored.
STORE = 4

#: Instructions of an implicit matrix product for a tap of a pixel, beside those that multiply, and for one
#: that it takes a pointer for.
TAP, POINTER = 1.5, 7


@dataclass(frozen=True)
class _Choice:
    """A way to compute a convolution, and how many instructions it takes for all channels of a pixel."""

    micro: MicroKernel
    layout: GroupLayout
    columns: int
    cost: float


def propose_units(
    conv: Conv2d, micro: MicroKernel, given: GroupedSchedule
) -> tuple[MicroKernel, GroupLayout, GroupedSchedule]:
    """What is decided about a convolution, but for what is given: also the micro-kernel for vectors that are
    as wide, and how groups lie in them.

    Args:
        conv: of the micro-kernel's units.

    Raises:
        RuleError: if an implicit matrix product is faster.
        ScheduleError: if what is given does not fit.
    """
    if conv.groups == 1 or conv.depth_window is not None or micro.group == 1:
        raise RuleError("no groups of units")
    choices = _choices(conv, micro, given)
    if not choices:
        if given.lanes:
            raise ScheduleError(f"vectors of {given.lanes} lanes for groups of {conv.group_out}")
        raise RuleError("groups do not fill vectors")
    best = min(choices, key=lambda one: one.cost)
    if given.lanes is None and best.cost > _gemm_cost(conv, micro):
        raise RuleError("an implicit matrix product is faster")
    target, blocks = micro.target, -(-conv.groups // best.layout.groups)
    block = given.block or _block(conv, target, best, blocks)
    if conv.groups % best.layout.groups and (blocks - 1) % block == 0 and block < blocks:
        raise ScheduleError(
            f"{block} blocks of a task: the last one of {blocks} would overlap another task's"
        )
    parts = given.row_parts or _row_parts(conv, target)
    schedule = GroupedSchedule(best.layout.lanes, best.columns, block, parts)
    return best.micro, best.layout, fitting(schedule, Window.of(conv))


def _choices(conv: Conv2d, micro: MicroKernel, given: GroupedSchedule) -> list[_Choice]:
    """The ways that there are, by vectors of so many lanes and steps of so many pixels as are given."""
    found = []
    for one in _narrower(micro):
        for layout in layouts(conv, one.lanes) if one.lanes == (given.lanes or one.lanes) else ():
            most = min(conv.out_width, MOST_COLUMNS, _most_columns(layout, one))
            if given.columns or most >= min(conv.out_width, LEAST_COLUMNS):
                columns = given.columns or most
                found.append(_Choice(one, layout, columns, _cost(conv, layout, columns)))
    return found


def _narrower(micro: MicroKernel) -> list[MicroKernel]:
    """The micro-kernel, and the same for vectors of half and a quarter of the lanes that there are."""
    found = [micro]
    for part in (2, 4):
        lanes = micro.lanes // part
        made = lanes >= 4 and type(micro).of(micro.types, replace(micro.target, vector_bits=32 * lanes))
        if made and made.lanes == lanes:
            found.append(made)
    return found


def _most_columns(layout: GroupLayout, micro: MicroKernel) -> int:
    """Pixels of a step, whose sums have 9 of 16 registers. What is left holds operands and some weights.

    With more, LLVM keeps so many operands and weights that it spills: twice the time with AVX-VNNI.
    """
    return (micro.target.usable_registers - micro.temporaries) * 9 // 16 // layout.vectors


def _cost(conv: Conv2d, layout: GroupLayout, columns: int) -> float:
    """Instructions for all channels of a pixel.

    Loads and shuffles count a quarter of a multiply-add, for they are done beside it.
    """
    per_row = Window.of(conv).reach(columns) / columns * layout.units
    operand = 0.25 + (layout.units > 1) * 0.25 if layout.repeated else 0.5 * layout.groups - 0.25
    rows = conv.kernel[0] * (conv.kernel[1] * layout.units * layout.vectors + per_row * operand)
    return (rows + STORE * layout.vectors) * -(-conv.groups // layout.groups)


def _gemm_cost(conv: Conv2d, micro: MicroKernel) -> float:
    """Instructions that an implicit matrix product takes for all channels of a pixel.

    A tile that spans two rows of a padded image takes a pointer for each tap of each of its pixels.
    """
    vectors = -(-conv.group_out // micro.lanes)
    tile = micro.tile(conv.pixels, conv.group_out)
    blocks = -(-conv.group_out // tile.columns)
    cut = min(1.0, tile.rows / conv.out_width) if conv.padded else 0.0
    taps = conv.kernel[0] * conv.kernel[1] * blocks * (TAP + cut * POINTER)
    return conv.groups * (conv.depth * vectors + STORE * vectors + taps)


def _block(conv: Conv2d, target: CpuTarget, choice: _Choice, blocks: int) -> int:
    """Blocks of groups of a task: their weights, and the window's rows as wide as a step, fit L1."""
    layout = choice.layout
    rows = conv.kernel[0] * Window.of(conv).reach(choice.columns) * layout.window
    nbytes = 4 * (rows + conv.depth * layout.vectors * layout.lanes)
    tasks = -(-blocks // max(2, target.l1d_bytes * 2 // 3 // nbytes))
    if conv.batch * conv.out_height < target.threads:  # rows are too few to share
        tasks = max(tasks, min(blocks, target.threads))
    block = -(-blocks // tasks)
    # The last block may overlap the one before, which must then be of the same task.
    while conv.groups % layout.groups and (blocks - 1) % block == 0 and block < blocks:
        block += 1
    return block


def _row_parts(conv: Conv2d, target: CpuTarget) -> int:
    """Into how many parts the rows are cut."""
    parts = -(-conv.out_height // 8)
    return min(conv.out_height, -(-parts // target.threads) * target.threads)
