"""Quantises networks as users do, with ONNX Runtime's own quantiser, on random calibration data."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs

__all__ = ["SCHEMES", "convolutional", "quantise"]

#: Ways to quantise: the format, the types of activations and of weights, and whether weights have a scale for
#: each channel. "dynamic" has no calibration.
SCHEMES: dict[str, tuple[str, str, str, bool]] = {
    "u8s8": ("QDQ", "QUInt8", "QInt8", True),
    "s8s8": ("QDQ", "QInt8", "QInt8", True),
    "u8u8": ("QDQ", "QUInt8", "QUInt8", False),
    "qoperator": ("QOperator", "QUInt8", "QInt8", True),
    "qoperator_s8": ("QOperator", "QInt8", "QInt8", False),
    "dynamic": ("dynamic", "QUInt8", "QInt8", False),
    "dynamic_u8": ("dynamic", "QUInt8", "QUInt8", False),
    "s16": ("QDQ", "QInt16", "QInt8", True),
    "u16": ("QDQ", "QUInt16", "QUInt8", False),
}

#: Sets of inputs that ranges are measured on.
SAMPLES = 2


class _Samples:
    """What ONNX Runtime's calibration reads."""

    def __init__(self, model: onnx.ModelProto, seed: int) -> None:
        self._left = [random_inputs(model, seed + number) for number in range(SAMPLES)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self._left.pop() if self._left else None


def quantise(model: onnx.ModelProto, scheme: str, *, seed: int = 0, **options: Any) -> onnx.ModelProto:
    """The model, whose inputs have static shapes, quantised; ``options`` are those of ONNX Runtime's
    ``quantize_static`` or ``quantize_dynamic``."""
    from onnxruntime import quantization

    kind, activations, weights, channels = SCHEMES[scheme]
    types = quantization.QuantType
    logging.getLogger().setLevel(logging.ERROR)  # it advises to run its preprocessing first
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "float.onnx", Path(folder) / "quantised.onnx"
        onnx.save(model, str(source))
        common = {"per_channel": channels, "weight_type": types[weights], **options}
        if kind == "dynamic":
            quantization.quantize_dynamic(source, target, **common)
        else:
            quantization.quantize_static(
                source,
                target,
                _Samples(model, seed),
                quant_format=quantization.QuantFormat[kind],
                activation_type=types[activations],
                **common,
            )
        return onnx.load(str(target))


def convolutional(seed: int = 0) -> onnx.ModelProto:
    """A small convolutional network with each kind of operator that ONNX Runtime's quantiser knows there."""
    g = Graph("convolutional", seed=seed)
    x = g.conv_bn(g.input("x", [1, 3, 16, 16]), 3, 8, 3, act="Relu")
    x = g.op("Add", x, g.conv_bn(x, 8, 8, 3, act="relu6"))
    x = g.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    pooled = g.op("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4)
    x = g.op("Concat", g.act(g.conv_bn(x, 8, 8, 1, act=""), "LeakyRelu"), pooled, axis=1)
    x = g.squeeze_excite(x, 16, 4, "Relu", "Sigmoid")
    x = g.gemm(g.op("Flatten", g.op("GlobalAveragePool", x)), 16, 10)
    g.op("Softmax", x, name="y")
    g.output("y")
    return g.model()
