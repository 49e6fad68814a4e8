"""What values are passed on from: an Identity computes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["origin"]


def origin(graph: onnx.GraphProto, name: str) -> str:
    """The value that Identities of a graph pass on as one of this name; itself where none does."""
    sources = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Identity"}
    while name in sources:
        name = sources.pop(name)
    return name
