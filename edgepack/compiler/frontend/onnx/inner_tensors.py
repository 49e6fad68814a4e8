"""Which tensors of a model can be looked at between the kernels that compute it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from edgepack.plan.layers import InnerTensor

__all__ = ["inner_tensors"]


def inner_tensors(model: Path, known: Iterable[str]) -> list[InnerTensor]:
    """What each node of a normalised model computes, in the graph's order, of the tensors that the model as
    the user has it computes too.

    Args:
        model: the normalised model's file.
        known: names of what the user's model computes.
    """
    import onnx

    names = set(known)
    graph = onnx.load(str(model), load_external_data=False).graph
    return [
        InnerTensor(node.name, node.op_type, name, tuple(node.input))
        for node in graph.node
        for name in node.output[:1]
        if node.name and name in names and node.op_type != "DequantizeLinear"
    ]
