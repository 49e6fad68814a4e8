"""What is said of a node of ai.onnx.ml whose attributes do not fit each other."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import TYPE_CHECKING, NoReturn

from edgepack.compiler.frontend.onnx.support import RefusedNodesError, node_name

if TYPE_CHECKING:
    import onnx

__all__ = ["check_lengths", "refuse"]

EXPORT = "Export the model again, with a newer version of its exporter."


def refuse(node: onnx.NodeProto, why: str, hint: str = EXPORT) -> NoReturn:
    """Raises RefusedNodesError.

    Args:
        why: the rest of a sentence that begins with "it".
    """
    raise RefusedNodesError(
        f"The {node.op_type} node {node_name(node, 0)} cannot be compiled: it {why}.",
        hint=hint,
        tensors=[name for name in node.output if name],
    )


def check_lengths(node: onnx.NodeProto, lists: Mapping[str, Sized]) -> None:
    """Refuses a node with lists, by name, that should be of one length and are not."""
    lengths = {name: len(values) for name, values in lists.items()}
    first, *others = lengths
    for name in others:
        if lengths[name] != lengths[first]:
            refuse(node, f"has {lengths[first]} {first}, and {lengths[name]} {name}")
