"""Tasks of a convolution are as much work for one thread as for another, and do each pixel once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from edgepack.compiler.kernels.cpu.conv.blocking import Blocking
from edgepack.compiler.kernels.cpu.conv.gemm_schedule import GemmSchedule, divided, propose
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.micro.multiply_add import MultiplyAdd
from workbench.compiled import Compiled, target_with
from workbench.models.builder import Graph
from workbench.models.single import conv, silu, single

PADS = (1, 1, 1, 1)


def _cut(size: int, channels: int, out: int, threads: int) -> Blocking:
    image = Conv2d(1, size, size, channels, size, size, out, (1, 1), (1, 1), (1, 1), 0, 0, 0, 0, 1)
    target = target_with("512x32", threads=threads, l2_bytes=1 << 20)
    micro = MultiplyAdd(image.types, target)
    return divided(image, micro, propose(image, micro, GemmSchedule()))


def _rows(cut: Blocking, thread: int, threads: int) -> int:
    """Pixels of the blocks that one thread has, when each has as many."""
    heights = [rows for rows, count in cut.tiles for _ in range(count)]
    each = cut.row_blocks // threads
    mine = range(thread * each, (thread + 1) * each)
    bounds = [(int(cut.first_tile(b % cut.blocks)), int(cut.first_tile(b % cut.blocks + 1))) for b in mine]
    return sum(sum(heights[first:last]) for first, last in bounds)


@pytest.mark.parametrize(
    ("size", "channels", "out", "threads"),
    [
        (14, 96, 384, 2),
        (14, 64, 96, 2),
        (14, 576, 192, 2),
        (14, 64, 96, 4),
        (28, 512, 256, 4),
        (56, 32, 64, 2),
    ],
)
def test_threads_get_as_many_pixels(size: int, channels: int, out: int, threads: int) -> None:
    cut = _cut(size, channels, out, threads)
    assert cut.thread_rows * sum(rows * count for rows, count in cut.tiles) == size * size
    assert cut.row_blocks % threads == 0
    assert {_rows(cut, thread, threads) for thread in range(threads)} == {size * size // threads}


def test_one_row_by_weights_beyond_the_cache_has_columns_for_each_thread() -> None:
    assert [_cut(1, 4096, 128, threads).tile.columns for threads in (1, 2, 4)] == [128, 64, 32]
    assert _cut(1, 4096, 96, 2).tile.columns == 48
    assert _cut(1, 1536, 128, 2).tile.columns == 128, "the cache holds them"
    assert _cut(1, 4096, 16, 2).tile.columns == 16, "one vector"


def test_one_row_by_shared_columns_is_right(tmp_path: Path) -> None:
    def body(g: Graph, x: str) -> str:
        return g.op("Add", g.op("MatMul", x, g.weight(300, 104, std=0.1)), g.weight(104))

    target = target_with("512x32", threads=4, l2_bytes=64 * 1024)
    compiled = Compiled({"row": single((1, 300), body)}, tmp_path, target)
    assert {kernel.parameters["tile"] for kernel in compiled.plan("row").kernels} == {"1x32"}
    compiled.check("row")


def test_pixels_are_not_cut_where_threads_share_out_the_columns_or_tiles_come_out_even() -> None:
    assert _cut(7, 960, 160, 2).thread_rows == 1  # an odd number
    assert _cut(8, 960, 320, 2).thread_rows == 1  # few pixels, many weights
    assert _cut(16, 32, 96, 2).thread_rows == 1  # 32 tiles of 8 pixels
    assert _cut(14, 96, 384, 1).thread_rows == 1


MODELS: dict[str, onnx.ModelProto] = {
    "pixels first": conv((1, 16, 14, 14), 96, (1, 1), activation=silu),
    "weights first": conv((1, 200, 14, 28), 400, (1, 1), residual=True),
    "window": conv((1, 12, 28, 28), 40, (3, 3), strides=(2, 2), pads=PADS),
    "images": conv((2, 24, 9, 14), 33, (1, 1), residual=True),
    "slices": conv((1, 256, 28, 28), 192, (3, 3), strides=(2, 2), pads=PADS),
    "groups": conv((1, 32, 28, 28), 64, (3, 3), strides=(2, 2), pads=PADS, group=2),
}


@pytest.fixture(scope="module", params=[2, 4])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    target = replace(target_with("512x32", threads=request.param), l2_bytes=256 * 1024)
    return Compiled(MODELS, tmp_path_factory.mktemp("bands"), target)


@pytest.mark.parametrize("name", list(MODELS))
def test_bands_of_pixels(compiled: Compiled, name: str) -> None:
    compiled.check(name)


def test_the_models_have_bands() -> None:
    """What the test above is about, for the tile that the rule takes there."""
    image = Conv2d(1, 14, 14, 16, 14, 14, 96, (1, 1), (1, 1), (1, 1), 0, 0, 0, 0, 1)
    for threads in (2, 4):
        target = target_with("512x32", threads=threads)
        micro = MultiplyAdd(image.types, target)
        cut = propose(image, micro, GemmSchedule(register_tile=(8, 48)))
        assert cut.thread_rows == threads
