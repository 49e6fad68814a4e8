"""Refuses models of results whose shapes are known at run time only."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.bounded_shapes.data_dependent import SOME
from edgepack.compiler.frontend.onnx.cut import static_shape
from edgepack.compiler.frontend.onnx.support import RefusedNodesError, node_name

if TYPE_CHECKING:
    import onnx

__all__ = ["check_static"]


def check_static(model: onnx.ModelProto) -> None:
    """Refuses nodes whose outputs' shapes are known at run time only: the first ones, not what reads them."""
    values = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    unknown: set[str] = set()
    found: dict[str, tuple[str, str]] = {}
    for index, node in enumerate(model.graph.node):
        for name in node.output:
            tensor = values[name].type.tensor_type if name in values else None
            if tensor is None or not tensor.HasField("shape") or static_shape(values[name]) is not None:
                continue
            unknown.add(name)
            if unknown.isdisjoint(node.input):
                found[name] = (node.op_type, node_name(node, index))
    for first, (operator, node) in found.items():
        raise RefusedNodesError(
            f"The shape of {first!r} depends on values that are known at run time only ({operator}, {node}).",
            hint=_maximum([name for name, (kind, _) in found.items() if kind == "Range"])
            or "Export the model with static shapes, or make what decides the shape a constant.",
            refused=[
                {"operator": operator, "nodes": [node], "reason": "the shape of its output depends on values"}
                for operator, node in dict.fromkeys(found.values())
            ],
            tensors=list(found),
        )


def _maximum(names: Sequence[str]) -> str:
    """What to try where the data decide how many numbers of a Range there are; "" for no such ones."""
    options = " ".join(f"--max {shlex.quote(f'{name}={SOME}')}" for name in names)
    return f"Give it a maximum of entries: {options}." if options else ""
