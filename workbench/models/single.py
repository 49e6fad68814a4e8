"""Models of one operator, or few, of any shape: what the kernels' tests are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx

from workbench.models.builder import Graph

__all__ = ["Body", "conv", "gelu", "pool", "silu", "single", "transposed"]

#: Adds nodes behind a tensor; returns the last one's output.
Body = Callable[[Graph, str], str]


def single(
    shape: tuple[int, ...],
    body: Body,
    dtype: str = "float32",
    result: str = "float32",
    *,
    opset: int = 17,
) -> onnx.ModelProto:
    """``x`` of this shape, what ``body`` puts behind it, and ``y``."""
    g = Graph("single", seed=4, opset=opset)
    g.op("Identity", body(g, g.input("x", shape, dtype)), name="y")
    g.output("y", result)
    return g.model()


def conv(
    shape: tuple[int, ...],
    out: int,
    kernel: tuple[int, ...],
    *,
    strides: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    dilations: tuple[int, ...] | None = None,
    group: int = 1,
    activation: Body | None = None,
    residual: bool = False,
) -> onnx.ModelProto:
    """A convolution of any rank with a bias, the sum with another convolution if ``residual``, and an
    activation."""
    g = Graph("conv", seed=3)
    x = g.input("x", shape)
    w = g.weight(out, shape[1] // group, *kernel)
    ones = [1] * len(kernel)
    slides = {"strides": strides or ones, "pads": pads or [0, 0] * len(kernel)}
    bias = g.weight(out, std=1.0)
    y = g.op("Conv", x, w, bias, **slides, dilations=dilations or ones, group=group)
    if residual:
        y = g.op("Add", y, g.op("Conv", x, g.weight(out, shape[1], *kernel), **slides))
    y = activation(g, y) if activation else y
    g.op("Identity", y, name="y")
    g.output("y")
    return g.model()


def transposed(
    shape: tuple[int, ...], out: int, kernel: tuple[int, ...], *, group: int = 1, **attributes: Any
) -> onnx.ModelProto:
    """A transposed convolution of any rank with a bias, and a ReLU."""
    g = Graph("transposed", seed=3)
    w = g.weight(shape[1], out // group, *kernel)
    y = g.op("ConvTranspose", g.input("x", shape), w, g.weight(out, std=1.0), group=group, **attributes)
    g.op("Relu", y, name="y")
    g.output("y")
    return g.model()


def pool(kind: str, shape: tuple[int, ...], **attributes: Any) -> onnx.ModelProto:
    """One node of a pooling operator."""
    g = Graph("pool", seed=3)
    g.op(kind, g.input("x", shape), name="y", **attributes)
    g.output("y")
    return g.model()


def gelu(g: Graph, x: str) -> str:
    """GELU of the error function, its argument scaled by a product."""
    erf = g.op("Erf", g.op("Mul", x, g.const(2**-0.5)))
    return g.op("Mul", g.op("Mul", x, g.const(0.5)), g.op("Add", erf, g.const(1.0)))


def silu(g: Graph, x: str) -> str:
    """SiLU."""
    return g.act(x, "silu")
