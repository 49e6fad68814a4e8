"""Convolutional networks, at their real sizes unless an argument says otherwise."""

from __future__ import annotations

import onnx

from workbench.models.builder import Graph

__all__ = [
    "SMALL",
    "bottlenecks",
    "channels_last_norm",
    "classifier",
    "convnext",
    "ds_cnn",
    "efficientnet",
    "head",
    "inverted_residual",
    "mlp",
    "mobilenetv2",
    "mobilenetv3",
    "regnet",
    "resnet50",
    "unet",
    "yolo",
]

#: Of the last convolution of a block with a residual connection, so that sums of many stay small.
SMALL = (0.2, 0.5)


def resnet50(seed: int = 0, size: int = 224) -> onnx.ModelProto:
    """25.6 M parameters; input 1x3x224x224, 1000 logits (He et al., 2015)."""
    g = Graph("resnet50", seed=seed)
    x, cin = bottlenecks(g, size, width=64)
    x = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    g.nodes[-1].name = "flatten"
    classifier(g, x, cin, 1000)
    return g.model()


def mobilenetv2(seed: int = 0, size: int = 224) -> onnx.ModelProto:
    """3.5 M parameters; input 1x3x224x224, 1000 logits (Sandler et al., 2018)."""
    g = Graph("mobilenetv2", seed=seed)
    x = g.conv_bn(g.input("input", [1, 3, size, size]), 3, 32, 3, stride=2, act="relu6")
    cin = 32
    rows = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expand, cout, blocks, stride in rows:
        for block in range(blocks):
            x = inverted_residual(g, x, cin, cout, expand * cin, stride=stride if block == 0 else 1)
            cin = cout
    x = g.conv_bn(x, cin, 1280, 1, act="relu6", gain=1.0)
    x = g.op("ReduceMean", x, axes=[2, 3], keepdims=0)
    classifier(g, x, 1280, 1000)
    return g.model()


def mobilenetv3(seed: int = 0, size: int = 96) -> onnx.ModelProto:
    """The first blocks of MobileNetV3-Small: HardSwish, HardSigmoid gates, squeeze and excite."""
    g = Graph("mobilenetv3", seed=seed)
    x = g.conv_bn(g.input("input", [1, 3, size, size]), 3, 16, 3, stride=2, act="HardSwish")
    cin = 16
    rows = ((16, 16, 3, 2, True, "Relu"), (72, 24, 3, 2, False, "Relu"), (96, 40, 5, 2, True, "HardSwish"))
    for hidden, cout, kernel, stride, excite, act in (*rows, (240, 40, 5, 1, True, "HardSwish")):
        x = inverted_residual(
            g,
            x,
            cin,
            cout,
            hidden,
            stride=stride,
            kernel=kernel,
            act=act,
            gate="HardSigmoid" if excite else "",
        )
        cin = cout
    x = g.conv_bn(x, cin, 240, 1, act="HardSwish")
    x = g.op("Flatten", g.op("GlobalAveragePool", x))
    x = g.op("HardSwish", g.gemm(x, 240, 128))
    classifier(g, x, 128, 100)
    return g.model()


def efficientnet(seed: int = 0, size: int = 96) -> onnx.ModelProto:
    """The first blocks of EfficientNet-B0: SiLU, sigmoid gates, 5x5 depthwise; opset 13."""
    g = Graph("efficientnet", seed=seed, opset=13)
    x = g.conv_bn(g.input("input", ["batch", 3, size, size]), 3, 32, 3, stride=2, act="silu")
    cin = 32
    for hidden, cout, kernel, stride in ((32, 16, 3, 1), (96, 24, 3, 2), (144, 24, 3, 1), (144, 40, 5, 2)):
        x = inverted_residual(
            g, x, cin, cout, hidden, stride=stride, kernel=kernel, act="silu", gate="Sigmoid"
        )
        cin = cout
    x = g.conv_bn(x, cin, 320, 1, act="silu")
    return head(g, x, 320, 100)


