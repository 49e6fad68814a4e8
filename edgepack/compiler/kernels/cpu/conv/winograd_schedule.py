"""What is decided about a Winograd convolution, and how the cost model decides it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import Any, Literal

from edgepack.compiler.kernels.cpu.conv.cost import (
    NOT_HIDDEN,
    OUTPUTS,
    STREAM_COST,
    STREAM_VECTOR_BYTES,
    Integers,
    winograd_1d,
    winograd_2d_tile,
    worth_fusing,
)
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.space_to_depth import Phases
from edgepack.compiler.kernels.cpu.conv.winograd_1d import all_1d
from edgepack.compiler.kernels.cpu.conv.winograd_2d import Winograd2D
from edgepack.compiler.kernels.cpu.conv.winograd_panels import RowPanels, panels_of
from edgepack.compiler.kernels.cpu.conv.winograd_tiling import Tiling
from edgepack.compiler.kernels.cpu.conv.winograd_transforms import POINTERS, staged_input, staged_output
from edgepack.compiler.kernels.cpu.emit.register_tile import Tile, tile_for
from edgepack.compiler.kernels.schedule import Schedule, ScheduleError, by, check_register_tile
from edgepack.plan.target import CpuTarget

__all__ = ["Tiles", "WinogradSchedule", "propose"]

#: Panels of one block of the fused form.
BLOCK_PANELS = 6


@dataclass(frozen=True)
class WinogradSchedule(Schedule):
    """What is decided about a Winograd convolution.

    Attributes:
        outputs: of a tile, (rows, columns): (m, m) is filtered in two dimensions, (1, m) along rows, (m, 1)
            down columns.
        register_tile: rows and columns of the products' accumulators; rows are tiles of the convolution.
        form: "fused": a task transforms and multiplies some tiles in the cache; "split": one kernel
            transforms all of them, another multiplies.
        block: panels that the fused form transforms before it multiplies them.
        parts: into how many runs of panels the tasks of the split form's product are cut.
        staged_input, staged_output: whether a transform stores what it has of the columns before it goes on
            to the rows, because not all of it fits the registers.
        prefetch_bytes: constants of a later call that the products fetch into the caches, in bytes. The
            planner decides that.
    """

    outputs: tuple[int, int] | None = None
    register_tile: tuple[int, int] | None = None
    form: Literal["fused", "split"] | None = None
    block: int | None = None
    parts: int | None = None
    staged_input: bool | None = None
    staged_output: bool | None = None
    prefetch_bytes: int = 0

    def printed(self) -> dict[str, Any]:
        found = {"tile": by(self.register_tile), "form": self.form}
        if self.prefetch_bytes:
            found["ahead"] = str(self.prefetch_bytes)
        return found if self.form == "fused" else {**found, "parts": str(self.parts)}


@dataclass(frozen=True)
class Tiles:
    """What is filtered.

    Attributes:
        tiling: tiles of the output of a convolution of stride 1.
        phases: what its input is made of first, if it is not the group's own.
    """

    tiling: Tiling
    phases: Phases | None = None

    @classmethod
    def of(cls, conv: Conv2d, outputs: tuple[int, int]) -> Tiles:
        """A convolution by tiles of so many outputs. ScheduleError if it has no such form."""
        rows, columns = outputs
        if rows != columns:
            for lines in all_1d(conv):
                if outputs == lines.outputs:
                    return cls(lines)
        elif rows in OUTPUTS.get(_square_taps(conv), ()):
            phases = None if conv.strides == (1, 1) else Phases(conv, rows)
            whole = phases.conv if phases else conv
            volume = whole if whole.depth_window else None
            return cls(Winograd2D(whole.side_by_side(), rows, volume=volume), phases)
        raise ScheduleError(f"there are no tiles of {by(outputs)} outputs of such a convolution")


def _square_taps(conv: Conv2d) -> int:
    """Taps, along each side, of the filters that a convolution by a square window has; 0 if it has none.

    One of stride 2 is one of stride 1 over the phases of its input.
    """
    taps = conv.kernel[0]
    if conv.kernel != (taps, taps) or conv.dilation != (1, 1) or (conv.groups > 1 and conv.depth_window):
        return 0
    if conv.strides == (1, 1):
        return taps
    plain = not conv.depth_window and conv.groups == 1
    return -(-taps // 2) if conv.strides == (2, 2) and plain else 0


def propose(
    conv: Conv2d,
    target: CpuTarget,
    given: WinogradSchedule,
    rate: float = 1,
    integers: Integers | None = None,
) -> WinogradSchedule | None:
    """What the cost model decides, but for what is given; None if the direct convolution is faster.

    Args:
        rate: multiply-adds of the direct one in the time of one in float32.
        integers: how these are multiplied, of which the convolution is.

    Raises:
        ScheduleError: if what is given does not fit.
    """
    if given.outputs is not None and target.strict_math and not integers:
        raise ScheduleError("strict math multiplies the weights as they are")
    outputs = given.outputs or _square(conv, target, integers)
    if outputs is None and not integers:
        outputs = _line(conv, target, rate)
    if outputs is None:
        return None
    if integers:
        if outputs not in [(m, m) for m in integers.tiles]:
            raise ScheduleError(f"tiles of {by(outputs)} outputs are not exact for these integers")
        conv = conv.in_units(integers.micro.group)
    tiling = Tiles.of(conv, outputs).tiling
    sizes = tiling.run_length or tiling.count, conv.group_out
    tile = integers.micro.tile(*sizes) if integers else tile_for(target, *sizes, conv.dtype)
    if given.register_tile is not None:
        check_register_tile(given.register_tile, target, conv.group_out, conv.dtype)
        tile = Tile(*given.register_tile)
    panels = RowPanels(tiling, tile, target, panels_of(tiling, tile.rows, target.threads))
    block = _within(given.block or _block(panels), panels.count, "blocks of")
    form = given.form or ("fused" if worth_fusing(panels, block) else "split")
    parts = _within(given.parts or _parts(replace(panels, split=True)), panels.count, "parts of")
    return WinogradSchedule(
        outputs,
        (tile.rows, tile.columns),
        form,
        block if form == "fused" else None,
        parts if form == "split" else None,
        staged_input(target) if given.staged_input is None else given.staged_input,
        staged_output(target) if given.staged_output is None else given.staged_output,
        given.prefetch_bytes,
    )


def _square(conv: Conv2d, target: CpuTarget, integers: Integers | None) -> tuple[int, int] | None:
    """Outputs of a tile that is a square, if that is estimated to be faster than the direct convolution."""
    if not _square_taps(conv):
        return None
    if conv.strides == (1, 1):
        m = winograd_2d_tile(conv.side_by_side(), target, conv, integers)
    elif target.pointer_registers >= POINTERS:  # else it spills
        m = winograd_2d_tile(Phases(conv, 1).conv, target, conv)
    else:
        return None
    return (m, m) if m else None


def _line(conv: Conv2d, target: CpuTarget, rate: float) -> tuple[int, int] | None:
    """Outputs of a tile that is a part of a line, if that is estimated to be faster."""
    lines = winograd_1d(conv, target, rate)
    return lines.outputs if lines else None


def _block(panels: RowPanels) -> int:
    """Panels of one block of the fused form: V and M fill at most half of the L2 cache."""
    g, target = panels.tiling, panels.target
    row = panels.positions * (g.channels + panels.columns) * g.conv.element_bytes
    fits = target.l2_bytes // 2 // (panels.tile.rows * row)
    return max(1, min(fits, BLOCK_PANELS, -(-panels.count // target.threads)))


def _parts(panels: RowPanels) -> int:
    """Parts of the panels that are tasks of their own in the split form, so that threads can share them.

    Each part reads the weights again, which of few tiles takes longer than to multiply by them: then it is
    faster if one thread does a block of columns more than another.
    """
    target, blocks = panels.target, panels.column_blocks
    threads, tiles = target.threads, panels.tiling.count
    if blocks >= 4 * threads:
        return 1
    element = STREAM_COST * panels.tiling.conv.element_bytes * target.vector_bytes / STREAM_VECTOR_BYTES

    def cost(parts: int) -> float:
        """Of the thread that does most tasks, in multiply-adds for each weight."""
        share = -(-blocks * parts // threads) / (blocks * parts)
        shorter, longer = sorted((share * tiles, share * parts * element))
        return longer + NOT_HIDDEN * shorter

    return min(range(1, min(threads // gcd(blocks, threads), panels.count) + 1), key=cost)


def _within(value: int, most: int, what: str) -> int:
    if not 1 <= value <= most:
        raise ScheduleError(f"{value} {what} {most} panels")
    return value
