"""What a network has to compute and to read at least, layer by layer, from its ONNX graph.

Only convolutions, matrix products and those of recurrent layers count: 2 operations a multiply-add. "After
Winograd" is the least over direct computation, F(2x2, 3x3), F(4x4, 3x3) and F(3x3, 4x4) of a layer's
multiply-adds, of stride 1 or, over the four phases of its input, 2; tiles at the border counted whole. The
transforms are not counted, so it is a lower bound. Bytes are those of the weights, each read once:
activations may stay in a cache, and a recurrent layer's weights in registers from step to step, so that its
bound is a loose one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper
from peak import Machine

from edgepack.compiler.frontend.onnx.onnxruntime_session import create_session

__all__ = ["Layer", "Work", "work_of"]

_RECURRENT = ("GRU", "LSTM", "RNN")


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


def work_of(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> Work:
    """The layers of a model, see :func:`networks.folded`; ONNX Runtime tells their shapes."""
    counted = {"Conv", "ConvTranspose", "Gemm", "MatMul", *_RECURRENT}
    nodes = [n for n in model.graph.node if n.op_type in counted]
    shapes: dict[str, tuple[int, ...]] = {t.name: tuple(t.dims) for t in model.graph.initializer}
    constants = set(shapes)
    shapes.update({name: array.shape for name, array in inputs.items()})
    wanted = {name for node in nodes for name in _tensors(node)} - set(shapes)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(wanted))
    values = create_session(copy).run(sorted(wanted), dict(inputs))
    shapes.update({name: value.shape for name, value in zip(sorted(wanted), values, strict=True)})
    return Work(tuple(_layer(node, shapes, constants) for node in nodes))


def _tensors(node: onnx.NodeProto) -> tuple[str, ...]:
    """Those whose shapes tell what a layer computes."""
    if node.op_type in _RECURRENT:
        return tuple(node.input[:3])
    return (*node.input[:2], node.output[0])


def _layer(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]], constants: set[str]) -> Layer:
    if node.op_type in _RECURRENT:
        steps_and_batch, weights = shapes[node.input[0]][:2], sum(prod(shapes[n]) for n in node.input[1:3])
        flops = 2 * prod(steps_and_batch) * weights
        return Layer(node.op_type, flops, flops, 4 * weights)
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
    least = flops
    if node.op_type == "Conv" and len(out) > 3 and right[-1] == right[-2]:
        least = _after_winograd(attributes, right, out)
    return Layer(node.op_type, flops, least, weight_bytes)


def _after_winograd(attributes: Mapping[str, Any], weights: tuple[int, ...], out: tuple[int, ...]) -> int:
    """Operations of the products of the best F(m x m, r x r), or of direct computation."""
    direct = 2 * prod(out) * prod(weights[1:])
    stride = max(attributes.get("strides", [1])[-2:])
    plain = set(attributes.get("dilations", [1])) == {1} and attributes.get("group", 1) == 1
    if not plain or stride > 2:
        return direct
    batch, channels, *planes, height, width = (
        out  # a volume is its planes, their sum a longer one over channels
    )
    batch, inputs = batch * prod(planes), prod(weights[1:-2])
    taps = -(-weights[-1] // stride)
    found = [direct]
    for m in {3: (2, 4), 4: (3,)}.get(taps, ()):
        tiles = batch * -(-height // m) * -(-width // m)
        found.append(2 * tiles * (m + taps - 1) ** 2 * channels * inputs * stride**2)
    return min(found)