def regnet(seed: int = 0, size: int = 96) -> onnx.ModelProto:
    """RegNetY-like: grouped 3x3 convolutions with squeeze and excite."""
    g = Graph("regnet", seed=seed)
    x = g.conv_bn(g.input("input", [1, 3, size, size]), 3, 32, 3, stride=2)
    cin = 32
    for cout in (48, 104, 208):
        y = g.conv_bn(x, cin, cout, 1)
        y = g.conv_bn(y, cout, cout, 3, stride=2, groups=cout // 8)
        y = g.squeeze_excite(y, cout, cin // 4, "Relu", "Sigmoid")
        y = g.conv_bn(y, cout, cout, 1, act="", gamma=(0.3, 0.7))
        x = g.op("Relu", g.op("Add", y, g.conv_bn(x, cin, cout, 1, stride=2, act="")))
        cin = cout
    return head(g, x, cin, 100)


def convnext(seed: int = 0, size: int = 64) -> onnx.ModelProto:
    """ConvNeXt-like: 7x7 depthwise, LayerNormalization in NHWC, erf-GELU, layer scale."""
    g = Graph("convnext", seed=seed)
    x = g.conv(g.input("input", [1, 3, size, size]), 3, 32, 4, stride=4, pads=[0] * 4, bias=True)
    cin = 32
    for cout in (32, 64):
        if cin != cout:
            x = g.conv(channels_last_norm(g, x, cin), cin, cout, 2, stride=2, pads=[0] * 4, bias=True)
        for _ in range(2):
            y = g.op("Transpose", g.conv(x, cout, cout, 7, groups=cout, bias=True), perm=[0, 2, 3, 1])
            y = g.linear(g.layer_norm(y, cout), cout, 4 * cout)
            y = g.op(
                "Mul",
                g.linear(g.act(y, "gelu"), 4 * cout, cout, gain=2.0),
                g.uniform(cout, low=0.1, high=0.5),
            )
            x = g.op("Add", x, g.op("Transpose", y, perm=[0, 3, 1, 2]))
        cin = cout
    x = g.layer_norm(g.op("Flatten", g.op("GlobalAveragePool", x)), cin)
    classifier(g, x, cin, 100)
    return g.model()


def ds_cnn(seed: int = 0) -> onnx.ModelProto:
    """Keyword spotting, DS-CNN of MLPerf Tiny: 49x10 MFCC features, 12 words (Zhang et al., 2017)."""
    g = Graph("ds_cnn", seed=seed)
    x = g.input("mfcc", [1, 1, 49, 10])
    x = g.act(g.batch_norm(g.conv(x, 1, 64, (10, 4), stride=(2, 2), pads=[4, 1, 5, 2]), 64), "Relu")
    for _ in range(4):
        x = g.conv_bn(x, 64, 64, 3, groups=64)
        x = g.conv_bn(x, 64, 64, 1)
    x = g.op("AveragePool", x, kernel_shape=[25, 5])
    logits = g.gemm(g.op("Flatten", x), 64, 12)
    g.op("Softmax", logits, axis=-1, name="words")
    g.output("words")
    return g.model()


def unet(seed: int = 0, size: int = 64, up: str = "transpose") -> onnx.ModelProto:
    """A small U-Net; ``up`` is "transpose" (2x2 transposed convolution) or "resize" (bilinear)."""
    g = Graph(f"unet_{up}", seed=seed)
    x = g.input("image", [1, 3, size, size])
    skips, cin = [], 3
    for width in (16, 32, 64):
        x = g.conv_bn(g.conv_bn(x, cin, width), width, width)
        skips.append((x, width))
        x = g.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        cin = width
    x = g.conv_bn(x, cin, 128)
    cin = 128
    for skip, width in reversed(skips):
        if up == "transpose":
            weight, bias = g.weight(cin, width, 2, 2, std=(1.0 / cin) ** 0.5), g.weight(width, std=0.1)
            x = g.op("ConvTranspose", x, weight, bias, kernel_shape=[2, 2], strides=[2, 2])
        else:
            scales = g.const([1.0, 1.0, 2.0, 2.0])
            x = g.op("Resize", x, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
            x = g.conv(x, cin, width, 1)
        x = g.op("Concat", skip, x, axis=1)
        x = g.conv_bn(g.conv_bn(x, 2 * width, width), width, width)
        cin = width
    g.op("Sigmoid", g.conv(x, cin, 1, 1, bias=True, gain=1.0), name="mask")
    g.output("mask")
    return g.model()


def yolo(seed: int = 0, size: int = 96) -> onnx.ModelProto:
    """YOLO-like: SiLU, split and concat (C2f), spatial pyramid pooling, nearest upsampling, decoded boxes."""
    g = Graph("yolo", seed=seed)
    x = g.conv_bn(g.input("images", [1, 3, size, size]), 3, 16, 3, stride=2, act="silu")
    x = _c2f(g, g.conv_bn(x, 16, 32, 3, stride=2, act="silu"), 32)
    p3 = _c2f(g, g.conv_bn(x, 32, 64, 3, stride=2, act="silu"), 64)
    x = g.conv_bn(p3, 64, 64, 3, stride=2, act="silu")
    pools = [g.conv_bn(x, 64, 32, 1, act="silu")]
    for _ in range(3):
        pools.append(g.op("MaxPool", pools[-1], kernel_shape=[5, 5], pads=[2, 2, 2, 2], strides=[1, 1]))
    p4 = g.conv_bn(g.op("Concat", *pools, axis=1), 128, 64, 1, act="silu")
    sizes = g.const([1.0, 1.0, 2.0, 2.0])
    up = g.op(
        "Resize",
        p4,
        "",
        sizes,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    n3 = _c2f(g, g.conv_bn(g.op("Concat", up, p3, axis=1), 128, 64, 1, act="silu"), 64)
    cells, classes = (size // 8) ** 2 + (size // 16) ** 2, 10
    heads = [
        g.op("Reshape", g.conv(level, 64, 64 + classes, 1, bias=True), g.const([1, 64 + classes, -1]))
        for level in (n3, p4)
    ]
    boxes, scores = g.ops("Split", g.op("Concat", *heads, axis=2), g.const([64, classes]), outputs=2, axis=1)
    # Distribution focal loss: softmax over 16 bins, then their mean.
    bins = g.op("Transpose", g.op("Reshape", boxes, g.const([1, 4, 16, cells])), perm=[0, 2, 1, 3])
    bins = g.op("Conv", g.op("Softmax", bins, axis=1), g.const([[[[float(i)]] for i in range(16)]]))
    sides = g.op("Reshape", bins, g.const([1, 4, cells]))
    low = g.op("Slice", sides, g.const([0]), g.const([2]), g.const([1]))
    high = g.op("Slice", sides, g.const([2]), g.const([4]), g.const([1]))
    anchors = g.uniform(1, 2, cells, low=0.0, high=float(size))
    start, end = g.op("Sub", anchors, low), g.op("Add", anchors, high)
    centre = g.op("Div", g.op("Add", start, end), g.const(2.0))
    g.op("Concat", centre, g.op("Sub", end, start), g.op("Sigmoid", scores), axis=1, name="detections")
    g.output("detections")
    return g.model()


def mlp(seed: int = 0, batch: int | str = 1) -> onnx.ModelProto:
    """784-256-128-10 with ReLU and softmax."""
    g = Graph("mlp", seed=seed)
    x = g.input("x", [batch, 784])
    for cin, cout in ((784, 256), (256, 128)):
        x = g.op("Relu", g.gemm(x, cin, cout))
    g.op("Softmax", g.gemm(x, 128, 10), axis=1, name="probabilities")
    g.output("probabilities")
    return g.model()


def classifier(g: Graph, x: str, cin: int, classes: int) -> None:
    """The output "logits": a fully connected layer."""
    g.op("Gemm", x, g.weight(classes, cin), g.weight(classes, std=0.1), transB=1, name="logits")
    g.output("logits")


def head(g: Graph, x: str, cin: int, classes: int) -> onnx.ModelProto:
    """The mean over the image, and the classifier: the finished model."""
    classifier(g, g.op("Flatten", g.op("GlobalAveragePool", x)), cin, classes)
    return g.model()


def bottlenecks(g: Graph, size: int, *, width: int, groups: int = 1) -> tuple[str, int]:
    """ResNet-50 up to its last feature map, and the channels of that.

    Args:
        width: of the 3x3 convolutions in the first stage; it doubles from stage to stage.
        groups: of the 3x3 convolutions.
    """
    x = g.conv_bn(g.input("input", [1, 3, size, size]), 3, 64, 7, stride=2)
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    cin, cout = 64, 256
    for blocks, first in ((3, 1), (4, 2), (6, 2), (3, 2)):
        for block in range(blocks):
            stride = first if block == 0 else 1
            y = g.conv_bn(x, cin, width, 1)
            y = g.conv_bn(y, width, width, 3, stride=stride, groups=groups)
            y = g.conv_bn(y, width, cout, 1, act="", gamma=SMALL)
            if block == 0:
                x = g.conv_bn(x, cin, cout, 1, stride=stride, act="", gamma=(0.5, 0.9))
            x = g.op("Relu", g.op("Add", y, x))
            cin = cout
        width, cout = 2 * width, 2 * cout
    return x, cin


def inverted_residual(
    g: Graph,
    x: str,
    cin: int,
    cout: int,
    hidden: int,
    *,
    stride: int,
    kernel: int = 3,
    act: str = "relu6",
    gate: str = "",
    reduced: int = 0,
    gate_act: str = "Relu",
    gain: float = 2.0,
) -> str:
    """Expand, depthwise, project (MobileNetV2 and after).

    Args:
        gate: the operator that makes the gates of squeeze and excite, if there are any.
        reduced: channels of the gates' hidden layer (0: a quarter of ``hidden``), ``gate_act`` behind it.
        gain: of the projection; gates and SiLU want more than 2, else nothing is left of the input.
    """
    y = x
    if hidden != cin:
        y = g.conv_bn(y, cin, hidden, 1, act=act, gain=1.0)
    y = g.conv_bn(y, hidden, hidden, kernel, stride=stride, groups=hidden, act=act)
    if gate:
        y = g.squeeze_excite(y, hidden, reduced or max(8, hidden // 4), gate_act, gate)
    y = g.conv_bn(y, hidden, cout, 1, act="", gamma=(0.5, 0.9), gain=gain)
    return g.op("Add", x, y) if stride == 1 and cin == cout else y


def channels_last_norm(g: Graph, x: str, channels: int) -> str:
    """LayerNormalization over the channels of an NCHW tensor, as torch exports ConvNeXt's."""
    y = g.layer_norm(g.op("Transpose", x, perm=[0, 2, 3, 1]), channels)
    return g.op("Transpose", y, perm=[0, 3, 1, 2])


def _c2f(g: Graph, x: str, channels: int) -> str:
    half = channels // 2
    split = g.const([half, half])
    first, second = g.ops("Split", g.conv_bn(x, channels, channels, 1, act="silu"), split, outputs=2, axis=1)
    inner = g.conv_bn(g.conv_bn(second, half, half, act="silu"), half, half, act="silu", gamma=(0.3, 0.7))
    parts = [first, second, g.op("Add", second, inner)]
    return g.conv_bn(g.op("Concat", *parts, axis=1), 3 * half, channels, 1, act="silu")
