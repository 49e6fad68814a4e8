"""Puts the terms of a model's products into the opposite order, to see what that changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.external_data import copy_fields
from edgepack.compiler.frontend.onnx.shapes import all_nodes, infer_shapes

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

__all__ = ["reorder_sums"]


def reorder_sums(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every convolution and matrix product adding its terms up in the opposite order.

    Both operands are gathered in reverse along what is summed: the input channels of a group, or the inner
    axis. Results are the same but for rounding. Unlike the order that a runtime would choose for this
    machine's CPU, this one is the same everywhere. Depthwise convolutions, and operands whose shape cannot be
    inferred, stay as they are.
    """
    import onnx

    shapes = _shapes(infer_shapes(model).graph)
    writer = _Writer(model.graph)
    for node in model.graph.node:
        left = shapes.get(node.input[0], ()) if node.input else ()
        right = shapes.get(node.input[1], ()) if len(node.input) > 1 else ()
        axes = _summed(node, left, right) if left and right and node.domain in ("", "ai.onnx") else None
        writer.write(node, axes, left, right)
    # Not in place: a protocol buffer keeps the memory of what was replaced in it.
    result = onnx.ModelProto()
    copy_fields(model, result, "graph")
    copy_fields(model.graph, result.graph, "node", "initializer")
    result.graph.node.extend(writer.nodes)
    writer.write_constants(result.graph)
    return result


def _shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Static shapes of values; those of rank 0 and of unknown sizes are left out."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if all(dim.WhichOneof("value") == "dim_value" for dim in dims):
            shapes[value.name] = tuple(dim.dim_value for dim in dims)
    return shapes


def _summed(node: onnx.NodeProto, left: Sequence[int], right: Sequence[int]) -> tuple[int, int, int] | None:
    """The axes of both operands that are summed over, and in how many parts; None if there is none."""
    attributes = {item.name: item.i for item in node.attribute}
    groups = attributes.get("group", 1)
    if node.op_type == "Conv":
        return (1, 1, groups) if len(left) > 2 and right[1] > 1 else None
    if node.op_type == "ConvTranspose":
        return (1, 0, groups) if len(left) > 2 and right[0] > groups else None
    if node.op_type == "MatMul":
        return (len(left) - 1, max(len(right) - 2, 0), 1)
    if node.op_type == "Gemm":
        return (0 if attributes.get("transA") else 1, 1 if attributes.get("transB") else 0, 1)
    return None


class _Writer:
    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph = graph
        self.nodes: list[onnx.NodeProto] = []
        used = Counter(name for node in all_nodes(graph) for name in node.input)
        used.update(value.name for value in graph.output)
        #: Constants that one node reads and nothing else: reversed themselves, without a node to be folded.
        self._own = {tensor.name for tensor in graph.initializer if used[tensor.name] == 1}
        #: By the name of such a constant: an order, and the axis that it is for.
        self._orders: dict[str, list[tuple[NDArray[np.int64], int]]] = {}
        #: Indices, which are new constants.
        self._constants: list[onnx.TensorProto] = []
        #: Indices that reverse an axis, by its size and number of parts.
        self._indices: dict[tuple[int, int], str] = {}
        self._count = 0

    def write(
        self,
        node: onnx.NodeProto,
        axes: tuple[int, int, int] | None,
        left: Sequence[int],
        right: Sequence[int],
    ) -> None:
        """Appends a copy of the node, its operands reversed along ``axes`` if there are any."""
        import onnx

        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        if axes is not None:
            left_axis, right_axis, parts = axes
            copy.input[0] = self._reversed(node.input[0], left_axis, left[left_axis], parts)
            # Along that axis the weights of a convolution have the channels of one group, those of a
            # transposed one have all channels.
            of_right = parts if right[right_axis] == left[left_axis] else 1
            copy.input[1] = self._reversed(node.input[1], right_axis, right[right_axis], of_right)
        self.nodes.append(copy)

    def _reversed(self, name: str, axis: int, size: int, parts: int) -> str:
        import numpy as np
        import onnx
        from onnx import numpy_helper

        order = np.arange(size).reshape(parts, -1)[:, ::-1].reshape(-1)
        if name in self._own:
            self._orders.setdefault(name, []).append((order, axis))
            return name
        if (size, parts) not in self._indices:
            self._indices[size, parts] = self._fresh("order")
            tensor = numpy_helper.from_array(order.astype(np.int64), self._indices[size, parts])
            self._constants.append(tensor)
        result = self._fresh(name)
        inputs = [name, self._indices[size, parts]]
        self.nodes.append(onnx.helper.make_node("Gather", inputs, [result], axis=axis))
        return result

    def write_constants(self, graph: onnx.GraphProto) -> None:
        """Adds all constants, those that were reversed among them."""
        import numpy as np
        from onnx import numpy_helper

        for tensor in self.graph.initializer:
            if tensor.name not in self._orders:
                graph.initializer.add().CopyFrom(tensor)
                continue
            array = numpy_helper.to_array(tensor)
            for order, axis in self._orders[tensor.name]:
                array = np.take(array, order, axis=axis)
            content = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
            del array  # it may be as large as all of the model
            added = graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            added.raw_data = content
        graph.initializer.extend(self._constants)

    def _fresh(self, name: str) -> str:
        self._count += 1
        return f"{name}/reversed_{self._count}"
