"""What is decided about kernels that go over an image window by window, and how."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

from edgepack.compiler.kernels.cpu.conv.window import Window
from edgepack.compiler.kernels.schedule import Schedule, ScheduleError, by
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CACHE_LINE_BYTES, CpuTarget

__all__ = ["GroupedSchedule", "SlidingSchedule", "WindowSchedule", "fitting", "propose_sliding"]

#: Taps of a window, and multiply-adds of a step, that are unrolled; above, the window's rows are a loop.
#: Unrolled, a 5x5 window is 25 % faster and its code twice as long.
UNROLLED_TAPS, UNROLLED_STEP = 64, 512
#: Pixels of the input up to which threads divide the channels.
FEW_PIXELS = 64
#: Bytes of a thread's channels of a pixel, at least: prefetchers run on behind a shorter run, into another
#: thread's, and its ends are cache lines that two threads write. Measured: notes/2026-11-21-threads.md.
LEAST_RUN = 1024

AnySchedule = TypeVar("AnySchedule", bound="WindowSchedule")


@dataclass(frozen=True)
class WindowSchedule(Schedule):
    """What is decided about a kernel that goes over an image window by window.

    Attributes:
        lanes: channels of a vector.
        columns: neighbouring pixels of a row that a step computes.
        block: vectors of channels of a task.
        row_parts: parts of the output's rows, each of which is a task for each block of channels.
    """

    lanes: int | None = None
    columns: int | None = None
    block: int | None = None
    row_parts: int | None = None

    def printed(self) -> dict[str, Any]:
        return {"tile": by((self.columns, self.lanes))}


@dataclass(frozen=True)
class SlidingSchedule(WindowSchedule):
    """What is decided about a depthwise convolution or a pooling.

    Attributes:
        unrolled: whether the rows of the window are written out; otherwise they are a loop.
    """

    unrolled: bool | None = None


@dataclass(frozen=True)
class GroupedSchedule(WindowSchedule):
    """What is decided about a convolution in groups of few channels."""

    def printed(self) -> dict[str, Any]:
        return {**super().printed(), "parts": self.row_parts}


def fitting(schedule: AnySchedule, window: Window) -> AnySchedule:
    """The schedule, of which nothing is open. ScheduleError if it does not fit the window."""
    lanes, columns, block, rows = schedule.lanes, schedule.columns, schedule.block, schedule.row_parts
    assert lanes is not None and columns is not None and block is not None and rows is not None
    steps = -(-window.out_channels // lanes)
    for value, most, what in (
        (columns, window.out_width, "columns of a step"),
        (block, steps, "vectors of a task"),
        (rows, window.out_height, "parts of the rows"),
    ):
        if value > most:
            raise ScheduleError(f"{value} {what}, of {most}")
    if lanes & (lanes - 1):
        raise ScheduleError(f"{lanes} lanes of a vector: no power of 2")
    return schedule


def propose_sliding(
    window: Window,
    target: CpuTarget,
    dtypes: tuple[str, str],
    given: SlidingSchedule,
    *,
    weighted: bool,
    vectors: int = 1,
    by_rows: bool = False,
) -> SlidingSchedule:
    """What is decided about a window, but for what is given.

    Args:
        dtypes: one of which a vector has as many lanes as a step has channels, and the image's in memory.
        weighted: whether there are weights.
        vectors: of sums of a pixel. Where they are two, so are those of each pair of the input's pixels.
        by_rows: whether a task is a row of the output.

    Raises:
        ScheduleError: if what is given does not fit.
    """
    dtype, read = dtypes
    lanes = given.lanes or _lanes(window, target, dtype, DTYPE_BYTES[read])
    taps = window.size[0] * window.size[1]
    # One pointer has to serve all rows, or their pointers would not fit the registers. In WebAssembly a
    # loop: V8 keeps fewer values in registers than the unrolled window has.
    unrollable = target.loads_have_displacement and not target.virtual_registers
    unrolled = unrollable and taps <= UNROLLED_TAPS and target.optimize != "size"
    unrolled = unrolled if given.unrolled is None else given.unrolled
    registers = target.usable_registers
    if not target.vector_bits and "int" in dtype:  # they are in the registers of pointers and counters
        registers = target.pointer_registers // 2
    columns = _columns(window, target, registers // vectors, weighted=weighted, unrolled=unrolled)
    columns = given.columns or columns
    steps = -(-window.channels // lanes)
    by_channels = _by_channels(window, target, steps, DTYPE_BYTES[read])
    row = window.taps // window.size[1] * window.reach(columns) * lanes * DTYPE_BYTES[dtype]
    if by_rows:
        given = replace(given, block=steps, row_parts=window.out_height)
    block = given.block or _block(window, target, row, lanes, by_channels=by_channels)
    parts = given.row_parts or (1 if by_channels else _row_parts(window, target))
    if lanes > window.channels:  # the last vector ends with the last channel, and overlaps the one before
        raise ScheduleError(f"{lanes} lanes of a vector, of {window.channels}")
    if window.channels % lanes and (steps - 1) % block == 0 and block < steps:
        raise ScheduleError(
            f"{block} vectors of a task: the last one of {steps} would overlap another task's"
        )
    return fitting(SlidingSchedule(lanes, columns, block, parts, unrolled), window)


def _lanes(window: Window, target: CpuTarget, dtype: str, read_bytes: int) -> int:
    """Elements of a vector: at most the channels, and halves where they are faster.

    Args:
        read_bytes: of an element of the image.
    """
    lanes, line = target.lanes(dtype), CACHE_LINE_BYTES // read_bytes
    while lanes > window.channels:
        lanes //= 2
    if lanes == line and window.channels % line == line // 2 and window.size[0] * window.size[1] <= 9:
        # Half of the pixels begin in the middle of a cache line, where halves are faster.
        lanes //= 2
    return lanes


def _columns(window: Window, target: CpuTarget, registers: int, *, weighted: bool, unrolled: bool) -> int:
    """Columns of a strip: at most as many as there are accumulators, and unrolled code may be long."""
    kh, kw = window.size
    longest = max(2, UNROLLED_STEP // (kh * kw if unrolled else kw))
    return min(window.out_width, _accumulators(window, target, registers, weighted=weighted), longest)


def _accumulators(window: Window, target: CpuTarget, registers: int, *, weighted: bool) -> int:
    """Accumulators of a step: the more, the better they hide the latency of the multiply-add.

    Where arithmetic reads memory, weights stay there and inputs are gone through one by one; elsewhere
    accumulators, all inputs of a row and a weight have registers, so that neighbouring multiply-adds are
    independent. What waits for memory rather than for arithmetic has enough with 8.
    """
    if target.arithmetic_reads_memory:
        most = registers - 3 - (0 if target.fma else 1)
    else:
        inputs = (window.size[1] - 1) * window.dilation[1]
        most = (registers - 2 - inputs + window.strides[1]) // (window.strides[1] + 1)
    arithmetic = weighted and window.strides[1] == 1 and window.size[0] * window.size[1] > 9
    return max(2, min(most, 14 if arithmetic else 8))


def _by_channels(window: Window, target: CpuTarget, steps: int, read_bytes: int) -> bool:
    """Whether threads divide the channels, not the rows: where there are more of them than pixels of the
    input, so that the layer before, whose weights are large, was divided like that and each thread reads what
    it wrote; and where rows are too few. But a thread's channels of a pixel are to be a long run, unless the
    rows are even fewer, or a window of 5x5 reads several of the other thread's.

    Args:
        read_bytes: of an element of the image.
    """
    if window.batch * window.height * window.width <= FEW_PIXELS:
        short = target.threads > 1 and window.channels * read_bytes < LEAST_RUN * target.threads
        by_rows = short and window.size[0] <= 3 and window.height >= 2 * target.threads
        return steps >= 4 * target.threads and not by_rows
    return window.batch * window.out_height < target.threads


def _block(window: Window, target: CpuTarget, row: int, lanes: int, *, by_channels: bool) -> int:
    """Channels of a task, in vectors: the rows of the window, as wide as the strip, fit the L1 cache.

    Args:
        row: bytes of those rows, of one vector of channels.
    """
    steps = -(-window.channels // lanes)
    fits = max(2, target.l1d_bytes * 2 // 3 // row)
    blocks = -(-steps // fits)
    if by_channels:
        blocks = -(-blocks // target.threads) * target.threads
    block = -(-steps // blocks)
    # The last step may overlap the one before, which must then be of the same task.
    while window.channels % lanes and (steps - 1) % block == 0 and block < steps:
        block += 1
    return block


def _row_parts(window: Window, target: CpuTarget) -> int:
    """Into how many parts the rows are cut: few, for each reads rows of its neighbours again."""
    threads = target.threads
    parts = -(-window.out_height // (4 if window.size[0] <= 3 else 8))
    return min(window.out_height, -(-parts // threads) * threads)
