"""Networks of bytes on microcontrollers with ``--optimize size``: one piece of code for borders, blocks of
channels and steps of the reduction, and numbers of each channel of 8, 16 and 24 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgepack
from edgepack.compiler.frontend.onnx.fixed_point import DOMAIN, MULTIPLY
from workbench.models import save

Array = np.ndarray[Any, Any]

#: The others have the kernels of these, or are here with ``-m slow``.
DEVICES = ("cortex-m4", "cortex-m55", "esp32-c3", pytest.param("cortex-m0plus", marks=pytest.mark.slow))


class Network:
    """Operators of integers as TFLite's converter writes them."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(11)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def const(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        name = f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, domain=domain, **attributes))
        return name

    def less_zero(self, x: str) -> str:
        """Bytes, channels first, less the zero point."""
        x = self.op("Sub", self.op("Cast", x, to=TensorProto.INT32), self.const(np.array(-7, np.int32)))
        return self.op("Transpose", x, perm=[0, 3, 1, 2])

    def conv(self, x: str, shape: tuple[int, ...], stride: int, pads: list[int], group: int = 1) -> str:
        """A convolution of bytes, and its result as bytes."""
        weights = self.const(self.random.integers(-127, 128, shape).astype(np.int32))
        sums = self.op(
            *("Conv", self.less_zero(x), weights),
            kernel_shape=list(shape[2:]),
            strides=[stride, stride],
            pads=pads,
            group=group,
        )
        most = 30_000 if group > 1 else 300_000
        biases = self.random.integers(-most, most, shape[0]).astype(np.int32)
        x = self.op("Add", self.op("Transpose", sums, perm=[0, 2, 3, 1]), self.const(biases))
        factors = self.random.integers(1 << 30, (1 << 31) - 1, shape[0]).astype(np.int32)
        shifts = self.random.integers(-11, -7, shape[0]).astype(np.int32)
        x = self.op(MULTIPLY, x, self.const(factors), self.const(shifts), domain=DOMAIN, largest=1 << 24)
        bounds = [self.const(np.array(n, np.int32)) for n in (-128, 127)]
        x = self.op("Clip", self.op("Add", x, self.const(np.array(-7, np.int32))), *bounds)
        return self.op("Cast", x, to=TensorProto.INT8)

    def model(self, result: str, shape: list[int]) -> onnx.ModelProto:
        given = helper.make_tensor_value_info("x", TensorProto.INT8, [1, 13, 11, 3])
        out = helper.make_tensor_value_info(result, TensorProto.INT8, shape)
        graph = helper.make_graph(self.nodes, "g", [given], [out], self.constants)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def network() -> onnx.ModelProto:
    """Strides, paddings of one and of both sides, channels that no vector, word or block divides."""
    n, around = Network(), [1, 1, 1, 1]
    x = n.conv("x", (20, 3, 3, 3), 1, around)
    x = n.conv(x, (20, 1, 3, 3), 1, around, group=20)
    x = n.conv(x, (26, 20, 1, 1), 1, [0] * 4)
    x = n.conv(x, (26, 1, 3, 3), 2, [0, 0, 1, 1], group=26)
    x = n.conv(x, (14, 26, 3, 3), 2, [1, 0, 1, 1])
    x = n.conv(x, (7, 14, 1, 1), 1, [0] * 4)
    return n.model(x, [1, 4, 3, 7])


@pytest.mark.parametrize("device", DEVICES)
def test_short_code_computes_every_bit(device: str, tmp_path: Path) -> None:
    path = save(network(), tmp_path, "network.onnx")
    bundle = edgepack.pack(path, device, tmp_path / "bundle", optimize="size")
    found = bundle.verify()
    assert found.ok, found
