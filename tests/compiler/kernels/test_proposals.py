"""What the cost models of convolutions propose fits what they propose it for, and given again is the same.

A proposal that its own check refuses would send the group to a slower rule.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.conv import gemm_schedule, grouped_conv, grouped_cost, winograd_schedule
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.window import Window
from edgepack.compiler.kernels.cpu.conv.window_schedule import (
    GroupedSchedule,
    SlidingSchedule,
    propose_sliding,
)
from edgepack.compiler.kernels.cpu.micro.dot4_bytes import Dot4Bytes
from edgepack.compiler.kernels.cpu.micro.matrix_tiles import MatrixTiles
from edgepack.compiler.kernels.cpu.micro.multiply_add import MultiplyAdd
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.compiler.kernels.schedule import Schedule, ScheduleError
from edgepack.config.device import load_device
from edgepack.plan.target import CpuTarget
from workbench.compiled import REGISTER_FILES, target_with

#: Draws input channels, output channels and groups.
Channels = Callable[[random.Random], tuple[int, int, int]]

FLOAT32 = ProductTypes.of("float32")
BYTES = ProductTypes("uint8", "int8", "int32", "uint8")
#: CPUs that multiply quads of bytes.
VNNI = tuple(load_device(f"linux-x86_64-{name}").cpu_target() for name in ("vnni", "avxvnni"))
AMX = load_device("linux-x86_64-amx").cpu_target()
DEVICES = ("cortex-m4", "cortex-m55", "raspberrypi0", "raspberrypi4", "wasm32-wasi", "linux-riscv64-v")
SIZES = (1, 2, 3, 5, 8, 14, 15, 28, 112)


def _targets() -> list[CpuTarget]:
    caches = (32 << 10, 256 << 10, 1 << 20)
    files = [
        target_with(registers, threads=threads, l2_bytes=l2_bytes)
        for registers in REGISTER_FILES
        for threads in (1, 2, 3, 8)
        for l2_bytes in caches
    ]
    return [*files, *(load_device(name).cpu_target() for name in DEVICES)]


def _drawn(rng: random.Random, channels: tuple[int, int, int]) -> Conv2d | None:
    """A convolution of these input and output channels and groups; None where windows do not fit."""
    kernel, strides, dilation = ((rng.randint(1, most), rng.randint(1, most)) for most in (7, 3, 3))
    top, left, bottom, right = (rng.randint(0, 3) for _ in range(4))
    height, width = rng.choice(SIZES), rng.choice(SIZES)
    padded = height + top + bottom, width + left + right
    reach = [(kernel[i] - 1) * dilation[i] for i in (0, 1)]
    rows, columns = ((padded[i] - reach[i] - 1) // strides[i] + 1 for i in (0, 1))
    if min(rows, columns) < 1:
        return None
    inputs, outputs, groups = channels
    sizes = (rng.randint(1, 3), height, width, inputs, rows, columns, outputs)
    return Conv2d(*sizes, kernel, strides, dilation, top, left, bottom, right, groups, FLOAT32)


def _sliding(conv: Conv2d, target: CpuTarget, given: SlidingSchedule) -> Schedule:
    return propose_sliding(Window.of(conv), target, (conv.dtype, conv.dtype), given, weighted=True)


def _gemm(conv: Conv2d, target: CpuTarget, given: gemm_schedule.GemmSchedule) -> Schedule:
    return gemm_schedule.propose(conv, MultiplyAdd(FLOAT32, target), given)


def _tiles(conv: Conv2d, target: CpuTarget, given: gemm_schedule.GemmSchedule) -> Schedule:
    """Of matrices of bytes, whatever the target is, over as many threads as it has."""
    micro = MatrixTiles.of(BYTES, replace(AMX, threads=target.threads))
    assert micro is not None
    return gemm_schedule.propose(conv.in_units(4), micro, given)


def _units(conv: Conv2d, target: CpuTarget, given: GroupedSchedule) -> Schedule:
    """Of quads of bytes, whatever the target is."""
    micro = Dot4Bytes.of(BYTES, VNNI[conv.height % 2])
    assert micro is not None
    return grouped_cost.propose_units(conv, micro, given)[2]


def _depthwise(rng: random.Random) -> tuple[int, int, int]:
    channels = rng.randint(2, 200)
    return channels, channels, channels


def _grouped(rng: random.Random) -> tuple[int, int, int]:
    groups = rng.choice((2, 3, 8, 32))
    return groups * rng.choice((1, 2, 4, 8, 16)), groups * rng.choice((1, 2, 4, 8, 16)), groups


def _dense(rng: random.Random) -> tuple[int, int, int]:
    return rng.randint(1, 2000), rng.randint(1, 2000), 1


def _quads(rng: random.Random) -> tuple[int, int, int]:
    return 4 * rng.randint(1, 500), rng.randint(1, 2000), 1


#: By builder: input channels, output channels and groups; what proposes; the schedule in which all is open.
BUILDERS: dict[str, tuple[Channels, Callable[..., Schedule | None], Schedule]] = {
    "depthwise": (_depthwise, _sliding, SlidingSchedule()),
    "grouped": (_grouped, grouped_conv.propose, GroupedSchedule()),
    "groups of units": (_grouped, _units, GroupedSchedule()),
    "implicit GEMM": (_dense, _gemm, gemm_schedule.GemmSchedule()),
    "matrix tiles": (_quads, _tiles, gemm_schedule.GemmSchedule()),
    "Winograd": (_dense, winograd_schedule.propose, winograd_schedule.WinogradSchedule()),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_proposals_fit(name: str) -> None:
    channels, propose, nothing = BUILDERS[name]
    rng, targets, found = random.Random(name), _targets(), 0
    for _ in range(300):
        conv, target = _drawn(rng, channels(rng)), rng.choice(targets)
        if conv is None:
            continue
        try:
            proposed = propose(conv, target, nothing)
        except ScheduleError as error:
            pytest.fail(f"{error}: {conv} on {target}")
        except RuleError:  # for another rule
            continue
        if proposed is not None:
            found += 1
            assert propose(conv, target, proposed) == proposed
    assert found > 20


@pytest.mark.parametrize("height", [14, 15])
@pytest.mark.parametrize("groups", [3, 5])
def test_the_last_groups_are_of_the_task_of_those_they_overlap(height: int, groups: int) -> None:
    """Also where rows are so few that each block of groups would be a task."""
    target = replace(VNNI[0], threads=8)
    channels = 8 * groups
    sizes = (1, 1, height, channels, 1, height, channels)
    conv = Conv2d(*sizes, (1, 3), (1, 1), (1, 1), 0, 1, 0, 1, groups, FLOAT32)
    micro = Dot4Bytes.of(BYTES, target)
    assert micro is not None
    units = conv.in_units(micro.group)
    _, layout, proposed = grouped_cost.propose_units(units, micro, GroupedSchedule(lanes=16))
    blocks = -(-groups // layout.groups)
    assert groups % layout.groups
    assert proposed.block is not None
    assert (blocks - 1) % proposed.block
    with pytest.raises(ScheduleError, match="would overlap another task's"):
        grouped_cost.propose_units(units, micro, replace(proposed, block=1))


@pytest.mark.parametrize(("read", "lanes"), [("uint8", 32), ("int16", 16)])
def test_vectors_are_halved_where_pixels_begin_in_the_middle_of_a_cache_line(read: str, lanes: int) -> None:
    """144 channels of two bytes do, and of bytes, which are widened when they are loaded, a vector is half a
    line."""
    conv = Conv2d(*(1, 28, 28, 144, 28, 28, 144), (3, 3), (1, 1), (1, 1), *[1] * 4, 144, FLOAT32)
    found = propose_sliding(
        Window.of(conv), VNNI[0], ("int16", read), SlidingSchedule(), weighted=True, vectors=2
    )
    assert found.lanes == lanes


def _image(size: int, inputs: int, outputs: int, kernel: int = 1, groups: int = 1) -> Conv2d:
    """A convolution that keeps a square image's size."""
    around = kernel // 2
    sizes = (1, size, size, inputs, size, size, outputs)
    return Conv2d(*sizes, (kernel, kernel), (1, 1), (1, 1), around, around, around, around, groups, FLOAT32)


