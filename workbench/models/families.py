"""Networks of other families, the true architectures at their real sizes: seeded weights, 1000 logits."""

from __future__ import annotations

import onnx

from workbench.models.builder import Graph
from workbench.models.vision import (
    SMALL,
    bottlenecks,
    channels_last_norm,
    classifier,
    head,
    inverted_residual,
)

__all__ = [
    "convnext_tiny",
    "efficientnet_b0",
    "efficientnet_lite0",
    "mobilenetv1",
    "mobilenetv3_large",
    "regnety_040",
    "regnety_400mf",
    "resnext50",
    "shufflenetv2",
]

#: Output channels and blocks of each stage.
Stages = tuple[tuple[int, int], ...]


def mobilenetv1(seed: int = 0, size: int = 224) -> onnx.ModelProto:
    """4.2 M parameters: a 3x3 depthwise and a 1x1 convolution in turns (Howard et al., 2017)."""
    g = Graph("mobilenetv1", seed=seed)
    x = g.conv_bn(g.input("input", [1, 3, size, size]), 3, 32, 3, stride=2)
    cin = 32
    halves = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5)
    for cout, stride in (*halves, (1024, 2), (1024, 1)):
        x = g.conv_bn(x, cin, cin, 3, stride=stride, groups=cin)
        x = g.conv_bn(x, cin, cout, 1)
        cin = cout
    return head(g, x, cin, 1000)


def mobilenetv3_large(seed: int = 0, size: int = 224) -> onnx.ModelProto:
    """5.5 M parameters: hardswish, squeeze and excite with hardsigmoid gates (Howard et al., 2019)."""
    g = Graph("mobilenetv3_large", seed=seed)
    x = g.conv_bn(g.input("input", [1, 3, size, size]), 3, 16, 3, stride=2, act="HardSwish")
    cin = 16
    # kernel, hidden channels, output channels, channels of the gate's hidden layer, activation, stride
    for kernel, hidden, cout, reduced, act, stride in (
        (3, 16, 16, 0, "Relu", 1),
        (3, 64, 24, 0, "Relu", 2),
        (3, 72, 24, 0, "Relu", 1),
        (5, 72, 40, 24, "Relu", 2),
        (5, 120, 40, 32, "Relu", 1),
        (5, 120, 40, 32, "Relu", 1),
        (3, 240, 80, 0, "HardSwish", 2),
        (3, 200, 80, 0, "HardSwish", 1),
        (3, 184, 80, 0, "HardSwish", 1),
        (3, 184, 80, 0, "HardSwish", 1),
        (3, 480, 112, 120, "HardSwish", 1),
        (3, 672, 112, 168, "HardSwish", 1),
        (5, 672, 160, 168, "HardSwish", 2),
        (5, 960, 160, 240, "HardSwish", 1),
        (5, 960, 160, 240, "HardSwish", 1),
    ):
        gate = "HardSigmoid" if reduced else ""
        x = inverted_residual(
            g,
            x,
            cin,
            cout,
            hidden,
            stride=stride,
            kernel=kernel,
            act=act,
            gate=gate,
            reduced=reduced,
            gain=6.0 if gate else 2.0,
        )
        cin = cout
    x = g.conv_bn(x, cin, 960, 1, act="HardSwish")
    x = g.op("Flatten", g.op("GlobalAveragePool", x))
    classifier(g, g.op("HardSwish", g.gemm(x, 960, 1280)), 1280, 1000)
    return g.model()


def efficientnet_b0(seed: int = 0, size: int = 224) -> onnx.ModelProto:
    """5.3 M parameters: SiLU, squeeze and excite, 5x5 depthwise convolutions (Tan and Le, 2019)."""
    return _efficientnet("efficientnet_b0", "silu", seed, size)


def efficientnet_lite0(seed: int = 0, size: int = 224) -> onnx.ModelProto:
    """4.7 M parameters: EfficientNet-B0 for int8: ReLU6 in the place of SiLU, and no squeeze and excite."""
    return _efficientnet("efficientnet_lite0", "relu6", seed, size)


