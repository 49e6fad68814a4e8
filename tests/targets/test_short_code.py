"""Networks of bytes on microcontrollers with ``--optimize size``: one piece of code for borders, blocks of
channels and steps of the reduction, and numbers of each channel of 8, 16 and 24 bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import edgepack
from edgepack.compiler.frontend.onnx.fixed_point import DOMAIN, MULTIPLY
from tests.support.firmware import GCC, needs_gcc
from workbench.models import save
from workbench.models.builder import Graph

#: The others have the kernels of these, or are here with ``-m slow``.
DEVICES = (
    *("cortex-m55", "esp32-c3"),
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("cortex-m4", "cortex-m0plus")),
)


class Network(Graph):
    """Operators of integers as TFLite's converter writes them."""

    def __init__(self) -> None:
        super().__init__("network", seed=11)

    def less_zero(self, x: str) -> str:
        """Bytes, channels first, less the zero point."""
        x = self.op("Sub", self.op("Cast", x, to=TensorProto.INT32), self.const(np.array(-7, np.int32)))
        return self.op("Transpose", x, perm=[0, 3, 1, 2])

    def rescaled_conv(
        self, x: str, shape: tuple[int, ...], stride: int, pads: list[int], group: int = 1
    ) -> str:
        """A convolution of bytes, and its result as bytes."""
        weights = self.const(self.rng.integers(-127, 128, shape).astype(np.int32))
        sums = self.op(
            *("Conv", self.less_zero(x), weights),
            kernel_shape=list(shape[2:]),
            strides=[stride, stride],
            pads=pads,
            group=group,
        )
        most = 30_000 if group > 1 else 300_000
        biases = self.rng.integers(-most, most, shape[0]).astype(np.int32)
        x = self.op("Add", self.op("Transpose", sums, perm=[0, 2, 3, 1]), self.const(biases))
        factors = self.rng.integers(1 << 30, (1 << 31) - 1, shape[0]).astype(np.int32)
        shifts = self.rng.integers(-11, -7, shape[0]).astype(np.int32)
        x = self.op(MULTIPLY, x, self.const(factors), self.const(shifts), domain=DOMAIN, largest=1 << 24)
        bounds = [self.const(np.array(n, np.int32)) for n in (-128, 127)]
        x = self.op("Clip", self.op("Add", x, self.const(np.array(-7, np.int32))), *bounds)
        return self.op("Cast", x, to=TensorProto.INT8)


def network() -> onnx.ModelProto:
    """Strides, paddings of one and of both sides, channels that no vector, word or block divides."""
    n, around = Network(), [1, 1, 1, 1]
    x = n.rescaled_conv(n.input("x", [1, 13, 11, 3], "int8"), (20, 3, 3, 3), 1, around)
    x = n.rescaled_conv(x, (20, 1, 3, 3), 1, around, group=20)
    x = n.rescaled_conv(x, (26, 20, 1, 1), 1, [0] * 4)
    x = n.rescaled_conv(x, (26, 1, 3, 3), 2, [0, 0, 1, 1], group=26)
    x = n.rescaled_conv(x, (14, 26, 3, 3), 2, [1, 0, 1, 1])
    x = n.rescaled_conv(x, (7, 14, 1, 1), 1, [0] * 4)
    n.output(x, "int8", [1, 4, 3, 7])
    return n.model()


@pytest.mark.parametrize("device", DEVICES)
def test_short_code_computes_every_bit(device: str, tmp_path: Path) -> None:
    path = save(network(), tmp_path, "network.onnx")
    bundle = edgepack.pack(path, device, tmp_path / "bundle", optimize="size")
    found = bundle.verify()
    assert found.ok, found


@needs_gcc
def test_firmware_of_a_cortex_m0_plus_is_compiled_by_gcc_too(tmp_path: Path) -> None:
    """Whose assembler has another syntax there, unless it is told."""
    path = save(network(), tmp_path, "network.onnx")
    found = edgepack.pack(path, "cortex-m0plus", tmp_path / "bundle", toolchain=GCC).verify()
    assert found.ok, found
