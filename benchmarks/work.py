"""What a network has to compute and to read at least, layer by layer, from its ONNX graph.

Only convolutions and matrix products count, as is usual: 2 operations a multiply-add. "After Winograd" is
the least over direct computation, F(2x2, 3x3) and F(4x4, 3x3) of a layer's multiply-adds, tiles at the
border counted whole; the transforms are not counted, so it is a lower bound. Bytes are those of the weights,
each read once: activations may stay in a cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import onnx
from onnx import helper, shape_inference
from peak import Machine

__all__ = ["Layer", "Work", "work_of"]


@dataclass(frozen=True)
class Layer:
    """Operations of one layer, directly and after Winograd, and bytes of its weights."""

    operator: str
    flops: int
    least_flops: int
    weight_bytes: int


@dataclass(frozen=True)
class Work:
    """All layers of a network."""

    layers: tuple[Layer, ...]

    @property
    def flops(self) -> int:
        """Operations of direct computation."""
        return sum(layer.flops for layer in self.layers)

    @property
    def least_flops(self) -> int:
        """Operations after Winograd."""
        return sum(layer.least_flops for layer in self.layers)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights."""
        return sum(layer.weight_bytes for layer in self.layers)

    def flops_ms(self, machine: Machine, threads: int) -> float:
        """Least time in ms that the operations need at peak."""
        return self.least_flops / machine.peak(threads) / 1e6

    def bytes_ms(self, machine: Machine, threads: int) -> float:
        """Least time in ms that reading the weights needs, from the cache that holds them all."""
        return self.weight_bytes / machine.bandwidth(self.weight_bytes, threads) / 1e6

    def least_ms(self, machine: Machine, threads: int) -> float:
        """Least time in ms: layer after layer, what is longer of the two."""
        peak = machine.peak(threads)
        bandwidth = machine.bandwidth(self.weight_bytes, threads)
        return sum(max(x.least_flops / peak, x.weight_bytes / bandwidth) for x in self.layers) / 1e6


def work_of(model: onnx.ModelProto) -> Work:
    """The layers of a model of static shapes, see :func:`networks.folded`."""
    copy = shape_inference.infer_shapes(model, data_prop=True)
    shapes: dict[str, tuple[int, ...]] = {t.name: tuple(t.dims) for t in copy.graph.initializer}
    constants = set(shapes)
    for value in (*copy.graph.value_info, *copy.graph.input, *copy.graph.output):
        shapes.setdefault(value.name, tuple(d.dim_value for d in value.type.tensor_type.shape.dim))
    layers = []
    for node in copy.graph.node:
        if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
            layers.append(_layer(node, shapes, constants))
    return Work(tuple(layers))


def _layer(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]], constants: set[str]) -> Layer:
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    left, right, out = shapes[node.input[0]], shapes[node.input[1]], shapes[node.output[0]]
    weight_bytes = 4 * prod(right) if node.input[1] in constants else 0
    if node.op_type == "MatMul":
        flops = 2 * prod(out) * left[-1]
    elif node.op_type == "Gemm":
        flops = 2 * prod(out) * (left[0] if attributes.get("transA") else left[1])
    elif node.op_type == "ConvTranspose":
        flops = 2 * prod(left) * prod(right[1:])
    else:
        flops = 2 * prod(out) * prod(right[1:])
    if flops <= 0:
        raise ValueError(f"{node.op_type} {node.name}: its shape is not known")
    least = flops
    one = all(s == 1 for key in ("strides", "dilations") for s in attributes.get(key, [1]))
    if node.op_type == "Conv" and right[2:] == (3, 3) and one and attributes.get("group", 1) == 1:
        batch, channels, height, width = out
        for m in (2, 4):
            tiles = batch * -(-height // m) * -(-width // m)
            least = min(least, 2 * tiles * (m + 2) ** 2 * channels * right[1])
    return Layer(node.op_type, flops, least, weight_bytes)
