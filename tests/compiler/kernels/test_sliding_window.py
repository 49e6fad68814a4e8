"""Depthwise convolution and pooling: every way in which the window rules cut channels, rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.kernels.cpu.conv.packed_taps import pack_taps
from edgepack.plan.target import CpuTarget
from workbench.compiled import Compiled
from workbench.models.builder import Graph
from workbench.models.single import conv, pool

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"

#: Triple (for the rules only), vector width in bits, registers, L1 bytes, what is preferred. The small caches
#: cut the channels into blocks.
TARGETS = {
    "avx2": (X86, 256, 16, 32 * 1024, "latency"),
    "avx512, small cache": (X86, 512, 32, 8 * 1024, "latency"),
    "neon": (ARM, 128, 32, 4 * 1024, "latency"),
    "rows in a loop": (X86, 256, 16, 4 * 1024, "size"),
}


def depthwise(shape: tuple[int, int, int, int], size: int, **options: object) -> onnx.ModelProto:
    return conv(shape, shape[1], (size, size), group=shape[1], **options)  # type: ignore[arg-type]


def residual(channels: int) -> onnx.ModelProto:
    """A tail that reads another tensor at the pixel's own position."""
    g = Graph("residual", seed=3)
    x = g.input("x", [2, channels, 7, 13])
    w = g.weight(channels, 1, 3, 3)
    y = g.op("Conv", x, w, g.weight(channels, std=1.0), pads=(1, 1, 1, 1), group=channels)
    g.op("Relu", g.op("Add", y, x), name="y")
    g.output("y")
    return g.model()


SAME, SAME5 = (1, 1, 1, 1), (2, 2, 2, 2)

MODELS = {
    "3x3": depthwise((1, 32, 14, 14), 3, pads=SAME),
    "3x3, one pixel": depthwise((1, 24, 1, 1), 3, pads=SAME),
    "3x3, wide": depthwise((1, 24, 9, 31), 3, pads=SAME),
    "3x3, stride 2, channels left over": depthwise((2, 43, 15, 18), 3, pads=SAME, strides=(2, 2)),
    "3x3, a block and a vector": depthwise((1, 83, 6, 5), 3, pads=SAME),
    "3x3, many blocks": depthwise((2, 211, 7, 7), 3, pads=SAME),
    "3x3, more channels than pixels": depthwise((1, 211, 5, 7), 3, pads=SAME),
    "3x3, more pixels": depthwise((1, 211, 9, 8), 3, pads=SAME),
    "3x3, more pixels read": depthwise((1, 211, 14, 14), 3, pads=SAME, strides=(2, 2)),
    "3x3, no padding": depthwise((1, 40, 11, 17), 3),
    "3x3, below only": depthwise((1, 17, 12, 12), 3, strides=(2, 2), pads=(0, 0, 1, 1)),
    "5x5": depthwise((1, 36, 17, 29), 5, pads=SAME5),
    "5x5, stride 2": depthwise((1, 72, 14, 15), 5, pads=SAME5, strides=(2, 2)),
    "5x5 on less": depthwise((1, 9, 2, 3), 5, pads=SAME5),
    "7x7": depthwise((1, 21, 10, 23), 7, pads=(3, 3, 3, 3)),
    "9x9": depthwise((1, 19, 13, 12), 9, pads=(4, 4, 4, 4)),
    "dilated": depthwise((1, 33, 12, 19), 3, dilations=(2, 3), pads=(2, 3, 2, 3)),
    "few channels": depthwise((2, 3, 8, 9), 3, pads=SAME),
    "residual": residual(27),
    "max": pool("MaxPool", (2, 37, 13, 27), kernel_shape=(4, 3), strides=(2, 2), pads=SAME),
    "max, stride 1": pool("MaxPool", (1, 64, 7, 7), kernel_shape=(3, 3), pads=SAME),
    "max, ceil": pool("MaxPool", (1, 48, 14, 15), kernel_shape=(3, 3), strides=(2, 2), ceil_mode=1),
    "max, dilated": pool("MaxPool", (1, 11, 12, 9), kernel_shape=(3, 2), dilations=(2, 3)),
    "max, large": pool("MaxPool", (1, 20, 16, 13), kernel_shape=(13, 13), pads=(6, 6, 6, 6)),
    "average": pool("AveragePool", (1, 37, 9, 14), kernel_shape=(3, 3), pads=SAME),
    "average, ceil": pool("AveragePool", (1, 16, 8, 9), kernel_shape=(3, 3), strides=(2, 2), ceil_mode=1),
    "average, padding counts": pool(
        "AveragePool", (1, 26, 8, 8), kernel_shape=(3, 3), pads=SAME, count_include_pad=1
    ),
    "average of all": pool("AveragePool", (2, 50, 7, 7), kernel_shape=(7, 7)),
}


