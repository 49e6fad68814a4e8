"""Small models around one operator each: ``CASES[name]()`` gives a seeded model with static shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from tests.models.builder import Graph

__all__ = ["CASES"]

CASES: dict[str, Callable[[], onnx.ModelProto]] = {}

Build = Callable[[Graph], None]


def case(name: str, *, opset: int = 17) -> Callable[[Build], Build]:
    """Registers a function that fills a graph."""

    def register(build: Build) -> Build:
        def make() -> onnx.ModelProto:
            g = Graph(name, seed=sum(name.encode()), opset=opset)
            build(g)
            return g.model()

        assert name not in CASES, name
        CASES[name] = make
        return build

    return register


def simple(
    name: str,
    op: str,
    shape: list[int],
    *constants: Any,
    opset: int = 17,
    dtype: str = "float32",
    to: str | None = None,
    prefix: Callable[[Graph, str], str] | None = None,
    **attributes: Any,
) -> None:
    """A case of one node: ``op(x, *constants)``; a constant "" is an input left out."""

    @case(name, opset=opset)
    def build(g: Graph) -> None:
        x = g.input("x", shape, dtype)
        x = prefix(g, x) if prefix else x
        inputs = [c if isinstance(c, str) else g.const(c) for c in constants]
        g.op(op, x, *inputs, name="y", **attributes)
        g.output("y", to or dtype)


def positive(g: Graph, x: str) -> str:
    return g.op("Add", g.op("Abs", x), g.const(0.1))


def unit(g: Graph, x: str) -> str:
    return g.op("Mul", g.op("Tanh", x), g.const(0.9))


def above_one(g: Graph, x: str) -> str:
    return g.op("Add", g.op("Abs", x), g.const(1.1))


# elementwise ---------------------------------------------------------------------------------------------

for _op in ("Abs", "Atan", "Asinh", "Ceil", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish",
            "Identity", "LeakyRelu", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh",
            "Softplus", "Softsign", "Tan", "Tanh", "ThresholdedRelu"):  # fmt: skip
    simple(_op.lower(), _op, [2, 3, 5])
for _op in ("Acos", "Asin", "Atanh"):
    simple(_op.lower(), _op, [2, 3, 5], prefix=unit)
for _op in ("Log", "Sqrt"):
    simple(_op.lower(), _op, [2, 3, 5], prefix=positive)
simple("acosh", "Acosh", [2, 3, 5], prefix=above_one)
simple("celu", "Celu", [2, 3, 5], alpha=0.7)
simple("elu_alpha", "Elu", [2, 3, 5], alpha=0.3)
simple("gelu_erf", "Gelu", [2, 3, 5], opset=20)
simple("gelu_tanh", "Gelu", [2, 3, 5], opset=20, approximate="tanh")
simple("hardsigmoid_attributes", "HardSigmoid", [2, 3, 5], alpha=0.3, beta=0.4)
simple("leakyrelu_slope", "LeakyRelu", [2, 3, 5], alpha=0.2)
simple("mish", "Mish", [2, 3, 5], opset=18)
simple("shrink", "Shrink", [2, 3, 5], bias=0.3, lambd=0.5)
simple("swish", "Swish", [2, 3, 5], opset=24, alpha=1.5)
simple("prelu_channels", "PRelu", [2, 3, 4, 4], np.float32([[[0.1]], [[0.2]], [[0.3]]]))
simple("prelu_scalar", "PRelu", [2, 3, 4], np.float32([0.25]))
simple("prelu_full", "PRelu", [1, 3, 2, 2], np.linspace(-1, 1, 12, dtype="float32").reshape(3, 2, 2))
simple("clip_both", "Clip", [2, 3, 5], -0.5, 0.7)
simple("clip_low", "Clip", [2, 3, 5], -0.5)
simple("clip_high", "Clip", [2, 3, 5], "", 0.5)
simple("clip_opset6", "Clip", [2, 3, 5], opset=6, min=-0.5, max=0.5)
simple("clip_int", "Clip", [2, 3, 5], np.int32(-3), np.int32(4), dtype="int32")
simple("pow_two", "Pow", [2, 3, 5], 2.0)
simple("pow_half", "Pow", [2, 3, 5], 0.5, prefix=positive)
simple("isnan", "IsNaN", [2, 3, 5], to="bool")
simple("isinf", "IsInf", [2, 3, 5], to="bool")
simple("not", "Not", [2, 3], dtype="bool")
simple("bitwise_not", "BitwiseNot", [2, 3], dtype="int32", opset=18)
simple("dropout", "Dropout", [2, 3, 5])

def _cast_case(target: str, code: int) -> None:
    @case(f"cast_{target}")
    def build(g: Graph) -> None:
        x = g.op("Mul", g.op("Abs", g.input("x", [2, 3, 5])), g.const(3.0))
        g.op("Cast", x, to=code, name="y")
        g.output("y", target)


for _target, _code in (("int32", 6), ("int64", 7), ("uint8", 2), ("int8", 3), ("float16", 10), ("bool", 9), ("float64", 11)):
    _cast_case(_target, _code)


def _binary(op: str, dtype: str, to: str, opset: int = 18, **attributes: Any) -> None:
    @case(f"{op.lower()}_{dtype}" + ("_fmod" if attributes else ""), opset=opset)
    def build(g: Graph) -> None:
        a, b = g.input("a", [2, 3, 4], dtype), g.input("b", [3, 1], dtype)
        if op == "Pow":
            a = positive(g, a)
        g.op(op, a, b, name="y", **attributes)
        g.output("y", to)


for _op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Sum", "Mean"):
    _binary(_op, "float32", "float32")
for _op in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"):
    _binary(_op, "int32", "int32")
    _binary(_op, "int64", "int64")
_binary("Mod", "float32", "float32", fmod=1)
_binary("Mod", "int32", "int32", fmod=1)
for _op in ("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"):
    _binary(_op, "float32", "bool")
    _binary(_op, "int32", "bool")
for _op in ("And", "Or", "Xor", "Equal"):
    _binary(_op, "bool", "bool")
for _op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
    _binary(_op, "int32", "int32")


@case("bitshift")
def _bitshift(g: Graph) -> None:
    g.op("BitShift", g.input("x", [2, 3], "uint8"), g.const(np.uint8(2)), direction="LEFT", name="y")
    g.output("y", "uint8")


@case("where")
def _where(g: Graph) -> None:
    x = g.input("x", [2, 3, 4])
    g.op("Where", g.op("Greater", x, g.const(0.0)), x, g.const(-1.0), name="y")
    g.output("y")


@case("where_broadcast")
def _where_broadcast(g: Graph) -> None:
    g.op("Where", g.input("c", [3, 1], "bool"), g.input("a", [2, 1, 4]), g.input("b", [4]), name="y")
    g.output("y")


@case("max_of_three")
def _max_of_three(g: Graph) -> None:
    g.op("Max", g.input("a", [2, 3]), g.input("b", [3]), g.const(0.1), name="y")
    g.output("y")


# convolutions and pools -----------------------------------------------------------------------------------


def _conv_case(name: str, shape: list[int], weight: list[int], *, bias: bool = True, op: str = "Conv", **attributes: Any) -> None:
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
_conv_case("convtranspose_pads", [1, 4, 5, 6], [4, 3, 3, 3], op="ConvTranspose", strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
_conv_case("convtranspose_asymmetric", [1, 4, 5, 6], [4, 3, 3, 3], op="ConvTranspose", strides=[2, 1], pads=[0, 1, 1, 0])
_conv_case("convtranspose_grouped", [1, 4, 5, 5], [4, 3, 3, 3], op="ConvTranspose", group=2, pads=[1] * 4)
_conv_case("convtranspose_depthwise", [1, 4, 5, 5], [4, 1, 4, 4], op="ConvTranspose", group=4, strides=[2, 2], pads=[1] * 4, bias=False)
_conv_case("convtranspose_dilated", [1, 2, 5, 5], [2, 3, 3, 3], op="ConvTranspose", dilations=[2, 2])
_conv_case("convtranspose_output_shape", [1, 2, 5, 5], [2, 3, 3, 3], op="ConvTranspose", strides=[2, 2], output_shape=[10, 10])
_conv_case("convtranspose_same", [1, 2, 5, 5], [2, 3, 3, 3], op="ConvTranspose", strides=[2, 2], auto_pad="SAME_UPPER")
_conv_case("convtranspose_1d", [1, 2, 9], [2, 3, 4], op="ConvTranspose", strides=[2], pads=[1, 1])


@case("conv_weight_as_input")
def _conv_weight_as_input(g: Graph) -> None:
    g.op("Conv", g.input("x", [1, 3, 6, 6]), g.input("w", [4, 3, 3, 3]), name="y", pads=[1] * 4)
    g.output("y")


simple("maxpool", "MaxPool", [1, 3, 8, 8], kernel_shape=[2, 2], strides=[2, 2])
simple("maxpool_pads", "MaxPool", [1, 3, 8, 8], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
simple("maxpool_ceil", "MaxPool", [1, 3, 8, 8], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
simple("maxpool_ceil_pads", "MaxPool", [1, 3, 9, 9], kernel_shape=[3, 3], strides=[3, 3], pads=[0, 0, 1, 1], ceil_mode=1)
simple("maxpool_dilated", "MaxPool", [1, 3, 9, 9], kernel_shape=[3, 3], dilations=[2, 2])
simple("maxpool_same", "MaxPool", [1, 3, 7, 8], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
simple("maxpool_1d", "MaxPool", [1, 3, 9], kernel_shape=[3], strides=[2])
simple("maxpool_int8", "MaxPool", [1, 3, 8, 8], dtype="int8", kernel_shape=[2, 2], strides=[2, 2])
simple("maxpool_uint8", "MaxPool", [1, 3, 8, 8], dtype="uint8", kernel_shape=[3, 3], pads=[1] * 4)
simple("averagepool", "AveragePool", [1, 3, 8, 8], kernel_shape=[2, 2], strides=[2, 2])
simple("averagepool_pads", "AveragePool", [1, 3, 8, 8], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
simple("averagepool_include_pad", "AveragePool", [1, 3, 8, 8], kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)
simple("averagepool_ceil", "AveragePool", [1, 3, 8, 8], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
simple("averagepool_ceil_include_pad", "AveragePool", [1, 3, 8, 8], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, pads=[1] * 4, count_include_pad=1, opset=19)
simple("averagepool_same_lower", "AveragePool", [1, 3, 7, 8], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER")
simple("averagepool_asymmetric", "AveragePool", [1, 3, 7, 8], kernel_shape=[2, 3], pads=[1, 0, 0, 2])
simple("averagepool_1d", "AveragePool", [1, 3, 9], kernel_shape=[3])
simple("globalaveragepool", "GlobalAveragePool", [2, 3, 5, 7])
simple("globalaveragepool_1d", "GlobalAveragePool", [2, 3, 7])
simple("globalmaxpool", "GlobalMaxPool", [2, 3, 5, 7])
simple("lppool", "LpPool", [1, 3, 8, 8], kernel_shape=[2, 2], strides=[2, 2], p=2)
simple("lrn", "LRN", [2, 7, 5, 5], size=5, alpha=0.1, beta=0.75, bias=2.0)
simple("depthtospace_dcr", "DepthToSpace", [1, 8, 3, 4], blocksize=2)
simple("depthtospace_crd", "DepthToSpace", [1, 8, 3, 4], blocksize=2, mode="CRD")
simple("spacetodepth", "SpaceToDepth", [1, 2, 6, 4], blocksize=2)

# normalisations, softmax, reductions ----------------------------------------------------------------------

simple("batchnorm", "BatchNormalization", [2, 3, 4, 4], np.float32([1, 0.5, 2]), np.float32([0.1, 0, -0.1]), np.float32([0.2, -0.2, 0]), np.float32([1, 2, 0.5]))
simple("batchnorm_2d", "BatchNormalization", [4, 3], np.float32([1, 0.5, 2]), np.float32([0.1, 0, -0.1]), np.float32([0.2, -0.2, 0]), np.float32([1, 2, 0.5]))
simple("instancenorm", "InstanceNormalization", [2, 3, 5, 4], np.float32([1, 0.5, 2]), np.float32([0.1, 0, -0.1]), epsilon=1e-4)
simple("instancenorm_1d", "InstanceNormalization", [2, 3, 9], np.float32([1, 0.5, 2]), np.float32([0.1, 0, -0.1]))
simple("groupnorm_18", "GroupNormalization", [2, 6, 4, 4], np.float32([1, 2, 0.5]), np.float32([0.1, 0, -0.1]), num_groups=3, opset=18)
simple("groupnorm_21", "GroupNormalization", [2, 4, 4, 4], np.float32([1, 2, 0.5, 1]), np.float32([0.1, 0, -0.1, 0]), num_groups=2, opset=21)
simple("layernorm", "LayerNormalization", [2, 3, 8], np.linspace(0.5, 1.5, 8, dtype="float32"), np.linspace(-1, 1, 8, dtype="float32"), axis=-1)
simple("layernorm_no_bias", "LayerNormalization", [2, 3, 8], np.linspace(0.5, 1.5, 8, dtype="float32"))
simple("layernorm_two_axes", "LayerNormalization", [2, 3, 8], np.linspace(0.5, 1.5, 24, dtype="float32").reshape(3, 8), np.zeros((3, 8), "float32"), axis=1)
simple("rmsnorm", "RMSNormalization", [2, 3, 8], np.linspace(0.5, 1.5, 8, dtype="float32"), opset=23)
simple("mvn", "MeanVarianceNormalization", [2, 3, 4, 4])
simple("lpnorm", "LpNormalization", [2, 3, 5], p=2, axis=1)
simple("lpnorm_1", "LpNormalization", [2, 3, 5], p=1)
for _axis in (0, 1, -1):
    simple(f"softmax_axis_{_axis}", "Softmax", [3, 4, 5], axis=_axis)
    simple(f"softmax_opset11_axis_{_axis}", "Softmax", [3, 4, 5], opset=11, axis=_axis)
simple("softmax_opset11_default", "Softmax", [2, 3, 4], opset=11)
simple("logsoftmax", "LogSoftmax", [3, 4, 5], axis=1)
simple("logsoftmax_opset11", "LogSoftmax", [3, 4, 5], opset=11)
simple("hardmax", "Hardmax", [3, 4, 5], axis=1)
for _op in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare"):
    simple(f"{_op.lower()}_axes", _op, [2, 3, 4], axes=[0, 2], keepdims=0)
    simple(f"{_op.lower()}_all", _op, [2, 3, 4], keepdims=1)
    simple(f"{_op.lower()}_18", _op, [2, 3, 4], np.int64([-1]), opset=18)
simple("reducelogsum", "ReduceLogSum", [2, 3, 4], axes=[1], prefix=positive)
simple("reducesum_axes", "ReduceSum", [2, 3, 4], np.int64([0, -1]), keepdims=0)
simple("reducesum_all", "ReduceSum", [2, 3, 4])
simple("reducesum_noop", "ReduceSum", [2, 3, 4], np.zeros(0, "int64"), noop_with_empty_axes=1)
simple("reducesum_opset11", "ReduceSum", [2, 3, 4], opset=11, axes=[1])
simple("reducesum_int32", "ReduceSum", [2, 3, 4], np.int64([1]), dtype="int32")
simple("reducemean_scalar", "ReduceMean", [2, 3, 4], keepdims=0)
simple("reducemax_uint8", "ReduceMax", [2, 3, 4], dtype="uint8", axes=[1])
simple("argmax", "ArgMax", [2, 3, 4], to="int64", axis=1, keepdims=0)
simple("argmax_keep", "ArgMax", [2, 3, 4], to="int64", axis=-1)
simple("argmin", "ArgMin", [2, 3, 4], to="int64", axis=0)
simple("argmax_last_index", "ArgMax", [2, 3, 40], to="int64", axis=-1, select_last_index=1, dtype="int32")
simple("cumsum", "CumSum", [2, 3, 4], np.int64(1))
simple("cumsum_exclusive_reverse", "CumSum", [2, 3, 4], np.int64(-1), exclusive=1, reverse=1)

# shapes and moves ------------------------------------------------------------------------------------------

simple("transpose_default", "Transpose", [2, 3, 4])
simple("transpose_perm", "Transpose", [2, 3, 4, 5], perm=[0, 3, 1, 2])
simple("reshape_minus_one", "Reshape", [2, 3, 4], np.int64([0, -1]))
simple("reshape_allowzero", "Reshape", [2, 3, 4], np.int64([4, 6]), allowzero=1)
simple("flatten_axis_0", "Flatten", [2, 3, 4], axis=0)
simple("flatten_negative", "Flatten", [2, 3, 4, 5], axis=-1)
simple("squeeze_axes", "Squeeze", [1, 3, 1, 5], np.int64([0, 2]))
simple("squeeze_all", "Squeeze", [1, 3, 1, 5])
simple("squeeze_opset11", "Squeeze", [1, 3, 1, 5], opset=11, axes=[2])
simple("unsqueeze", "Unsqueeze", [3, 5], np.int64([0, -1]))
simple("unsqueeze_opset11", "Unsqueeze", [3, 5], opset=11, axes=[0, 3])
simple("expand", "Expand", [3, 1], np.int64([2, 1, 4]))
simple("tile", "Tile", [2, 3], np.int64([2, 3]))
simple("slice_steps", "Slice", [6, 7, 8], np.int64([1, -1]), np.int64([6, -8]), np.int64([0, 2]), np.int64([2, -3]))
simple("slice_opset9", "Slice", [6, 7, 8], opset=9, axes=[0, 2], starts=[1, -3], ends=[4, 1000])
simple("slice_clamped", "Slice", [6, 7], np.int64([-100]), np.int64([2**63 - 1]), np.int64([1]))
simple("trilu_upper", "Trilu", [2, 4, 5], np.int64(1), upper=1)
simple("trilu_lower", "Trilu", [4, 4], upper=0)
simple("gather_axis_1", "Gather", [3, 5, 4], np.int64([[0, 2], [-1, 4]]), axis=1)
simple("gather_scalar", "Gather", [3, 5, 4], np.int64(1), axis=0)
simple("gather_nd", "GatherND", [2, 3, 4], np.int64([[0, 1], [1, 2]]))
simple("gather_nd_batch", "GatherND", [2, 3, 4], np.int64([[1], [0]]), batch_dims=1)
simple("gather_elements", "GatherElements", [3, 4], np.int64([[0, -1], [1, 2], [3, 0]]), axis=1)
simple("scatter_nd", "ScatterND", [4, 3], np.int64([[0], [2]]), np.float32([[1, 2, 3], [4, 5, 6]]))
simple("scatter_nd_add", "ScatterND", [4, 3], np.int64([[0], [2]]), np.float32([[1, 2, 3], [4, 5, 6]]), opset=18, reduction="add")
simple("scatter_elements", "ScatterElements", [3, 4], np.int64([[0, 2]]), np.float32([[7, 8]]), axis=0)
simple("scatter_elements_add", "ScatterElements", [3, 4], np.int64([[0, -1]]), np.float32([[7, 8]]), axis=1, opset=18, reduction="add")
simple("pad_constant", "Pad", [2, 3, 4], np.int64([0, 1, 2, 0, 0, 1]), 1.5)
simple("pad_reflect", "Pad", [1, 3, 5, 6], np.int64([0, 0, 1, 2, 0, 0, 2, 1]), mode="reflect")
simple("pad_edge", "Pad", [1, 3, 5, 6], np.int64([0, 0, 1, 2, 0, 0, 2, 1]), mode="edge")
simple("pad_wrap", "Pad", [1, 3, 5, 6], np.int64([0, 0, 1, 2, 0, 0, 2, 1]), mode="wrap", opset=19)
simple("pad_negative", "Pad", [2, 5], np.int64([0, -1, 0, -2]))
simple("pad_axes", "Pad", [2, 3, 4], np.int64([1, 2]), "", np.int64([-1]), opset=18)
simple("pad_opset10", "Pad", [2, 3], opset=10, pads=[0, 1, 2, 0], value=0.5)
simple("onehot_constant_depth", "OneHot", [4], np.int64(5), np.float32([-1, 2]), dtype="int64", to="float32")
simple("eyelike", "EyeLike", [3, 4], k=1, dtype="float32")
simple("shape", "Shape", [3, 4], to="int64")
simple("size", "Size", [3, 4], to="int64")


@case("concat_three")
def _concat(g: Graph) -> None:
    g.op("Concat", g.input("a", [2, 3]), g.const(np.ones((2, 1), "float32")), g.input("b", [2, 2]), axis=-1, name="y")
    g.output("y")


@case("split_sizes")
def _split_sizes(g: Graph) -> None:
    g.nodes.append(onnx.helper.make_node("Split", [g.input("x", [2, 7]), g.const([2, 4, 1])], ["a", "b", "c"], axis=1))
    for name in "abc":
        g.output(name)


@case("split_equal")
def _split_equal(g: Graph) -> None:
    g.nodes.append(onnx.helper.make_node("Split", [g.input("x", [6, 3])], ["a", "b"]))
    g.output("a")
    g.output("b")


@case("split_num_outputs", opset=18)
def _split_num_outputs(g: Graph) -> None:
    g.nodes.append(onnx.helper.make_node("Split", [g.input("x", [2, 7])], ["a", "b", "c"], axis=1, num_outputs=3))
    for name in "abc":
        g.output(name)


@case("gather_input_indices")
def _gather_input_indices(g: Graph) -> None:
    g.op("Gather", g.weight(11, 4), g.input("ids", [2, 3], "int32"), name="y")
    g.output("y")


@case("topk")
def _topk(g: Graph) -> None:
    g.nodes.append(onnx.helper.make_node("TopK", [g.input("x", [3, 20]), g.const([5])], ["values", "indices"], axis=1))
    g.output("values")
    g.output("indices", "int64")


@case("topk_smallest")
def _topk_smallest(g: Graph) -> None:
    g.nodes.append(onnx.helper.make_node("TopK", [g.input("x", [6, 4]), g.const([2])], ["values", "indices"], axis=0, largest=0))
    g.output("values")
    g.output("indices", "int64")


@case("range_constant")
def _range(g: Graph) -> None:
    positions = g.op("Range", g.const(0), g.const(6), g.const(1))
    g.op("Add", g.input("x", [2, 6], "int64"), positions, name="y")
    g.output("y", "int64")


@case("shape_chain")
def _shape_chain(g: Graph) -> None:
    x = g.input("x", [2, 3, 4, 5])
    rows = g.op("Gather", g.op("Shape", x), g.const([0]))
    g.op("Reshape", x, g.op("Concat", rows, g.const([-1]), axis=0), name="y")
    g.output("y")


@case("constant_of_shape")
def _constant_of_shape(g: Graph) -> None:
    x = g.input("x", [2, 3])
    ones = g.op("ConstantOfShape", g.op("Shape", x), value=onnx.helper.make_tensor("one", 1, [1], [1.0]))
    g.op("Add", x, ones, name="y")
    g.output("y")


# products ------------------------------------------------------------------------------------------------


def _einsum(name: str, equation: str, *shapes: list[int]) -> None:
    @case(name)
    def build(g: Graph) -> None:
        g.op("Einsum", *(g.input(f"x{i}", shape) for i, shape in enumerate(shapes)), equation=equation, name="y")
        g.output("y")


_einsum("einsum_matmul", "bij,bjk->bik", [2, 3, 4], [2, 4, 5])
_einsum("einsum_attention", "bqhd,bkhd->bhqk", [1, 5, 2, 4], [1, 6, 2, 4])
_einsum("einsum_outer", "i,j->ij", [3], [4])
_einsum("einsum_transpose", "ijk->kji", [2, 3, 4])
_einsum("einsum_implicit", "ij,jk", [2, 3], [3, 4])
_einsum("einsum_ellipsis", "...ij,...jk->...ik", [2, 3, 4], [2, 4, 5])


def _matmul(name: str, a: list[int], b: list[int]) -> None:
    @case(name)
    def build(g: Graph) -> None:
        g.op("MatMul", g.input("a", a), g.input("b", b), name="y")
        g.output("y")


_matmul("matmul_2d", [3, 4], [4, 5])
_matmul("matmul_batched", [2, 1, 3, 4], [6, 4, 5])
_matmul("matmul_vector_left", [4], [4, 5])
_matmul("matmul_vector_right", [2, 3, 4], [4])


@case("gemm_all")
def _gemm_all(g: Graph) -> None:
    a, b = g.input("a", [4, 3]), g.input("b", [5, 4])
    g.op("Gemm", a, b, g.const([[0.5], [1.0], [2.0]]), transA=1, transB=1, alpha=0.5, beta=2.0, name="y")
    g.output("y")


@case("gemm_no_bias")
def _gemm_no_bias(g: Graph) -> None:
    g.op("Gemm", g.input("a", [3, 4]), g.weight(4, 5), name="y")
    g.output("y")


@case("matmul_integer")
def _matmul_integer(g: Graph) -> None:
    a, b = g.input("a", [3, 4], "uint8"), g.const(g.rng.integers(-128, 128, (4, 5)).astype("int8"))
    g.op("MatMulInteger", a, b, g.const(np.uint8(120)), g.const(np.int8(3)), name="y")
    g.output("y", "int32")


@case("conv_integer")
def _conv_integer(g: Graph) -> None:
    x, w = g.input("x", [1, 3, 6, 6], "uint8"), g.const(g.rng.integers(0, 255, (4, 3, 3, 3)).astype("uint8"))
    g.op("ConvInteger", x, w, g.const(np.uint8(120)), g.const(np.uint8(128)), pads=[1] * 4, name="y")
    g.output("y", "int32")


# resize ----------------------------------------------------------------------------------------------------


def _resize(name: str, shape: list[int], *, scales: list[float] | None = None, sizes: list[int] | None = None, opset: int = 17, **attributes: Any) -> None:
    @case(name, opset=opset)
    def build(g: Graph) -> None:
        inputs = [g.input("x", shape), g.const(np.zeros(0, "float32")) if opset < 13 else ""]
        inputs += [g.const(scales)] if scales is not None else ["", g.const(sizes)]
        g.op("Resize", *inputs, name="y", **attributes)
        g.output("y")


_UP = [1.0, 1.0, 2.0, 2.0]
for _mode in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"):
    for _kind in ("nearest", "linear", "cubic"):
        _resize(f"resize_{_kind}_{_mode}", [1, 2, 5, 6], scales=_UP, mode=_kind, coordinate_transformation_mode=_mode)
        _resize(f"resize_{_kind}_{_mode}_sizes", [1, 2, 5, 6], sizes=[1, 2, 8, 4], mode=_kind, coordinate_transformation_mode=_mode)
for _nearest in ("floor", "ceil", "round_prefer_ceil", "round_prefer_floor"):
    _resize(f"resize_nearest_{_nearest}", [1, 2, 5, 6], sizes=[1, 2, 8, 9], mode="nearest", nearest_mode=_nearest, coordinate_transformation_mode="asymmetric")
    _resize(f"resize_nearest_{_nearest}_half_pixel", [1, 2, 5, 6], sizes=[1, 2, 8, 9], mode="nearest", nearest_mode=_nearest)
_resize("resize_cubic_coefficient", [1, 2, 5, 6], scales=_UP, mode="cubic", cubic_coeff_a=-0.5, coordinate_transformation_mode="half_pixel")
_resize("resize_cubic_exclude_outside", [1, 2, 5, 6], scales=_UP, mode="cubic", exclude_outside=1)
_resize("resize_fractional", [1, 2, 5, 6], scales=[1.0, 1.0, 1.5, 0.7], mode="linear")
_resize("resize_nearest_fractional", [1, 2, 5, 6], scales=[1.0, 1.0, 1.5, 0.7], mode="nearest")
_resize("resize_1d", [1, 2, 5], scales=[1.0, 1.0, 2.0], mode="linear")
_resize("resize_opset11", [1, 2, 5, 6], scales=_UP, mode="linear", opset=11, coordinate_transformation_mode="align_corners")
_resize("resize_opset18_axes", [1, 2, 5, 6], scales=[2.0, 2.0], mode="linear", opset=18, axes=[2, 3])
_resize("resize_antialias", [1, 2, 8, 8], sizes=[1, 2, 4, 5], mode="linear", opset=18, antialias=1)
_resize("resize_channels_last", [1, 5, 6, 2], scales=[1.0, 2.0, 2.0, 1.0], mode="linear")


@case("resize_opset10", opset=10)
def _resize_opset10(g: Graph) -> None:
    g.op("Resize", g.input("x", [1, 2, 5, 6]), g.const(_UP), mode="nearest", name="y")
    g.output("y")


@case("upsample_nearest", opset=9)
def _upsample(g: Graph) -> None:
    g.op("Upsample", g.input("x", [1, 2, 5, 6]), g.const(_UP), mode="nearest", name="y")
    g.output("y")


@case("upsample_linear", opset=9)
def _upsample_linear(g: Graph) -> None:
    g.op("Upsample", g.input("x", [1, 2, 5, 6]), g.const(_UP), mode="linear", name="y")
    g.output("y")


@case("gridsample", opset=16)
def _gridsample(g: Graph) -> None:
    grid = g.op("Tanh", g.input("grid", [1, 4, 5, 2]))
    g.op("GridSample", g.input("x", [1, 2, 6, 6]), grid, name="y")
    g.output("y")


# quantised ---------------------------------------------------------------------------------------------------


@case("quantize_uint8")
def _quantize(g: Graph) -> None:
    g.op("QuantizeLinear", g.input("x", [2, 3, 4]), g.const(np.float32(0.03)), g.const(np.uint8(120)), name="y")
    g.output("y", "uint8")


@case("quantize_int8_channels")
def _quantize_channels(g: Graph) -> None:
    g.op("QuantizeLinear", g.input("x", [2, 3, 4]), g.const([0.03, 0.01, 0.02]), g.const(np.zeros(3, "int8")), axis=1, name="y")
    g.output("y", "int8")


@case("dequantize_uint8")
def _dequantize(g: Graph) -> None:
    g.op("DequantizeLinear", g.input("x", [2, 3, 4], "uint8"), g.const(np.float32(0.03)), g.const(np.uint8(120)), name="y")
    g.output("y")


@case("dequantize_int8_channels")
def _dequantize_channels(g: Graph) -> None:
    g.op("DequantizeLinear", g.input("x", [2, 3, 4], "int8"), g.const([0.03, 0.01, 0.02]), g.const(np.int8([0, 3, -3])), axis=1, name="y")
    g.output("y")


@case("qdq_conv")
def _qdq_conv(g: Graph) -> None:
    scale, zero = g.const(np.float32(0.02)), g.const(np.uint8(128))
    x = g.op("DequantizeLinear", g.op("QuantizeLinear", g.input("x", [1, 3, 8, 8]), scale, zero), scale, zero)
    w = g.op("DequantizeLinear", g.const(g.rng.integers(-127, 128, (4, 3, 3, 3)).astype("int8")), g.const(np.float32([0.002, 0.003, 0.001, 0.002])), g.const(np.zeros(4, "int8")), axis=0)
    b = g.op("DequantizeLinear", g.const(g.rng.integers(-500, 500, 4).astype("int32")), g.const(np.float32([4e-5, 6e-5, 2e-5, 4e-5])), g.const(np.zeros(4, "int32")), axis=0)
    y = g.op("Relu", g.op("Conv", x, w, b, pads=[1] * 4))
    scale, zero = g.const(np.float32(0.02)), g.const(np.uint8(0))
    g.op("DequantizeLinear", g.op("QuantizeLinear", y, scale, zero), scale, zero, name="y")
    g.output("y")


@case("qlinear_conv")
def _qlinear_conv(g: Graph) -> None:
    x = g.op("QuantizeLinear", g.input("x", [1, 3, 8, 8]), g.const(np.float32(0.02)), g.const(np.uint8(128)))
    y = g.op(
        "QLinearConv", x, g.const(np.float32(0.02)), g.const(np.uint8(128)),
        g.const(g.rng.integers(-127, 128, (4, 3, 3, 3)).astype("int8")), g.const(np.float32([0.002, 0.003, 0.001, 0.002])), g.const(np.zeros(4, "int8")),
        g.const(np.float32(0.03)), g.const(np.uint8(100)), g.const(g.rng.integers(-500, 500, 4).astype("int32")), pads=[1] * 4,
    )  # fmt: skip
    g.op("DequantizeLinear", y, g.const(np.float32(0.03)), g.const(np.uint8(100)), name="y")
    g.output("y")


@case("qlinear_matmul")
def _qlinear_matmul(g: Graph) -> None:
    a, b = g.input("a", [3, 16], "uint8"), g.const(g.rng.integers(-127, 128, (16, 5)).astype("int8"))
    scale = [g.const(np.float32(0.02)), g.const(np.uint8(128)), b, g.const(np.float32(0.01)), g.const(np.int8(0))]
    g.op("QLinearMatMul", a, *scale, g.const(np.float32(0.1)), g.const(np.uint8(128)), name="y")
    g.output("y", "uint8")


@case("dynamic_quantize")
def _dynamic_quantize(g: Graph) -> None:
    g.nodes.append(onnx.helper.make_node("DynamicQuantizeLinear", [g.input("x", [3, 8])], ["y", "scale", "zero"]))
    g.output("y", "uint8")
    g.output("scale")
    g.output("zero", "uint8")
