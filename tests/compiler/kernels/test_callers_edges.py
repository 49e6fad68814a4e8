"""No kernel reads beside a tensor, not even what it then leaves out: a caller's image may begin or end
where a page does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy as np
import onnx
import pytest

from edgepack.errors import EdgepackError
from tests.support.processes import in_fork
from workbench.compiled import REGISTER_FILES, Compiled, Library, target_with
from workbench.hostile_inputs import KINDS, hostile_inputs
from workbench.models.builder import Graph
from workbench.models.chains.drawn import Chain
from workbench.models.evaluate import random_inputs

#: Rows and columns of padding before and behind the image: on the axis whose rows tiles are made of too.
PADS = {
    "around": (1, 1, 1, 1),
    "above": (3, 0, 0, 0),
    "left": (0, 3, 0, 0),
    "right": (0, 0, 0, 3),
    "below": (0, 0, 3, 0),
}
REGISTERS = ("128x16", "256x16", "512x32")


def channels_last(pads: Sequence[int]) -> onnx.ModelProto:
    """An image that is padded, with its channels innermost, as most convolutions want it."""
    g = Graph("padded")
    y = g.op("Pad", g.input("x", (1, 8, 6, 12)), g.const([0, 0, *pads[:2], 0, 0, *pads[2:]]))
    g.op("Transpose", y, perm=[0, 2, 3, 1], name="z")
    g.output("z")
    return g.model()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    models = {name: channels_last(pads) for name, pads in PADS.items()}
    pairs = [(registers, name) for registers in REGISTERS for name in PADS]
    return Library(models, pairs, tmp_path_factory.mktemp("edges"), target_with)


@pytest.mark.parametrize("registers", REGISTERS)
@pytest.mark.parametrize("at_start", [False, True], ids=["end", "start"])
def test_padded_transposes_read_nothing_beside_an_image(
    library: Library, registers: str, at_start: bool
) -> None:
    compiled = library(registers)
    x = np.arange(8 * 6 * 12, dtype=np.float32).reshape(1, 8, 6, 12) + 1
    tiled = 0
    for name, pads in PADS.items():
        (kernel,) = compiled.plan(name).kernels
        tiled += bool(kernel.parameters["tiled"])
        above, left, below, right = pads
        want = np.pad(x, ((0, 0), (0, 0), (above, below), (left, right))).transpose(0, 2, 3, 1)

        def same(_: object, name: str = name, want: np.ndarray = want) -> None:
            np.testing.assert_array_equal(compiled.run(name, {"x": x}, at_start=at_start)["z"], want)

        assert in_fork(same) == "", name
    assert tiled, "tiles are what is tried here"


#: How many chains are drawn for each register file, and from which seed on.
SAMPLE = [("128x16", 0, 4)]
ALL = [
    pytest.param(registers, first, 25, marks=pytest.mark.slow)
    for registers in REGISTER_FILES
    for first in range(100, 300, 25)
]


@pytest.mark.parametrize(("registers", "first", "count"), [*SAMPLE, *ALL])
def test_drawn_chains_touch_nothing_beside_their_tensors(
    registers: str, first: int, count: int, tmp_path: Path
) -> None:
    """Operators on an image of any size, with numbers that are inputs' and such that nobody gives."""
    models = {str(seed): Chain(seed).model for seed in range(first, first + count)}
    compiled = Compiled(models, tmp_path, target_with(registers))

    def run(say: IO[str]) -> None:
        for name, model in models.items():
            with suppress(EdgepackError):
                compiled.plan(name)
                usual = random_inputs(model)
                for number, kind in enumerate((*KINDS, "")):
                    print(name, kind, file=say, flush=True)
                    inputs = hostile_inputs(usual, kind, number) if kind else usual
                    for at_start in (False, True):
                        compiled.run(name, inputs, at_start=at_start)

    assert in_fork(run) == ""
