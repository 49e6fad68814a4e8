"""Convolutions, pools and what else slides over images."""

from __future__ import annotations

from typing import Any

from workbench.models.builder import Graph
from workbench.models.operators.case import case, simple


def _conv_case(
    name: str, shape: list[int], weight: list[int], *, bias: bool = True, op: str = "Conv", **attributes: Any
) -> None:
    @case(name)
    def build(g: Graph) -> None:
        inputs = [g.input("x", shape), g.weight(*weight)]
        if bias:
            channels = weight[0] if op == "Conv" else weight[1] * attributes.get("group", 1)
            inputs.append(g.weight(channels, std=0.5))
        g.op(op, *inputs, name="y", **attributes)
        g.output("y")


_conv_case("conv_1x1", [1, 8, 5, 7], [4, 8, 1, 1])
_conv_case("conv_no_bias", [1, 3, 8, 8], [4, 3, 3, 3], bias=False)
_conv_case("conv_stride_asymmetric_pads", [2, 3, 9, 10], [4, 3, 3, 2], strides=[2, 1], pads=[0, 1, 2, 0])
_conv_case("conv_dilated", [1, 3, 12, 12], [4, 3, 3, 3], dilations=[2, 3], pads=[2, 3, 2, 3])
_conv_case("conv_grouped", [1, 6, 7, 7], [8, 3, 3, 3], group=2, pads=[1] * 4)
_conv_case("conv_depthwise", [1, 6, 7, 7], [6, 1, 3, 3], group=6, pads=[1] * 4)
_conv_case("conv_depth_multiplier", [1, 4, 7, 7], [8, 1, 3, 3], group=4, strides=[2, 2])
_conv_case("conv_same_upper", [1, 3, 7, 8], [4, 3, 3, 3], auto_pad="SAME_UPPER", strides=[2, 2])
_conv_case("conv_same_lower", [1, 3, 7, 8], [4, 3, 2, 2], auto_pad="SAME_LOWER")
_conv_case("conv_valid", [1, 3, 7, 8], [4, 3, 3, 3], auto_pad="VALID")
_conv_case("conv_1d", [1, 3, 20], [4, 3, 5], pads=[2, 2], strides=[2])
_conv_case("conv_1d_dilated_causal", [1, 4, 20], [4, 4, 3], pads=[4, 0], dilations=[2])
_conv_case("conv_3d", [1, 2, 5, 6, 7], [3, 2, 3, 3, 3], pads=[1] * 6)
_conv_case("convtranspose", [1, 4, 5, 5], [4, 3, 2, 2], op="ConvTranspose", strides=[2, 2])
_conv_case(
    "convtranspose_pads",
    [1, 4, 5, 6],
    [4, 3, 3, 3],
    op="ConvTranspose",
    strides=[2, 2],
    pads=[1, 1, 1, 1],
    output_padding=[1, 1],
)
_conv_case(
    "convtranspose_asymmetric",
    [1, 4, 5, 6],
    [4, 3, 3, 3],
    op="ConvTranspose",
    strides=[2, 1],
    pads=[0, 1, 1, 0],
)
_conv_case("convtranspose_grouped", [1, 4, 5, 5], [4, 3, 3, 3], op="ConvTranspose", group=2, pads=[1] * 4)
_conv_case(
    "convtranspose_depthwise",
    [1, 4, 5, 5],
    [4, 1, 4, 4],
    op="ConvTranspose",
    group=4,
    strides=[2, 2],
    pads=[1] * 4,
    bias=False,
)
_conv_case("convtranspose_dilated", [1, 2, 5, 5], [2, 3, 3, 3], op="ConvTranspose", dilations=[2, 2])


@case("convtranspose_computed")
def _convtranspose_computed(g: Graph) -> None:
    """Weights that are not constant, in groups; uneven strides, pads, dilations and output padding."""
    form = {
        "group": 2,
        "strides": [2, 3],
        "dilations": [2, 1],
        "pads": [1, 0, 1, 2],
        "output_padding": [1, 2],
    }
    w = g.input("w", [8, 3, 3, 4])
    g.op("ConvTranspose", g.input("x", [2, 8, 5, 6]), w, g.input("b", [6]), name="y", **form)
    g.output("y")


