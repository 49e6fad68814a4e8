"""Writes the three models of the fleet, with weights that stand for trained ones, and a recorded input:
``python make_models.py [FOLDER]``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray


class Network:
    """Layers behind each other."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name, self.shape = name, shape
        self.random = np.random.default_rng(len(name))
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.last = "input"

    def node(self, operator: str, *weights: Array, **attributes: object) -> None:
        names = [f"w{len(self.weights) + index}" for index in range(len(weights))]
        self.weights += [numpy_helper.from_array(w, name) for w, name in zip(weights, names, strict=True)]
        output = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, [self.last, *names], [output], **attributes))
        self.last = output

    def conv(self, before: int, after: int, **attributes: object) -> None:
        self.node(
            "Conv", self.normal(after, before, 3, 3), self.normal(after), pads=[1, 1, 1, 1], **attributes
        )
        self.node("Relu")

    def dense(self, before: int, after: int) -> None:
        self.node("Gemm", self.normal(before, after), self.normal(after))

    def normal(self, *shape: int) -> Array:
        scale = np.sqrt(2 / max(1, int(np.prod(shape[1:]))))
        return (self.random.standard_normal(shape) * scale).astype("f4")

    def save(self, folder: Path, outputs: int) -> None:
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(self.last, TensorProto.FLOAT, [1, outputs])],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        (folder / f"{self.name}.onnx").write_bytes(model.SerializeToString())


def main(folder: Path) -> None:
    """Write ``keywords.onnx``, ``gestures.onnx``, ``anomaly.onnx`` and ``spectrogram.npy``."""
    folder.mkdir(parents=True, exist_ok=True)
    keywords = Network("keywords", (1, 1, 40, 49))  # spoken words, of a spectrogram
    keywords.conv(1, 16, strides=[2, 2])
    keywords.conv(16, 32, strides=[2, 2])
    keywords.conv(32, 32)
    keywords.node("GlobalAveragePool")
    keywords.node("Flatten")
    keywords.dense(32, 12)
    keywords.node("Softmax")
    keywords.save(folder, 12)
    gestures = Network("gestures", (1, 6, 64, 1))  # of six axes of an inertial sensor
    gestures.conv(6, 16)
    gestures.node("MaxPool", kernel_shape=[2, 1], strides=[2, 1])
    gestures.conv(16, 32)
    gestures.node("GlobalAveragePool")
    gestures.node("Flatten")
    gestures.dense(32, 8)
    gestures.save(folder, 8)
    anomaly = Network("anomaly", (1, 128))  # an autoencoder of a machine's sound
    for before, after in ((128, 64), (64, 8), (8, 64)):
        anomaly.dense(before, after)
        anomaly.node("Relu")
    anomaly.dense(64, 128)
    anomaly.save(folder, 128)
    recorded = np.abs(np.random.default_rng(1).standard_normal((1, 1, 40, 49))).astype("f4")
    np.save(folder / "spectrogram.npy", recorded)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "models")
