"""C of emx-onnx-cgen for a float TFLite network, quantised to operators of integers; for mcu_sizes.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from edgepack.compiler.frontend.tflite.convert import convert
from edgepack.compiler.frontend.tflite.model_file import read_model

PACKAGE = "emx-onnx-cgen==1.4.0"
CPU = ["CPUExecutionProvider"]
#: What the code calls of C's library, which zig has without headers.
MATH = """float expf(float);
static inline float nearbyintf(float x) {
    return x > -0x1p22F && x < 0x1p22F ? (x + 0x1.8p23F) - 0x1.8p23F : x;
}
float fmaxf(float, float);
float fminf(float, float);
float roundf(float);
float floorf(float);
static inline double nearbyint(double x) { return x + 0x1.8p52 - 0x1.8p52; }
static inline long long llrint(double x) { return (long long)nearbyint(x); }
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define isnan __builtin_isnan
"""
STRING = (
    "#include <stddef.h>\nvoid *memcpy(void *, const void *, size_t);\nvoid *memset(void *, int, size_t);\n"
)


class Generated(NamedTuple):
    """The code, the folder of headers that it includes, and what ONNX Runtime makes of the input."""

    file: Path
    include: Path
    output: bytes


class Random(CalibrationDataReader):
    """Four random inputs: ranges say nothing about sizes."""

    def __init__(self, name: str, shape: list[int]) -> None:
        self.left = [np.random.default_rng(i).standard_normal(shape).astype(np.float32) for i in range(4)]
        self.name = name

    def get_next(self) -> dict[str, Any] | None:
        return {self.name: self.left.pop()} if self.left else None


def generated(model: Path, folder: Path, data: bytes) -> Generated:
    """The C file of a network that takes and gives int8, without a softmax at its end."""
    place, site = folder / model.stem, folder / "emx"
    place.mkdir(parents=True, exist_ok=True)
    if not site.is_dir():
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--target", str(site), PACKAGE], check=True
        )
    quantised = _quantised(model, place)
    onnx.save(quantised, place / "net.onnx")
    options = ("--large-temp-threshold", "0", "--large-weight-threshold", "0", "--model-name", "net")
    command = [sys.executable, "-S", "-m", "emx_onnx_cgen", "compile", *options]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    files = [place / "net.onnx", place / "net.c"]
    subprocess.run([*command, *map(str, files)], check=True, env=environment, stdout=subprocess.DEVNULL)
    include = folder / "headers"
    include.mkdir(exist_ok=True)
    (include / "math.h").write_text(MATH)
    (include / "string.h").write_text(STRING)
    session = onnxruntime.InferenceSession(str(files[0]), providers=CPU)
    given = session.get_inputs()[0]
    (result,) = session.run(None, {given.name: np.frombuffer(data, np.int8).reshape(given.shape)})
    return Generated(files[1], include, result.tobytes())


def _quantised(model: Path, place: Path) -> onnx.ModelProto:
    """The network of QLinearConv, QGemm and their like."""
    network = convert(read_model(model)).model
    if network.graph.node[-1].op_type == "Softmax":
        last = network.graph.node.pop()
        shape = network.graph.output[0].type.tensor_type.shape
        del network.graph.output[:]
        dims = [dim.dim_value for dim in shape.dim]
        output = onnx.helper.make_tensor_value_info(last.input[0], onnx.TensorProto.FLOAT, dims)
        network.graph.output.append(output)
    onnx.save(network, place / "float.onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(
        place / "fused.onnx"
    )  # biases and transposes, as a deployment would
    onnxruntime.InferenceSession(str(place / "float.onnx"), options, providers=CPU)
    fused = onnx.shape_inference.infer_shapes(onnx.load(place / "fused.onnx"))
    given = fused.graph.input[0]
    quantize_static(
        str(place / "fused.onnx"),
        str(place / "quantised.onnx"),
        Random(given.name, [dim.dim_value for dim in given.type.tensor_type.shape.dim]),
        quant_format=QuantFormat.QOperator,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
    )
    result = onnx.load(place / "quantised.onnx")
    graph = result.graph
    for value in [*fused.graph.value_info, *fused.graph.output]:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        name = f"{value.name}_quantized"
        graph.value_info.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT8, dims))
    _without_floats(graph)
    return result


def _without_floats(graph: onnx.GraphProto) -> None:
    """Inputs and outputs become integers, as a TFLite file has them. A transposition may stand before the
    first conversion."""
    (first,) = [node for node in graph.node if node.op_type == "QuantizeLinear"]
    (last,) = [node for node in graph.node if node.op_type == "DequantizeLinear"]
    for node in graph.node:
        node.input[:] = [first.input[0] if name == first.output[0] else name for name in node.input]
    for value in [*graph.input, *graph.value_info]:
        if value.name in (graph.input[0].name, first.input[0]):
            value.type.tensor_type.elem_type = onnx.TensorProto.INT8
    dims = [dim.dim_value for dim in graph.output[0].type.tensor_type.shape.dim]
    del graph.output[:]
    graph.output.append(onnx.helper.make_tensor_value_info(last.input[0], onnx.TensorProto.INT8, dims))
    graph.node.remove(first)
    graph.node.remove(last)
