"""Writes ONNX graphs with seeded weights: the small language that the model builders are written in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["Graph"]


class Graph:
    """A graph under construction. Every method that adds a node returns the name of its (first) output."""

    def __init__(self, name: str, *, seed: int = 0, opset: int = 17, ir_version: int = 8) -> None:
        self.name = name
        self.rng = np.random.default_rng(seed)
        self.opset = opset
        self.ir_version = ir_version
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}

    def input(self, name: str, shape: Sequence[int | str | None] | None, dtype: str = "float32") -> str:
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs.append(helper.make_tensor_value_info(name, element, shape))
        return name

    def output(self, name: str, dtype: str = "float32", shape: Sequence[int | str] | None = None) -> None:
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.outputs.append(helper.make_tensor_value_info(name, element, shape))

    def const(self, value: Any, dtype: str | None = None, name: str | None = None) -> str:
        """An initializer; Python ints become int64, floats float32."""
        array = np.asarray(value)
        if dtype is None:
            dtype = (
                {"i": "int64", "f": "float32"}.get(array.dtype.kind) if not hasattr(value, "dtype") else None
            )
        name = name or f"const_{len(self.initializers)}"
        array = array.astype(dtype) if dtype else array
        self.initializers[name] = numpy_helper.from_array(array, name)
        return name

    def weight(self, *shape: int, std: float | None = None, mean: float = 0.0, dtype: str = "float32") -> str:
        """Normally distributed; by default scaled so that a product over the trailing axes has variance 1."""
        if std is None:
            std = 1.0 / np.sqrt(max(1, int(np.prod(shape[1:]))))
        return self.const(self.rng.normal(mean, std, shape).astype(dtype))

    def uniform(self, *shape: int, low: float, high: float, dtype: str = "float32") -> str:
        return self.const(self.rng.uniform(low, high, shape).astype(dtype))

    def op(
        self, op_type: str, *inputs: str, outputs: int = 1, name: str | None = None, **attributes: Any
    ) -> str:
        return self.ops(op_type, *inputs, outputs=outputs, name=name, **attributes)[0]

    def ops(
        self, op_type: str, *inputs: str, outputs: int = 1, name: str | None = None, **attributes: Any
    ) -> list[str]:
        """Adds a node; returns the names of all its outputs. ``name`` names the first output."""
        node = f"{op_type}_{len(self.nodes)}"
        names = [name or node, *(f"{name or node}_{i}" for i in range(1, outputs))]
        self.nodes.append(helper.make_node(op_type, inputs, names, name=node, **attributes))
        return names

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes, self.name, self.inputs, self.outputs, initializer=list(self.initializers.values())
        )
        domains = {node.domain for node in self.nodes} | {""}
        opsets = [helper.make_opsetid(domain, 1 if domain else self.opset) for domain in sorted(domains)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=self.ir_version)
        return _with_output_shapes(model)

    # layers -----------------------------------------------------------------------------------------------

    def conv(
        self,
        x: str,
        cin: int,
        cout: int,
        kernel: int | tuple[int, int] = 3,
        *,
        stride: int | tuple[int, int] = 1,
        groups: int = 1,
        dilation: int = 1,
        pads: Sequence[int] | None = None,
        bias: bool = False,
        gain: float = 2.0,
    ) -> str:
        """Padded to keep the size at stride 1; ``gain`` 2 suits inputs that went through a ReLU."""
        kh, kw = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        sh, sw = stride if isinstance(stride, tuple) else (stride, stride)
        std = np.sqrt(gain / (cin // groups * kh * kw))
        inputs = [x, self.weight(cout, cin // groups, kh, kw, std=float(std))]
        if bias:
            inputs.append(self.weight(cout, std=0.1))
        if pads is None:
            pads = [dilation * (kh - 1) // 2, dilation * (kw - 1) // 2] * 2
        return self.op(
            "Conv",
            *inputs,
            kernel_shape=[kh, kw],
            strides=[sh, sw],
            pads=list(pads),
            dilations=[dilation, dilation],
            group=groups,
        )

    def batch_norm(self, x: str, channels: int, gamma: tuple[float, float] = (0.7, 1.3)) -> str:
        return self.op(
            "BatchNormalization",
            x,
            self.uniform(channels, low=gamma[0], high=gamma[1]),
            self.weight(channels, std=0.2),
            self.weight(channels, std=0.3),
            self.const(self.rng.lognormal(0.0, 0.3, channels).astype("float32")),
            epsilon=1e-5,
        )

    def conv_bn(
        self, x: str, cin: int, cout: int, kernel: int = 3, *, act: str = "Relu", **options: Any
    ) -> str:
        """Convolution, batch normalisation, activation (an operator's name, ``relu6``, ``silu`` or "")."""
        gamma = options.pop("gamma", (0.7, 1.3))
        return self.act(self.batch_norm(self.conv(x, cin, cout, kernel, **options), cout, gamma), act)

    def act(self, x: str, kind: str) -> str:
        if kind == "relu6":
            return self.op("Clip", x, self.const(0.0), self.const(6.0))
        if kind == "silu":
            return self.op("Mul", x, self.op("Sigmoid", x))
        if kind == "gelu":
            half = self.op("Mul", x, self.const(0.5))
            erf = self.op("Erf", self.op("Div", x, self.const(float(np.sqrt(2.0)))))
            return self.op("Mul", half, self.op("Add", erf, self.const(1.0)))
        return self.op(kind, x) if kind else x

    def linear(self, x: str, cin: int, cout: int, *, gain: float = 1.0) -> str:
        """x @ W + b on the last axis, as torch exports it for inputs of rank 3."""
        product = self.op("MatMul", x, self.weight(cin, cout, std=float(np.sqrt(gain / cin))))
        return self.op("Add", product, self.weight(cout, std=0.1))

    def gemm(self, x: str, cin: int, cout: int, **attributes: Any) -> str:
        weight = self.weight(cout, cin, std=float(np.sqrt(1.0 / cin)))
        return self.op("Gemm", x, weight, self.weight(cout, std=0.1), transB=1, **attributes)

    def layer_norm(self, x: str, width: int, *, decomposed: bool = False) -> str:
        """LayerNormalization over the last axis, as the operator or as torch exports it below opset 17."""
        gamma, beta = self.uniform(width, low=0.7, high=1.3), self.weight(width, std=0.1)
        if not decomposed:
            return self.op("LayerNormalization", x, gamma, beta, axis=-1, epsilon=1e-5)
        centred = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1], keepdims=1))
        square = self.op("Pow", centred, self.const(2.0))
        variance = self.op("ReduceMean", square, axes=[-1], keepdims=1)
        deviation = self.op("Sqrt", self.op("Add", variance, self.const(1e-5)))
        return self.op("Add", self.op("Mul", self.op("Div", centred, deviation), gamma), beta)

    def squeeze_excite(self, x: str, channels: int, reduced: int, act: str, gate: str) -> str:
        y = self.op("GlobalAveragePool", x)
        y = self.act(self.conv(y, channels, reduced, 1, bias=True), act)
        return self.op("Mul", x, self.op(gate, self.conv(y, reduced, channels, 1, bias=True)))


def _with_output_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Fills in the outputs' shapes that were not given, as exporters do."""
    known = {value.name: value.type for value in model.graph.input}
    for tensor in model.graph.initializer:
        known[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    for output in model.graph.output:
        if output.name in known:
            output.type.CopyFrom(known[output.name])
    inferred = onnx.shape_inference.infer_shapes(model).graph.output
    for output, value in zip(model.graph.output, inferred, strict=True):
        if not output.type.tensor_type.HasField("shape"):
            output.type.CopyFrom(value.type)
    return model
