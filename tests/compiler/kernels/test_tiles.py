"""Register tiles: half vectors where they take half the time and waste less."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.compiler.kernels.cpu.emit.register_tile import half_width_vectors
from workbench.compiled import Compiled, target_with
from workbench.models.single import conv

#: Output channels to the tile of a 1x1 convolution on a machine that does 512 bits in two halves.
TILES = {24: "8x24", 40: "5x40", 72: "8x24", 20: "8x20", 32: "12x32", 60: "6x60", 120: "6x64"}


def test_only_what_wastes_much_of_a_vector_is_halved() -> None:
    halves = target_with("512x32", datapath_bits=256)
    narrow = {
        columns for columns in range(1, 129) if half_width_vectors(halves, columns, "float32") is not halves
    }
    assert {24, 40, 72, 4, 8} <= narrow
    assert not {16, 32, 48, 60, 64, 120, 128, 127} & narrow
    whole = target_with("512x32")
    assert all(half_width_vectors(whole, columns, "float32") is whole for columns in range(1, 129))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    models = {f"1x1 to {columns}": conv((1, 19, 9, 11), columns, (1, 1)) for columns in TILES}
    models |= {
        f"3x3 to {columns}": conv((2, 5, 9, 10), columns, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
        for columns in (24, 40)
    }
    folder: Path = tmp_path_factory.mktemp("tiles")
    return Compiled(models, folder, target_with("512x32", datapath_bits=256))


@pytest.mark.parametrize("columns", list(TILES))
def test_tiles_of_half_vectors(compiled: Compiled, columns: int) -> None:
    (kernel,) = (k for k in compiled.plan(f"1x1 to {columns}").kernels if k.rule == "conv2d.igemm")
    assert kernel.parameters["tile"] == TILES[columns]
    compiled.check(f"1x1 to {columns}")


@pytest.mark.parametrize("columns", [24, 40])
def test_windows_in_half_vectors(compiled: Compiled, columns: int) -> None:
    compiled.check(f"3x3 to {columns}")
