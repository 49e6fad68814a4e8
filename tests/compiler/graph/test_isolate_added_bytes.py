"""What two convolutions compute as bytes and an addition joins lies in memory as bytes, and every byte of the
sum is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.compiler.kernels.test_quantised import convolved
from workbench.compiled import Compiled
from workbench.models.builder import Graph

#: Scale and zero point of the input, of what either convolution makes, and of the sum; the input's and theirs
#: are of the same type.
STEPS: dict[str, tuple[tuple[float, int], ...]] = {
    "uint8": ((0.04, 120), (0.03, 140), (0.05, 9), (0.043, 17)),
    # Scales that are powers of two, so that many sums lie in the middle of two steps.
    "int8": ((0.5, -3), (0.25, 80), (0.5, -110), (1.0, -20)),
}
#: The block of this type has a Relu behind the addition.
RECTIFIED = "uint8"
#: Window and stride of the main branch, and of the shortcut; channels.
WINDOWS, STRIDE, CHANNELS = (3, 1), 2, (16, 40)
WEIGHT_SCALE = np.float32(0.011)


def _pads(window: int) -> list[int]:
    return [window // 2] * 4


class Block:
    """A block of a residual network whose shortcut is a projection."""

    def __init__(self, dtype: str) -> None:
        self.dtype, g = dtype, Graph(f"block_{dtype}", seed=4)
        self.steps = [(np.float32(scale), np.array(zero, dtype)) for scale, zero in STEPS[dtype]]
        x = g.input("x", (1, CHANNELS[0], 9, 11), dtype)
        self.weights = [
            g.rng.integers(-128, 128, (CHANNELS[1], CHANNELS[0], k, k)).astype(np.int8) for k in WINDOWS
        ]
        added = [self._branch(g, x, number) for number in range(2)]
        both = g.op("Add", *added)
        both = g.op("Relu", both) if dtype == RECTIFIED else both
        g.output(g.op("QuantizeLinear", both, *map(g.const, self.steps[3]), name="y"), dtype)
        self.model: onnx.ModelProto = g.model()

    def _branch(self, g: Graph, x: str, number: int) -> str:
        window, made = WINDOWS[number], [*map(g.const, self.steps[1 + number])]
        weights = [g.const(one) for one in (self.weights[number], WEIGHT_SCALE, np.int8(0))]
        window_of: dict[str, Any] = {"strides": [STRIDE, STRIDE], "pads": _pads(window)}
        q = g.op("QLinearConv", x, *map(g.const, self.steps[0]), *weights, *made, **window_of)
        return g.op("DequantizeLinear", q, *made)

    def defined(self, x: np.ndarray) -> np.ndarray:
        """By the operators' definitions."""
        info, sums = np.iinfo(self.dtype), np.float32(0)
        scale, zero = self.steps[0]
        for number, window in enumerate(WINDOWS):
            step, offset = self.steps[1 + number]
            attributes = {"strides": [STRIDE, STRIDE], "pads": _pads(window)}
            products = convolved(x.astype(np.int64) - zero, self.weights[number].astype(np.int64), attributes)
            scaled = products.astype(np.float32) * (np.float32(scale * WEIGHT_SCALE) / step)
            bytes_ = np.clip(np.rint(scaled).astype(np.int64) + offset, info.min, info.max)
            sums = sums + (bytes_ - offset).astype(np.float32) * step
        step, offset = self.steps[3]
        sums = np.maximum(sums, 0) if self.dtype == RECTIFIED else sums
        rounded = np.rint(sums / step).astype(np.int64) + offset
        return np.clip(rounded, info.min, info.max).astype(self.dtype)


BLOCKS = {dtype: Block(dtype) for dtype in STEPS}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    models = {name: block.model for name, block in BLOCKS.items()}
    return Compiled(models, tmp_path_factory.mktemp("added"))


@pytest.mark.parametrize("name", STEPS)
def test_every_byte_is_that_of_the_definition(compiled: Compiled, name: str) -> None:
    info = np.iinfo(name)
    x = np.random.default_rng(8).integers(info.min, info.max + 1, (1, CHANNELS[0], 9, 11)).astype(name)
    expected = BLOCKS[name].defined(x)
    assert len(np.unique(expected)) > 40
    np.testing.assert_array_equal(compiled.run(name, {"x": x})["y"], expected)


@pytest.mark.parametrize("name", STEPS)
def test_the_shortcut_lies_in_memory_as_bytes(compiled: Compiled, name: str) -> None:
    kernels = [kernel for kernel in compiled.plan(name).kernels if "conv2d" in kernel.ops]
    first, last = kernels[-2:]
    assert "multiply" in first.ops and first.ops[-1] == "cast", first.ops
    assert last.ops.count("add") > first.ops.count("add") and "divide" in last.ops, last.ops


def test_what_is_of_floats_is_fused_as_before(tmp_path: Path) -> None:
    g = Graph("floats", seed=4)
    x = g.input("x", [1, 16, 9, 11])
    g.op(
        "Relu",
        g.op("Add", g.conv(x, 16, 40, 3, stride=2, bias=True), g.conv(x, 16, 40, 1, stride=2)),
        name="y",
    )
    g.output("y")
    compiled = Compiled({"m": g.model()}, tmp_path)
    kernels = [kernel.ops for kernel in compiled.plan("m").kernels if "conv2d" in kernel.ops]
    assert kernels[-1][-2:] == ("add", "relu") and len(kernels) == 2
    compiled.check("m")