@pytest.mark.parametrize(
    ("size", "channels", "kernel", "threads", "parts"),
    [
        pytest.param(7, 960, 3, 2, 1, id="long runs of channels"),
        pytest.param(7, 232, 3, 2, 2, id="short ones"),
        pytest.param(7, 232, 3, 1, 1, id="one thread"),
        pytest.param(7, 960, 3, 4, 1, id="rows that do not come out even"),
        pytest.param(8, 960, 3, 4, 4, id="short ones of four threads"),
        pytest.param(7, 232, 5, 2, 1, id="two of the other thread's rows"),
        pytest.param(3, 232, 3, 2, 1, id="few rows"),
    ],
)
def test_threads_divide_channels_of_which_each_has_a_long_run(
    size: int, channels: int, kernel: int, threads: int, parts: int
) -> None:
    target = target_with(next(iter(REGISTER_FILES)), threads=threads, l2_bytes=1 << 20)
    proposed = _sliding(_image(size, channels, channels, kernel, channels), target, SlidingSchedule())
    assert isinstance(proposed, SlidingSchedule)
    assert proposed.row_parts == parts


@pytest.mark.parametrize(("propose", "size"), [(_gemm, 5), (_tiles, 11)])
def test_threads_share_the_rows_of_a_product_with_small_weights(
    propose: Callable[..., gemm_schedule.GemmSchedule], size: int
) -> None:
    """They would write to the same cache lines, were the columns shared: 64 of bytes are one. A block is not
    as large as it would be for one thread."""
    blocks = []
    for threads in (1, 2):
        target = target_with(next(iter(REGISTER_FILES)), threads=threads, l2_bytes=1 << 20)
        proposed = propose(_image(size, 64, 64), target, gemm_schedule.GemmSchedule())
        assert not proposed.weight_stationary
        blocks.append(proposed.row_blocks)
    assert blocks == [1, 2]
