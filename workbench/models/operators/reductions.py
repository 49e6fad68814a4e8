"""Normalisations, softmax and reductions."""

from __future__ import annotations

import numpy as np

from workbench.models.operators.case import positive, simple

simple(
    "batchnorm",
    "BatchNormalization",
    [2, 3, 4, 4],
    np.float32([1, 0.5, 2]),
    np.float32([0.1, 0, -0.1]),
    np.float32([0.2, -0.2, 0]),
    np.float32([1, 2, 0.5]),
)
simple(
    "batchnorm_2d",
    "BatchNormalization",
    [4, 3],
    np.float32([1, 0.5, 2]),
    np.float32([0.1, 0, -0.1]),
    np.float32([0.2, -0.2, 0]),
    np.float32([1, 2, 0.5]),
)
simple(
    "instancenorm",
    "InstanceNormalization",
    [2, 3, 5, 4],
    np.float32([1, 0.5, 2]),
    np.float32([0.1, 0, -0.1]),
    epsilon=1e-4,
)
simple(
    "instancenorm_1d", "InstanceNormalization", [2, 3, 9], np.float32([1, 0.5, 2]), np.float32([0.1, 0, -0.1])
)
simple(
    "groupnorm_18",
    "GroupNormalization",
    [2, 6, 4, 4],
    np.float32([1, 2, 0.5]),
    np.float32([0.1, 0, -0.1]),
    num_groups=3,
    shape_out=[2, 6, 4, 4],
    opset=18,
)
simple(
    "groupnorm_21",
    "GroupNormalization",
    [2, 4, 4, 4],
    np.float32([1, 2, 0.5, 1]),
    np.float32([0.1, 0, -0.1, 0]),
    num_groups=2,
    shape_out=[2, 4, 4, 4],
    opset=21,
)
simple(
    "layernorm",
    "LayerNormalization",
    [2, 3, 8],
    np.linspace(0.5, 1.5, 8, dtype="float32"),
    np.linspace(-1, 1, 8, dtype="float32"),
    axis=-1,
)
simple("layernorm_no_bias", "LayerNormalization", [2, 3, 8], np.linspace(0.5, 1.5, 8, dtype="float32"))
simple(
    "layernorm_two_axes",
    "LayerNormalization",
    [2, 3, 8],
    np.linspace(0.5, 1.5, 24, dtype="float32").reshape(3, 8),
    np.zeros((3, 8), "float32"),
    axis=1,
)
simple("rmsnorm", "RMSNormalization", [2, 3, 8], np.linspace(0.5, 1.5, 8, dtype="float32"), opset=23)
simple("mvn", "MeanVarianceNormalization", [2, 3, 4, 4], shape_out=[2, 3, 4, 4])
simple("lpnorm", "LpNormalization", [2, 3, 5], p=2, axis=1)
simple("lpnorm_1", "LpNormalization", [2, 3, 5], p=1)
for _axis in (0, 1, -1):
    simple(f"softmax_axis_{_axis}", "Softmax", [3, 4, 5], axis=_axis)
    simple(f"softmax_opset11_axis_{_axis}", "Softmax", [3, 4, 5], opset=11, axis=_axis)
simple("softmax_opset11_default", "Softmax", [2, 3, 4], opset=11)
simple("logsoftmax", "LogSoftmax", [3, 4, 5], axis=1)
simple("logsoftmax_opset11", "LogSoftmax", [3, 4, 5], opset=11)
simple("hardmax", "Hardmax", [3, 4, 5], axis=1)
for _op in (
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSumExp",
    "ReduceSumSquare",
):
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
simple("cumsum_int_exclusive", "CumSum", [3, 17], np.int32(1), exclusive=1, dtype="int64")
