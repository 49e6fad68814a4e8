"""Leaves out of a model what no output depends on.

ONNX Runtime does that too, in a time that is the square of how much there is: it took a minute for 100,000
constants, and as long for 30,000 nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

__all__ = ["drop_unread_constants", "drop_unread_nodes"]


def drop_unread_constants(model: onnx.ModelProto) -> None:
    """Removes initializers of the graph that no node reads and that are neither inputs nor outputs."""
    graph = model.graph
    read = {value.name for value in (*graph.input, *graph.output)}
    for one in graph.quantization_annotation:
        read |= {entry.value for entry in one.quant_parameter_tensor_names}
    for node in graph.node:
        read |= _reads(node)
    names = [tensor.name for tensor in graph.initializer]
    _keep(graph.initializer, lambda index: names[index] in read)


def drop_unread_nodes(model: onnx.ModelProto) -> None:
    """Removes nodes of the graph that no output depends on, then what only they read. Inputs stay."""
    graph = model.graph
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    read: set[int] = set()
    waiting = [value.name for value in graph.output]
    while waiting:
        index = makers.get(waiting.pop())
        if index is not None and index not in read:
            read.add(index)
            waiting += _reads(graph.node[index])
    if not read:
        return  # nothing is computed, or the outputs are no tensors: whoever looks next says so
    _keep(graph.node, lambda index: index in read)
    drop_unread_constants(model)


def _reads(node: onnx.NodeProto) -> set[str]:
    """Names that a node reads, and all that are read in the graphs that it holds."""
    names = set(node.input)
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            names.update(value.name for value in inner.output)
            for one in inner.node:
                names |= _reads(one)
    return names


def _keep(field: Any, wanted: Callable[[int], bool]) -> None:
    """Removes of a repeated field what is not wanted, by its index: from the end, and neighbours at once, for
    what stands behind is moved."""
    end = 0
    for index in range(len(field) - 1, -1, -1):
        if not wanted(index):
            end = end or index + 1
        elif end:
            del field[index + 1 : end]
            end = 0
    if end:
        del field[:end]
