"""Writes ResNet-18 as an ONNX file: ``python examples/resnet18.py OUT.onnx``.

The architecture is exactly torchvision's (11 689 512 parameters, input 1x3x224x224, 1000 logits) with
torchvision's parameter names. The weights are seeded random numbers with the statistics of a trained network,
so that every layer's activations are of order 1: what matters for compiling, measuring and comparing.

K. He et al., "Deep Residual Learning for Image Recognition", 2015, arXiv:1512.03385.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["build", "main"]

OPSET = 17
IR_VERSION = 8

#: (channels, stride of the first block) of the four stages of two blocks each.
STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))


class ResNetWriter:
    """Collects nodes and parameters; each method appends a layer and returns the name of its output."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.parameters: list[onnx.TensorProto] = []

    def parameter(self, name: str, value: np.ndarray) -> str:
        self.parameters.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name

    def node(self, op_type: str, inputs: list[str], name: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        return name

    def conv(self, x: str, name: str, cin: int, cout: int, *, kernel: int, stride: int) -> str:
        """Convolution without bias; weights scaled so that inputs of mean square 1/2 give variance 1."""
        std = np.sqrt(2.0 / (cin * kernel * kernel))
        weight = self.rng.normal(0.0, std, (cout, cin, kernel, kernel))
        return self.node(
            "Conv",
            [x, self.parameter(f"{name}.weight", weight)],
            f"{name}.output",
            kernel_shape=[kernel, kernel],
            pads=[kernel // 2] * 4,
            strides=[stride, stride],
        )

    def batch_norm(self, x: str, name: str, channels: int, gamma: tuple[float, float]) -> str:
        """Batch normalisation whose running statistics scatter around those of the convolution's output."""
        rng = self.rng
        inputs = [
            x,
            self.parameter(f"{name}.weight", rng.uniform(*gamma, channels)),
            self.parameter(f"{name}.bias", rng.normal(0.0, 0.2, channels)),
            self.parameter(f"{name}.running_mean", rng.normal(0.0, 0.3, channels)),
            self.parameter(f"{name}.running_var", rng.lognormal(0.0, 0.3, channels)),
        ]
        return self.node("BatchNormalization", inputs, f"{name}.output", epsilon=1e-5)

    def block(self, x: str, name: str, cin: int, cout: int, stride: int) -> str:
        """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution where the shape changes."""
        y = self.conv(x, f"{name}.conv1", cin, cout, kernel=3, stride=stride)
        y = self.batch_norm(y, f"{name}.bn1", cout, (0.7, 1.3))
        y = self.node("Relu", [y], f"{name}.relu1.output")
        y = self.conv(y, f"{name}.conv2", cout, cout, kernel=3, stride=1)
        y = self.batch_norm(y, f"{name}.bn2", cout, (0.3, 0.7))
        if stride != 1 or cin != cout:
            x = self.conv(x, f"{name}.downsample.0", cin, cout, kernel=1, stride=stride)
            x = self.batch_norm(x, f"{name}.downsample.1", cout, (0.5, 0.9))
        y = self.node("Add", [y, x], f"{name}.add.output")
        return self.node("Relu", [y], f"{name}.relu2.output")

    def network(self) -> None:
        """The whole network, from ``input`` to ``logits``."""
        x = self.conv("input", "conv1", 3, 64, kernel=7, stride=2)
        x = self.batch_norm(x, "bn1", 64, (0.7, 1.3))
        x = self.node("Relu", [x], "relu.output")
        x = self.node(
            "MaxPool", [x], "maxpool.output", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
        )
        channels = 64
        for index, (width, stride) in enumerate(STAGES, start=1):
            x = self.block(x, f"layer{index}.0", channels, width, stride)
            x = self.block(x, f"layer{index}.1", width, width, 1)
            channels = width
        x = self.node("GlobalAveragePool", [x], "avgpool.output")
        x = self.node("Flatten", [x], "flatten.output", axis=1)
        weight = self.parameter("fc.weight", self.rng.normal(0.0, np.sqrt(1.0 / channels), (1000, channels)))
        bias = self.parameter("fc.bias", self.rng.normal(0.0, 0.1, 1000))
        self.node("Gemm", [x, weight, bias], "logits", transB=1)


def build(seed: int = 0) -> onnx.ModelProto:
    """ResNet-18 with weights drawn from ``seed``; the same seed gives the same bytes."""
    writer = ResNetWriter(seed)
    writer.network()
    graph = helper.make_graph(
        writer.nodes,
        "resnet18",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, 224, 224])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 1000])],
        initializer=writer.parameters,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    model.producer_name = "edgepack-examples"
    return model


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Write ResNet-18 with seeded weights as an ONNX file.")
    parser.add_argument("output", type=Path, metavar="OUT.onnx")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    model = build(arguments.seed)
    onnx.save(model, str(arguments.output))
    count = sum(math.prod(one.dims) for one in model.graph.initializer)
    size = arguments.output.stat().st_size / 2**20
    nodes = len(model.graph.node)
    about = f"ResNet-18 for images of 224x224, {nodes} nodes, {count / 1e6:.1f} million random weights"
    print(f"{arguments.output}: {about}, {size:.1f} MiB")


if __name__ == "__main__":
    main()
