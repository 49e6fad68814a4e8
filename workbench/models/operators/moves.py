"""Operators that move elements: reshape, slice, gather, pad and the like."""

from __future__ import annotations

import numpy as np
import onnx

from workbench.models.builder import Graph
from workbench.models.operators.case import case, simple

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
simple("unsqueeze_scalar", "Unsqueeze", [3, 5], np.int64(1))
simple("expand", "Expand", [3, 1], np.int64([2, 1, 4]))
simple("tile", "Tile", [2, 3], np.int64([2, 3]))
simple(
    "slice_steps",
    "Slice",
    [6, 7, 8],
    np.int64([1, -1]),
    np.int64([6, -8]),
    np.int64([0, 2]),
    np.int64([2, -3]),
)
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
simple(
    "scatter_nd_add",
    "ScatterND",
    [4, 3],
    np.int64([[0], [2]]),
    np.float32([[1, 2, 3], [4, 5, 6]]),
    opset=18,
    reduction="add",
)
simple("scatter_elements", "ScatterElements", [3, 4], np.int64([[0, 2]]), np.float32([[7, 8]]), axis=0)
simple(
    "scatter_elements_add",
    "ScatterElements",
    [3, 4],
    np.int64([[0, -1]]),
    np.float32([[7, 8]]),
    axis=1,
    opset=18,
    reduction="add",
)
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
    g.op(
        "Concat",
        g.input("a", [2, 3]),
        g.const(np.ones((2, 1), "float32")),
        g.input("b", [2, 2]),
        axis=-1,
        name="y",
    )
    g.output("y")


@case("split_sizes")
def _split_sizes(g: Graph) -> None:
    g.nodes.append(
        onnx.helper.make_node("Split", [g.input("x", [2, 7]), g.const([2, 4, 1])], ["a", "b", "c"], axis=1)
    )
    for name in "abc":
        g.output(name)


@case("split_equal")
def _split_equal(g: Graph) -> None:
    g.nodes.append(onnx.helper.make_node("Split", [g.input("x", [6, 3])], ["a", "b"]))
    g.output("a")
    g.output("b")


@case("split_num_outputs", opset=18)
def _split_num_outputs(g: Graph) -> None:
    g.nodes.append(
        onnx.helper.make_node("Split", [g.input("x", [2, 7])], ["a", "b", "c"], axis=1, num_outputs=3)
    )
    for name in "abc":
        g.output(name)


@case("gathers_of_nothing")
def _gathers_of_nothing(g: Graph) -> None:
    """Two gathers of a tensor without elements, and a sum and a concatenation with it."""
    x = g.input("x", [2, 5, 6])
    nothing = g.op("Slice", g.op("Relu", x), g.const([0]), g.const([0]), g.const([2]))
    one, other = (g.op("Gather", nothing, g.const(rows), axis=0) for rows in ([1, 0, 1], [0]))
    first = g.op("Slice", x, g.const([0]), g.const([1]), g.const([0]))
    g.output(g.op("ReduceSum", one, g.const([2]), keepdims=1))
    g.output(g.op("Concat", other, first, axis=2))


@case("gather_input_indices")
def _gather_input_indices(g: Graph) -> None:
    g.op("Gather", g.weight(11, 4), g.input("ids", [2, 3], "int32"), name="y")
    g.output("y")


@case("topk")
def _topk(g: Graph) -> None:
    g.nodes.append(
        onnx.helper.make_node("TopK", [g.input("x", [3, 20]), g.const([5])], ["values", "indices"], axis=1)
    )
    g.output("values")
    g.output("indices", "int64")


@case("topk_smallest")
def _topk_smallest(g: Graph) -> None:
    g.nodes.append(
        onnx.helper.make_node(
            "TopK", [g.input("x", [6, 4]), g.const([2])], ["values", "indices"], axis=0, largest=0
        )
    )
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


@case("topk_ties")
def _topk_ties(g: Graph) -> None:
    x = g.op("Round", g.input("x", [4, 30]))
    g.nodes.append(onnx.helper.make_node("TopK", [x, g.const([12])], ["values", "indices"]))
    g.output("values")
    g.output("indices", "int64")