_conv_case(
    "convtranspose_output_shape",
    [1, 2, 5, 5],
    [2, 3, 3, 3],
    op="ConvTranspose",
    strides=[2, 2],
    output_shape=[10, 10],
)
_conv_case(
    "convtranspose_larger",
    [1, 2, 3, 3],
    [2, 3, 3, 3],
    op="ConvTranspose",
    strides=[3, 2],
    output_shape=[10, 8],
)
_conv_case(
    "convtranspose_same",
    [1, 2, 5, 5],
    [2, 3, 3, 3],
    op="ConvTranspose",
    strides=[2, 2],
    auto_pad="SAME_UPPER",
)
_conv_case("convtranspose_1d", [1, 2, 9], [2, 3, 4], op="ConvTranspose", strides=[2], pads=[1, 1])


@case("conv_weight_as_input")
def _conv_weight_as_input(g: Graph) -> None:
    g.op("Conv", g.input("x", [1, 3, 6, 6]), g.input("w", [4, 3, 3, 3]), name="y", pads=[1] * 4)
    g.output("y")


simple("maxpool", "MaxPool", [1, 3, 8, 8], kernel_shape=[2, 2], strides=[2, 2])
simple("maxpool_pads", "MaxPool", [1, 3, 8, 8], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
simple("maxpool_ceil", "MaxPool", [1, 3, 8, 8], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
simple(
    "maxpool_ceil_pads",
    "MaxPool",
    [1, 3, 9, 9],
    kernel_shape=[3, 3],
    strides=[3, 3],
    pads=[0, 0, 1, 1],
    ceil_mode=1,
)
simple("maxpool_dilated", "MaxPool", [1, 3, 9, 9], kernel_shape=[3, 3], dilations=[2, 2])
simple("maxpool_same", "MaxPool", [1, 3, 7, 8], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
simple(
    "maxpool_same_lower", "MaxPool", [1, 3, 5, 8], kernel_shape=[2, 3], strides=[2, 3], auto_pad="SAME_LOWER"
)
simple(
    "lppool_same_lower", "LpPool", [1, 3, 5, 8], kernel_shape=[2, 3], strides=[2, 3], auto_pad="SAME_LOWER"
)
simple("maxpool_1d", "MaxPool", [1, 3, 9], kernel_shape=[3], strides=[2])
simple("maxpool_int8", "MaxPool", [1, 3, 8, 8], dtype="int8", kernel_shape=[2, 2], strides=[2, 2])
simple("maxpool_uint8", "MaxPool", [1, 3, 8, 8], dtype="uint8", kernel_shape=[3, 3], pads=[1] * 4)
simple("averagepool", "AveragePool", [1, 3, 8, 8], kernel_shape=[2, 2], strides=[2, 2])
simple(
    "averagepool_pads", "AveragePool", [1, 3, 8, 8], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
)
simple(
    "averagepool_include_pad",
    "AveragePool",
    [1, 3, 8, 8],
    kernel_shape=[3, 3],
    pads=[1] * 4,
    count_include_pad=1,
)
simple("averagepool_ceil", "AveragePool", [1, 3, 8, 8], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
simple(
    "averagepool_ceil_include_pad",
    "AveragePool",
    [1, 3, 8, 8],
    kernel_shape=[3, 3],
    strides=[2, 2],
    ceil_mode=1,
    pads=[1] * 4,
    count_include_pad=1,
    opset=19,
)
simple(
    "averagepool_same_lower",
    "AveragePool",
    [1, 3, 7, 8],
    kernel_shape=[3, 3],
    strides=[2, 2],
    auto_pad="SAME_LOWER",
)
simple("averagepool_asymmetric", "AveragePool", [1, 3, 7, 8], kernel_shape=[2, 3], pads=[1, 0, 0, 2])
simple("averagepool_1d", "AveragePool", [1, 3, 9], kernel_shape=[3])
simple("globalaveragepool", "GlobalAveragePool", [2, 3, 5, 7])
simple("globalaveragepool_1d", "GlobalAveragePool", [2, 3, 7])
simple("globalmaxpool", "GlobalMaxPool", [2, 3, 5, 7])
simple("lppool", "LpPool", [1, 3, 8, 8], kernel_shape=[2, 2], strides=[2, 2], p=2)
simple("lrn", "LRN", [2, 7, 5, 5], size=5, alpha=0.1, beta=0.75, bias=2.0)
simple("lrn_one", "LRN", [1, 9, 4, 3], size=1, alpha=0.2, bias=1.5)
simple("depthtospace_dcr", "DepthToSpace", [1, 8, 3, 4], blocksize=2)
simple("depthtospace_crd", "DepthToSpace", [1, 8, 3, 4], blocksize=2, mode="CRD")
simple("spacetodepth", "SpaceToDepth", [1, 2, 6, 4], blocksize=2)
