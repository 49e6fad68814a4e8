"""An ONNX graph as calls of PyTorch, node by node: what a model in eager PyTorch does.

ONNX Runtime's basic optimisations run first, ahead of time: they fold constants (the shape arithmetic of
exporters) and batch normalisations, so that PyTorch has no work that the other engines do not have. Only the
operators of the benchmarks' networks are here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

Tensor = torch.Tensor
Attributes = Mapping[str, Any]


def _padded(x: Tensor, a: Attributes, value: float) -> tuple[Tensor, list[int]]:
    """The tensor and the symmetric padding that is left to do; ONNX's may differ between the two ends."""
    pads = list(a.get("pads", [0] * (2 * (x.dim() - 2))))
    half = len(pads) // 2
    if pads[:half] == pads[half:]:
        return x, pads[:half]
    order = [p for i in reversed(range(half)) for p in (pads[i], pads[half + i])]
    return functional.pad(x, order, value=value), [0] * half


def _conv(a: Attributes, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    x, padding = _padded(x, a, 0.0)
    return functional.conv2d(x, w, b, a.get("strides", 1), padding, a.get("dilations", 1), a.get("group", 1))


def _conv_transpose(a: Attributes, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    return functional.conv_transpose2d(x, w, b, a.get("strides", 1), a.get("pads", [0, 0])[:2])


def _max_pool(a: Attributes, x: Tensor) -> Tensor:
    x, padding = _padded(x, a, float("-inf"))
    kernel = a["kernel_shape"]
    return functional.max_pool2d(
        x, kernel, a.get("strides", 1), padding, ceil_mode=bool(a.get("ceil_mode", 0))
    )


def _average_pool(a: Attributes, x: Tensor) -> Tensor:
    kernel, strides, include = a["kernel_shape"], a.get("strides", 1), bool(a.get("count_include_pad", 0))
    padded, padding = _padded(x, a, 0.0)
    mean = functional.avg_pool2d(padded, kernel, strides, padding, count_include_pad=include)
    if padded is x or include:
        return mean
    ones = _padded(torch.ones_like(x[:1, :1]), a, 0.0)[0]
    return mean / functional.avg_pool2d(ones, kernel, strides)


def _gemm(a: Attributes, x: Tensor, y: Tensor, c: Tensor | None = None) -> Tensor:
    x = x.t() if a.get("transA") else x
    y = y.t() if a.get("transB") else y
    alpha, beta = a.get("alpha", 1.0), a.get("beta", 1.0)
    return torch.mm(x, y) * alpha if c is None else torch.addmm(c, x, y, beta=beta, alpha=alpha)


def _clip(a: Attributes, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    return torch.clamp(x, None if low is None else float(low), None if high is None else float(high))


def _reshape(a: Attributes, x: Tensor, shape: Tensor) -> Tensor:
    return x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(shape.tolist())])


def _softmax(a: Attributes, x: Tensor) -> Tensor:
    if a["opset"] < 13:  # over all axes from the given one
        axis = a.get("axis", 1)
        return functional.softmax(x.flatten(axis), axis).reshape(x.shape)
    return functional.softmax(x, a.get("axis", -1))


def _gather(a: Attributes, x: Tensor, indices: Tensor) -> Tensor:
    axis = a.get("axis", 0)
    if indices.dim() == 0:
        return x.select(axis, int(indices))
    return (
        functional.embedding(indices, x)
        if axis == 0 and x.dim() == 2
        else x[(slice(None),) * axis + (indices,)]
    )


def _unsqueeze(a: Attributes, x: Tensor, axes: Tensor | None = None) -> Tensor:
    for axis in sorted(a["axes"] if axes is None else axes.tolist()):
        x = x.unsqueeze(axis)
    return x


def _layer_norm(a: Attributes, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    return functional.layer_norm(x, w.shape, w, b, a.get("epsilon", 1e-5))


def _cast(a: Attributes, x: Tensor) -> Tensor:
    from onnx import helper

    numpy_type = helper.tensor_dtype_to_np_dtype(a["to"])
    return x.to(getattr(torch, numpy_type.name))


OPERATORS: dict[str, Callable[..., Tensor]] = {
    "Add": lambda a, x, y: x + y,
    "AveragePool": _average_pool,
    "BatchNormalization": lambda a, x, w, b, m, v: functional.batch_norm(
        x, m, v, w, b, eps=a.get("epsilon", 1e-5)
    ),
    "Cast": _cast,
    "Clip": _clip,
    "Concat": lambda a, *x: torch.cat(x, a["axis"]),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Div": lambda a, x, y: x / y,
    "Erf": lambda a, x: torch.erf(x),
    "Flatten": lambda a, x: x.flatten(a.get("axis", 1)),
    "Gather": _gather,
    "Gemm": _gemm,
    "GlobalAveragePool": lambda a, x: x.mean((2, 3), keepdim=True),
    "Identity": lambda a, x: x,
    "LayerNormalization": _layer_norm,
    "LRN": lambda a, x: functional.local_response_norm(
        x, a["size"], a.get("alpha", 1e-4), a.get("beta", 0.75), a.get("bias", 1.0)
    ),
    "MatMul": lambda a, x, y: torch.matmul(x, y),
    "MaxPool": _max_pool,
    "Mul": lambda a, x, y: x * y,
    "Pow": lambda a, x, y: torch.pow(x, y),
    "ReduceMean": lambda a, x: x.mean(a["axes"], keepdim=bool(a.get("keepdims", 1))),
    "Relu": lambda a, x: functional.relu(x),
    "Reshape": _reshape,
    "Sigmoid": lambda a, x: torch.sigmoid(x),
    "Softmax": _softmax,
    "Sqrt": lambda a, x: torch.sqrt(x),
    "Sub": lambda a, x, y: x - y,
    "Tanh": lambda a, x: torch.tanh(x),
    "Transpose": lambda a, x: x.permute(a["perm"]),
    "Unsqueeze": _unsqueeze,
}


class Interpreter:
    """The model as a function: ``interpreter({name: tensor}) -> [output, ...]``.

    Raises KeyError for an operator that is not in ``OPERATORS``.
    """

    def __init__(self, model: Path) -> None:
        from networks import folded
        from onnx import helper, numpy_helper

        proto = folded(model)
        opset = proto.opset_import[0].version
        self.values: dict[str, Tensor] = {
            tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy())
            for tensor in proto.graph.initializer
        }
        self.nodes = []
        last_use = {name: i for i, node in enumerate(proto.graph.node) for name in node.input}
        outputs = {value.name for value in proto.graph.output}
        for i, node in enumerate(proto.graph.node):
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            dead = [n for n in node.input if last_use[n] == i and n not in self.values and n not in outputs]
            self.nodes.append((OPERATORS[node.op_type], {**attributes, "opset": opset}, node, dead))
        self.outputs = [value.name for value in proto.graph.output]

    def __call__(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        values: dict[str, Tensor | None] = {**self.values, **inputs, "": None}
        for operator, attributes, node, dead in self.nodes:
            values[node.output[0]] = operator(attributes, *[values[name] for name in node.input])
            for name in dead:
                values.pop(name, None)
        return [values[name] for name in self.outputs]
