"""The ``light`` models of the onnx package, with their constant weights replaced by seeded realistic ones.

As shipped, their weights come from ConstantOfShape nodes and their outputs are constant: they would prove
that a network imports, and nothing about its numbers. The new ones are calibrated on one random input, layer
by layer, so that activations are of order 1 everywhere and the output depends on the input.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgepack.compiler.frontend.onnx.onnxruntime_session import create_session

__all__ = ["LIGHT", "light", "light_path"]

LIGHT = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)


def light_path(name: str) -> Path:
    """The file in the onnx package."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return folder / f"light_{name}.onnx"


def light(name: str, seed: int = 0) -> onnx.ModelProto:
    """The network with real weights as initializers; its architecture, names and opset are as shipped."""
    model = onnx.load(str(light_path(name)))
    graph = model.graph
    shapes = _made_weights(graph)
    roles = _roles(graph, shapes)
    rng = np.random.default_rng(seed)
    kept = [node for node in graph.node if node.output[0] not in shapes]
    del graph.node[:]
    graph.node.extend(kept)
    for weight, shape in shapes.items():
        value = _realistic(rng, roles.get(weight, "other"), shape)
        graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), weight))
        # Files of IR version 3 list every initializer as an input too.
        graph.input.append(helper.make_tensor_value_info(weight, onnx.TensorProto.FLOAT, shape))
    used = {source for node in kept for source in node.input}
    initializers = [tensor for tensor in graph.initializer if tensor.name in used]
    inputs = [value for value in graph.input if value.name in used]
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(initializers)
    graph.input.extend(inputs)
    _calibrate(model, rng)
    return model


def _calibrate(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Runs node by node; scales weights and sets batch statistics by what the layer's output or input is."""
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    values = {name: numpy_helper.to_array(tensor) for name, tensor in weights.items()}
    for value in graph.input:
        if value.name not in weights:
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            values[value.name] = rng.standard_normal(shape).astype(np.float32)

    def change(name: str, array: np.ndarray) -> None:
        # Rounded, so that the last bits of this machine's arithmetic do not get into the model.
        values[name] = np.asarray(array, np.float16).astype(np.float32)
        weights[name].CopyFrom(numpy_helper.from_array(values[name], name))

    for node in graph.node:
        if node.op_type == "BatchNormalization":
            x = values[node.input[0]]
            axes = tuple(axis for axis in range(x.ndim) if axis != 1)
            noise = rng.uniform(0.8, 1.2, x.shape[1])
            change(node.input[3], x.mean(axis=axes) * noise)
            change(node.input[4], x.var(axis=axes) * noise + 0.01)
        results = _run_node(model, node, values)
        if node.op_type in ("Conv", "Gemm") and node.input[1] in weights:
            y = results[0]
            axes = (0, 2, 3) if y.ndim == 4 and y.shape[2] > 1 else tuple(range(y.ndim))
            mean = y.mean(axis=axes, keepdims=True)
            scale = 1.0 / max(float(np.std(y - mean)), 1e-3)
            change(node.input[1], values[node.input[1]] * scale)
            if len(node.input) > 2 and len(axes) == 3:
                bias = values[node.input[2]]
                change(node.input[2], bias + (bias - mean.ravel()) * scale)
            results = _run_node(model, node, values)
        values.update(zip(node.output, results, strict=False))


def _run_node(
    model: onnx.ModelProto, node: onnx.NodeProto, values: dict[str, np.ndarray]
) -> list[np.ndarray]:
    inputs = {name: values[name] for name in node.input if name}
    graph = helper.make_graph(
        [node],
        "node",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in node.output[:1]],
    )
    single = helper.make_model(graph, opset_imports=model.opset_import, ir_version=8)
    session = create_session(single)
    return [np.asarray(array) for array in session.run(list(node.output[:1]), inputs)]


def _made_weights(graph: onnx.GraphProto) -> dict[str, list[int]]:
    initializers = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    return {
        node.output[0]: [int(size) for size in initializers[node.input[0]]]
        for node in graph.node
        if node.op_type == "ConstantOfShape" and node.input[0] in initializers
    }


def _roles(graph: onnx.GraphProto, shapes: dict[str, list[int]]) -> dict[str, str]:
    """What each weight is to the (first) node that uses it."""
    roles: dict[str, str] = {}
    # A weight can pass through nodes that only change its shape (Unsqueeze of a densenet scale).
    source: dict[str, str] = {name: name for name in shapes}
    for node in graph.node:
        if node.op_type in ("Unsqueeze", "Reshape", "Identity") and node.input[0] in source:
            source[node.output[0]] = source[node.input[0]]
            continue
        for index, name in enumerate(node.input):
            if name not in source:
                continue
            role = "other"
            if node.op_type in ("Conv", "Gemm", "MatMul"):
                role = "weight" if index == 1 else "bias"
            elif node.op_type == "BatchNormalization":
                role = ("", "scale", "bias", "mean", "variance")[index]
            elif node.op_type in ("Mul", "Add"):
                role = "scale" if node.op_type == "Mul" else "bias"
            roles.setdefault(source[name], role)
    return roles


def _realistic(rng: np.random.Generator, role: str, shape: list[int]) -> np.ndarray:
    if role == "weight":
        return rng.standard_normal(shape, np.float32)
    if role == "scale":
        return rng.uniform(0.5, 1.0, shape)
    if role == "variance":
        return rng.lognormal(0.0, 0.3, shape)
    return rng.normal(0.0, 0.1, shape)