def _efficientnet(name: str, act: str, seed: int, size: int) -> onnx.ModelProto:
    g = Graph(name, seed=seed)
    x = g.conv_bn(g.input("input", [1, 3, size, size]), 3, 32, 3, stride=2, act=act)
    cin = 32
    # expansion, kernel, stride of the first block, output channels, blocks
    for expand, kernel, stride, cout, blocks in (
        (1, 3, 1, 16, 1),
        (6, 3, 2, 24, 2),
        (6, 5, 2, 40, 2),
        (6, 3, 2, 80, 3),
        (6, 5, 1, 112, 3),
        (6, 5, 2, 192, 4),
        (6, 3, 1, 320, 1),
    ):
        for block in range(blocks):
            gate = (
                {"gate": "Sigmoid", "reduced": cin // 4, "gate_act": act, "gain": 8.0}
                if act == "silu"
                else {}
            )
            x = inverted_residual(
                g,
                x,
                cin,
                cout,
                expand * cin,
                stride=stride if block == 0 else 1,
                kernel=kernel,
                act=act,
                **gate,
            )
            cin = cout
    return head(g, g.conv_bn(x, cin, 1280, 1, act=act), 1280, 1000)


def regnety_400mf(seed: int = 0, size: int = 224) -> onnx.ModelProto:
    """4.3 M parameters: 3x3 convolutions in groups of 8 channels, squeeze and excite (Radosavovic, 2020)."""
    stages = ((48, 1), (104, 3), (208, 6), (440, 6))
    return _regnety("regnety_400mf", stages, 8, seed, size)


def regnety_040(seed: int = 0, size: int = 224) -> onnx.ModelProto:
    """20.6 M parameters, 4.0 G multiply-adds: the same, in groups of 64 channels."""
    return _regnety("regnety_040", ((128, 2), (192, 6), (512, 12), (1088, 2)), 64, seed, size)


def _regnety(name: str, stages: Stages, width: int, seed: int, size: int) -> onnx.ModelProto:
    g = Graph(name, seed=seed)
    x = g.conv_bn(g.input("input", [1, 3, size, size]), 3, 32, 3, stride=2)
    cin = 32
    for cout, blocks in stages:
        for block in range(blocks):
            stride = 2 if block == 0 else 1
            y = g.conv_bn(x, cin, cout, 1)
            y = g.conv_bn(y, cout, cout, 3, stride=stride, groups=cout // width)
            y = g.squeeze_excite(y, cout, round(0.25 * cin), "Relu", "Sigmoid")
            y = g.conv_bn(y, cout, cout, 1, act="", gamma=SMALL)
            if block == 0:
                x = g.conv_bn(x, cin, cout, 1, stride=stride, act="", gamma=(0.5, 0.9))
            x = g.op("Relu", g.op("Add", y, x))
            cin = cout
    return head(g, x, cin, 1000)


def resnext50(seed: int = 0, size: int = 224) -> onnx.ModelProto:
    """25.0 M parameters: ResNet-50 with 3x3 convolutions in 32 groups of 4 to 32 channels (Xie, 2017)."""
    g = Graph("resnext50", seed=seed)
    x, cin = bottlenecks(g, size, width=128, groups=32)
    return head(g, x, cin, 1000)


def shufflenetv2(seed: int = 0, size: int = 224) -> onnx.ModelProto:
    """2.3 M parameters: channels are split, one half is convolved, both are shuffled (Ma et al., 2018)."""
    g = Graph("shufflenetv2", seed=seed)
    x = g.conv_bn(g.input("input", [1, 3, size, size]), 3, 24, 3, stride=2)
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    cin, size = 24, size // 4
    for cout, blocks in ((116, 4), (232, 8), (464, 4)):
        half = cout // 2
        size //= 2
        for block in range(blocks):
            if block == 0:
                kept = g.conv_bn(x, cin, cin, 3, stride=2, groups=cin, act="")
                kept, moved, width = g.conv_bn(kept, cin, half, 1), x, cin
            else:
                kept, moved = g.ops("Split", x, g.const([half, half]), outputs=2, axis=1)
                width = half
            y = g.conv_bn(moved, width, half, 1)
            y = g.conv_bn(y, half, half, 3, stride=2 if block == 0 else 1, groups=half, act="", gain=1.0)
            y = g.op("Concat", kept, g.conv_bn(y, half, half, 1, gain=1.0), axis=1)
            pairs = g.op("Reshape", y, g.const([1, 2, half, size, size]))
            x = g.op("Reshape", g.op("Transpose", pairs, perm=[0, 2, 1, 3, 4]), g.const([1, -1, size, size]))
        cin = cout
    x = g.op("ReduceMean", g.conv_bn(x, cin, 1024, 1), axes=[2, 3], keepdims=0)
    classifier(g, x, 1024, 1000)
    return g.model()


def convnext_tiny(seed: int = 0, size: int = 224) -> onnx.ModelProto:
    """28.6 M parameters: 7x7 depthwise, LayerNormalization over channels, erf-GELU (Liu et al., 2022)."""
    g = Graph("convnext_tiny", seed=seed)
    x = g.conv(g.input("input", [1, 3, size, size]), 3, 96, 4, stride=4, pads=[0] * 4, bias=True)
    x, cin = channels_last_norm(g, x, 96), 96
    for cout, blocks in ((96, 3), (192, 3), (384, 9), (768, 3)):
        if cin != cout:
            x = g.conv(channels_last_norm(g, x, cin), cin, cout, 2, stride=2, pads=[0] * 4, bias=True)
        for _ in range(blocks):
            y = g.op("Transpose", g.conv(x, cout, cout, 7, groups=cout, bias=True), perm=[0, 2, 3, 1])
            y = g.act(g.linear(g.layer_norm(y, cout), cout, 4 * cout), "gelu")
            y = g.op("Transpose", g.linear(y, 4 * cout, cout, gain=2.0), perm=[0, 3, 1, 2])
            scale = g.const(g.rng.uniform(0.1, 0.5, (cout, 1, 1)).astype("float32"))
            x = g.op("Add", g.op("Mul", y, scale), x)
        cin = cout
    x = channels_last_norm(g, g.op("GlobalAveragePool", x), cin)
    classifier(g, g.op("Flatten", x), cin, 1000)
    return g.model()
