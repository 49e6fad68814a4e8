"""Rounds weights to float16 numbers, so that they can be stored as such; the graph stays float32.

These are the large constants of a network: operands of convolutions and products, and tables that are looked
up. Kernels convert them as they load them (docs/internals/kernels.md), which is exact; so the reference
that a bundle is compared with is computed with the rounded weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.shapes import inner_graphs

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["round_weights"]

#: Elements of the smallest weight that is rounded; the planner stores no smaller one as float16 either
#: (planner/float16_weights.py).
LEAST_ELEMENTS = 512

#: Operators, and which of their inputs are weights where these are constant.
OPERANDS: dict[str, tuple[int, ...]] = {
    "Conv": (1,),
    "ConvTranspose": (1,),
    "Gather": (0,),
    "Gemm": (0, 1),
    "MatMul": (0, 1),
}

#: What does not change the numbers of a weight between its initializer and the operator.
VIEWS = {"Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}

#: Largest error of a rounded weight, by Euclidean norm: normal numbers are off by at most 2**-11 each; more
#: means that most are so small that float16 has few bits for them, or none.
MOST_LOST = 2.0**-10


def round_weights(model: onnx.ModelProto) -> tuple[str, ...]:
    """Rounds the weights of a normalised model to the nearest float16 numbers, in place, still as float32.

    Returns:
        Warnings: weights that float16 cannot hold, and that stay as they are.
    """
    kept = [text for graph in _graphs(model.graph) for text in _round(graph)]
    if not kept:
        return ()
    more = f", and {len(kept) - 1} more" if len(kept) > 1 else ""
    return (f"The weight {kept[0]}, so it stays float32{more}: float16 holds 6e-8 to 65504.",)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph, and those inside it."""
    yield graph
    for node in graph.node:
        for inner in inner_graphs(node):
            yield from _graphs(inner)


def _round(graph: onnx.GraphProto) -> Iterator[str]:
    """Rounds the weights of one graph; what is said of those that stay as they are."""
    import onnx
    from onnx import numpy_helper

    users = dict(_users(graph))
    for tensor in graph.initializer:
        if tensor.name not in users or tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        if len(tensor.dims) < 2 or prod(tensor.dims) < LEAST_ELEMENTS:
            continue
        array = numpy_helper.to_array(tensor)
        rounded, why = _rounded(array)
        if rounded is None:
            yield f"{tensor.name!r} of {users[tensor.name]} {why}"
        elif rounded is not array:
            tensor.CopyFrom(numpy_helper.from_array(rounded, tensor.name))


def _users(graph: onnx.GraphProto) -> Iterator[tuple[str, str]]:
    """Names of the values that are weights, each with what a message calls its operator."""
    # A depthwise convolution's weights are few; its kernels take float32.
    depthwise = {tensor.name: len(tensor.dims) > 2 and tensor.dims[1] == 1 for tensor in graph.initializer}
    sources = {node.output[0]: node.input[0] for node in graph.node if node.op_type in VIEWS and node.input}
    for node in graph.node:
        for index in OPERANDS.get(node.op_type, ()) if not node.domain else ():
            if index < len(node.input):
                name = node.input[index]
                while name in sources:
                    name = sources[name]
                if node.op_type == "Conv" and depthwise.get(name):
                    continue
                yield name, f"{node.op_type} {node.name!r}" if node.name else f"a {node.op_type}"


def _rounded(array: NDArray[Any]) -> tuple[NDArray[Any] | None, str]:
    """The rounded array, the same one if nothing changes; or None, and why it cannot be."""
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        rounded = array.astype(np.float16).astype(np.float32)
    if not np.isfinite(array).all():
        return None, "is not finite everywhere"
    if not np.isfinite(rounded).all():
        return None, f"reaches {float(np.abs(array).max()):.3g}"
    if np.array_equal(rounded, array):
        return array, ""
    if np.linalg.norm(rounded - array) > MOST_LOST * np.linalg.norm(array):
        return None, f"is at most {float(np.abs(array).max()):.3g}"
    return rounded, ""