#: What is tried on every target: blocks of channels and what is left of them, borders, steps, each kind of
#: pool. Everything is on the first target, and on all of them in the slow tests.
SENTINELS = (
    *(
        "3x3",
        "3x3, stride 2, channels left over",
        "3x3, many blocks",
        "3x3, more pixels",
        "3x3, more pixels read",
        "5x5 on less",
    ),
    *("3x3, more channels than pixels", "dilated", "max", "average, ceil"),
)
FIRST, *OTHERS = TARGETS


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bool], Compiled]:
    """The models of a target that are tried on every one, or all of them."""

    @cache
    def compiled(on: str, everything: bool) -> Compiled:
        models = {name: model for name, model in MODELS.items() if everything or name in SENTINELS}
        return _compiled(on, models, tmp_path_factory.mktemp("window"))

    return compiled


def _compiled(on: str, models: Mapping[str, onnx.ModelProto], folder: Path) -> Compiled:
    triple, bits, registers, l1d_bytes, optimize = TARGETS[on]
    target = CpuTarget(
        triple,
        vector_bits=bits,
        vector_registers=registers,
        l1d_bytes=l1d_bytes,
        threads=3,
        optimize=optimize,  # type: ignore[arg-type]
    )
    # The code runs here, whatever it was chosen for: LLVM splits vectors that are too wide.
    here = CpuTarget(X86, "x86-64", vector_bits=bits)
    return Compiled(models, folder, target, machine=here)


@pytest.fixture(params=TARGETS)
def compiled(request: pytest.FixtureRequest, library: Callable[[str, bool], Compiled]) -> Compiled:
    return library(request.param, request.param == FIRST)


@pytest.mark.parametrize(
    ("on", "name"),
    [
        *((FIRST, name) for name in MODELS),
        *((on, name) for on in OTHERS for name in SENTINELS),
        *(
            pytest.param(on, name, marks=pytest.mark.slow)
            for on in OTHERS
            for name in MODELS
            if name not in SENTINELS
        ),
    ],
)
def test_window_is_right(library: Callable[[str, bool], Compiled], on: str, name: str) -> None:
    compiled = library(on, on == FIRST or name not in SENTINELS)
    plan = compiled.plan(name)
    assert any(kernel.rule.startswith(("conv2d.depthwise", "pool2d")) for kernel in plan.kernels)
    compiled.check(name)


@pytest.mark.parametrize("name", ["3x3", "3x3, many blocks", "5x5 on less", "dilated"])
def test_padding_reads_nothing(compiled: Compiled, name: str) -> None:
    """NaN in two corners must reach the pixels whose windows hold them, and no others."""
    (spec,) = compiled.plan(name).inputs
    x = np.random.default_rng(0).standard_normal(spec.shape, np.float32)
    x[0, :, 0, 0] = x[-1, :, -1, -1] = np.nan
    got, expected = compiled.run(name, {"x": x})["y"], compiled.expected(name, {"x": x})["y"]
    assert (np.isnan(got) == np.isnan(expected)).all()


def test_threads_divide_what_there_is_more_of(compiled: Compiled) -> None:
    def tasks(name: str) -> int:
        (step,) = (s for s in compiled.plan(name).steps if "depthwise" in s.kernel)
        return step.tasks

    # By rows there are three tasks for each block of channels.
    by_rows, by_channels = tasks("3x3, more pixels"), tasks("3x3, more channels than pixels")
    assert by_rows % 3 == 0
    assert 3 <= by_channels < by_rows
    assert by_channels < tasks("3x3, more pixels read")


def test_weights_are_packed_by_vector_and_the_last_overlaps() -> None:
    weights = np.arange(2 * 1 * 1 * 6, dtype=np.float32).reshape(2, 1, 1, 6)
    packed = pack_taps(weights, 4)
    assert packed.tolist() == [0, 1, 2, 3, 6, 7, 8, 9, 2, 3, 4, 5, 8, 9, 10, 11]
