"""Convolutions of every kind, poolings, products, and activations behind them."""

from __future__ import annotations

import numpy as np

from workbench.models.builder import Graph
from workbench.models.realistic.row import IMAGE, TOKENS, one, row


def _conv(name: str, shape: list[int], out: int, kernel: list[int], **attributes: object) -> None:
    group = int(str(attributes.get("group", 1)))

    @row(name)
    def build(g: Graph) -> None:
        weight = g.weight(out, shape[1] // group, *kernel)
        g.output(g.op("Conv", g.input("x", shape), weight, g.weight(out, std=0.1), **attributes))


_conv("conv 3x3", [1, 64, 28, 28], 64, [3, 3], pads=[1] * 4)
_conv("conv 1x1", [1, 128, 28, 28], 128, [1, 1])
_conv("conv dilated", [1, 32, 28, 28], 32, [3, 3], pads=[4] * 4, dilations=[4, 4])
_conv("conv depthwise", [1, 96, 56, 56], 96, [3, 3], pads=[1] * 4, group=96)
_conv("conv grouped", [1, 64, 28, 28], 64, [3, 3], pads=[1] * 4, group=8)
_conv("conv depth multiplier", [1, 32, 56, 56], 64, [3, 3], pads=[1] * 4, group=32)
_conv("conv signal", [1, 64, 800], 64, [5], pads=[2, 2])
_conv("conv signal depthwise", [1, 256, 800], 256, [15], pads=[7, 7], group=256)
_conv("conv volume", [1, 16, 8, 28, 28], 32, [3, 3, 3], pads=[1] * 6)
_conv("conv volume depthwise", [1, 32, 8, 28, 28], 32, [3, 3, 3], pads=[1] * 6, group=32)


def _computed(name: str, shape: list[int], out: int, kernel: list[int], group: int = 1) -> None:
    @row(name)
    def build(g: Graph) -> None:
        weight = g.input("w", [out, shape[1] // group, *kernel])
        pads = [size // 2 for size in kernel] * 2
        g.output(g.op("Conv", g.input("x", shape), weight, pads=pads, group=group))


_computed("conv computed weights", [1, 64, 28, 28], 64, [3, 3])
_computed("conv computed weights 1x1", [1, 64, 28, 28], 64, [1, 1])
_computed("conv computed weights depthwise", [1, 64, 56, 56], 64, [3, 3], 64)
_computed("conv computed weights correlation", [1, 256, 29, 29], 256, [5, 5], 256)
_computed("conv computed weights signal", [1, 64, 400], 64, [5])


@row("convtranspose computed weights")
def _transpose_computed(g: Graph) -> None:
    w = g.input("w", [64, 64, 4, 4])
    g.output(g.op("ConvTranspose", g.input("x", [1, 64, 14, 14]), w, strides=[2, 2], pads=[1] * 4))


def _transposed(name: str, shape: list[int], out: int, kernel: list[int], **attributes: object) -> None:
    group = int(str(attributes.get("group", 1)))

    @row(name)
    def build(g: Graph) -> None:
        weight = g.weight(shape[1], out // group, *kernel)
        g.output(g.op("ConvTranspose", g.input("x", shape), weight, **attributes))


_transposed("convtranspose 2x2", [1, 64, 28, 28], 32, [2, 2], strides=[2, 2])
_transposed("convtranspose 4x4", [1, 64, 28, 28], 32, [4, 4], strides=[2, 2], pads=[1] * 4)
_transposed(
    "convtranspose 3x3", [1, 64, 28, 28], 32, [3, 3], strides=[2, 2], pads=[1] * 4, output_padding=[1, 1]
)
_transposed("convtranspose stride 1", [1, 64, 28, 28], 64, [3, 3], pads=[1] * 4)
_transposed("convtranspose depthwise", [1, 64, 28, 28], 64, [4, 4], strides=[2, 2], pads=[1] * 4, group=64)
_transposed("convtranspose signal", [1, 128, 200], 64, [16], strides=[8], pads=[4, 4])
_transposed("convtranspose volume", [1, 16, 8, 14, 14], 16, [2, 2, 2], strides=[2, 2, 2])

one("maxpool 2x2", "MaxPool", IMAGE, kernel_shape=[2, 2], strides=[2, 2])
one("maxpool 3x3", "MaxPool", [1, 64, 112, 112], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
one("maxpool 5x5 stride 1", "MaxPool", [1, 128, 20, 20], kernel_shape=[5, 5], pads=[2] * 4)
one("maxpool 13x13 stride 1", "MaxPool", [1, 128, 20, 20], kernel_shape=[13, 13], pads=[6] * 4)
one("maxpool signal", "MaxPool", [1, 64, 4000], kernel_shape=[4], strides=[4])
one("maxpool volume", "MaxPool", [1, 32, 8, 28, 28], kernel_shape=[2, 2, 2], strides=[2, 2, 2])
one("averagepool 3x3", "AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1] * 4)
one("averagepool 7x7", "AveragePool", [1, 256, 28, 28], kernel_shape=[7, 7], strides=[7, 7])
one("averagepool volume", "AveragePool", [1, 32, 8, 28, 28], kernel_shape=[2, 2, 2], strides=[2, 2, 2])
one("globalaveragepool", "GlobalAveragePool", IMAGE)
one("globalmaxpool", "GlobalMaxPool", IMAGE)
one("lppool", "LpPool", IMAGE, kernel_shape=[2, 2], strides=[2, 2])


@row("maxpool with indices")
def _indices(g: Graph) -> None:
    names = g.ops("MaxPool", g.input("x", IMAGE), outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    g.output(names[0])
    g.output(names[1], "int64")


def _behind(name: str, tail: str, *, product: bool, opset: int = 17) -> None:
    @row(name, opset=opset)
    def build(g: Graph) -> None:
        if product:
            x = g.op("Add", g.op("MatMul", g.input("x", TOKENS), g.weight(768, 768)), g.weight(768, std=0.1))
        else:
            x = g.conv(g.input("x", [1, 64, 28, 28]), 64, 64, bias=True)
        g.output(_tail(g, x, tail))


def _tail(g: Graph, x: str, tail: str) -> str:
    if tail == "silu":
        return g.op("Mul", x, g.op("Sigmoid", x))
    if tail == "snake":  # x + sin(a x)^2 / a
        sine = g.op("Sin", g.op("Mul", x, g.const(np.float32(1.7))))
        return g.op(
            "Add", x, g.op("Div", g.op("Pow", sine, g.const(np.float32(2))), g.const(np.float32(1.7)))
        )
    if tail == "gelu tanh":
        cube = g.op("Mul", g.op("Pow", x, g.const(np.float32(3))), g.const(np.float32(0.044715)))
        inner = g.op("Mul", g.op("Add", x, cube), g.const(np.float32(0.7978845608)))
        half = g.op("Mul", x, g.const(np.float32(0.5)))
        return g.op("Mul", half, g.op("Add", g.op("Tanh", inner), g.const(np.float32(1))))
    return g.act(x, "gelu") if tail == "gelu" else g.op(tail, x)


for _tail_name in ("gelu", "gelu tanh", "silu", "Mish", "snake"):
    _opset = 18 if _tail_name == "Mish" else 17
    _behind(f"{_tail_name.lower()} behind a product", _tail_name, product=True, opset=_opset)
    _behind(f"{_tail_name.lower()} behind a convolution", _tail_name, product=False, opset=_opset)


@row("gemm")
def _gemm(g: Graph) -> None:
    g.output(g.gemm(g.input("x", [128, 512]), 512, 512))


@row("gemm of one row")
def _gemv(g: Graph) -> None:
    g.output(g.gemm(g.input("x", [1, 2048]), 2048, 1000))


@row("matmul of activations")
def _matmul(g: Graph) -> None:
    g.output(g.op("MatMul", g.input("a", [12, 128, 64]), g.input("b", [12, 64, 128])))


@row("matmul float64")
def _matmul64(g: Graph) -> None:
    g.output(
        g.op("MatMul", g.input("a", [128, 256], "float64"), g.input("b", [256, 128], "float64")), "float64"
    )


@row("matmulinteger")
def _matmul_integer(g: Graph) -> None:
    a, b = g.input("a", [128, 256], "uint8"), g.const(g.rng.integers(0, 255, (256, 256)).astype("uint8"))
    g.output(g.op("MatMulInteger", a, b), "int32")


@row("qlinearmatmul")
def _qlinear(g: Graph) -> None:
    scale, zero = g.const(np.float32(0.02)), g.const(np.uint8(128))
    b = g.const(g.rng.integers(0, 255, (256, 256)).astype("uint8"))
    x = g.input("a", [128, 256], "uint8")
    g.output(g.op("QLinearMatMul", x, scale, zero, b, scale, zero, g.const(np.float32(0.4)), zero), "uint8")


@row("qlinearconv")
def _qconv(g: Graph) -> None:
    scale, zero = g.const(np.float32(0.02)), g.const(np.uint8(128))
    w = g.const(g.rng.integers(0, 255, (64, 64, 3, 3)).astype("uint8"))
    x = g.input("x", [1, 64, 28, 28], "uint8")
    y = g.op("QLinearConv", x, scale, zero, w, scale, zero, g.const(np.float32(0.4)), zero, pads=[1] * 4)
    g.output(y, "uint8")


@row("convinteger")
def _conv_integer(g: Graph) -> None:
    w = g.const(g.rng.integers(0, 255, (64, 64, 3, 3)).astype("uint8"))
    g.output(g.op("ConvInteger", g.input("x", [1, 64, 28, 28], "uint8"), w, pads=[1] * 4), "int32")


def _einsum(name: str, equation: str, a: list[int], b: list[int]) -> None:
    @row(name)
    def build(g: Graph) -> None:
        g.output(g.op("Einsum", g.input("a", a), g.input("b", b), equation=equation))


_einsum("einsum heads", "bqhd,bkhd->bhqk", [1, 128, 12, 64], [1, 128, 12, 64])
_einsum("einsum product", "bij,bjk->bik", [4, 128, 64], [4, 64, 128])
_einsum("einsum outer", "i,j->ij", [512], [512])
_einsum("einsum over channels", "nchw,nchw->nhw", IMAGE, IMAGE)
_einsum("einsum relative", "bhwc,hkc->bhwk", [8, 14, 14, 64], [14, 14, 64])


@row("attention", opset=23)
def _attention(g: Graph) -> None:
    q, k, v = (g.input(name, [1, 12, 128, 64]) for name in "qkv")
    g.output(g.op("Attention", q, k, v))


@row("dft")
def _dft(g: Graph) -> None:
    g.output(g.op("DFT", g.input("x", [64, 512, 1]), axis=1), shape=[64, 512, 2])


@row("dft onesided", opset=20)
def _dft_onesided(g: Graph) -> None:
    g.output(
        g.op("DFT", g.input("x", [64, 400, 1]), "", g.const(np.int64(1)), onesided=1), shape=[64, 201, 2]
    )


@row("stft")
def _stft(g: Graph) -> None:
    window = g.const(np.hanning(400).astype("f"))
    x = g.input("x", [1, 16000, 1])
    g.output(g.op("STFT", x, g.const(np.int64(160)), window, g.const(np.int64(400)), onesided=1))
