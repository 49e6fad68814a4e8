"""Nodes whose results have as many entries as the data say, and the static maximum that the user gives them.

``--max TENSOR=N`` gives the result room for N entries. How many there really are is an output of the bundle,
``TENSOR_count``; entries behind them are 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import attributes

if TYPE_CHECKING:
    import onnx

__all__ = [
    "COUNT",
    "DATA_DEPENDENT",
    "SELECTION",
    "SOME",
    "Entries",
    "declared_results",
    "dynamic_results",
    "is_data_dependent",
    "most_entries",
    "selection_node",
    "suggested_maximum",
]

#: What the name of a count ends with.
COUNT = "_count"

#: What the node is called in the normalised model; its attributes say what it does.
SELECTION = "EdgepackSelection"

#: Operators, and what their inputs and outputs are called.
DATA_DEPENDENT = {
    "Compress": (("input", "condition"), ("output",)),
    "NonMaxSuppression": (
        ("boxes", "scores", "max_output_boxes_per_class", "iou_threshold", "score_threshold"),
        ("selected_indices",),
    ),
    "NonZero": (("x",), ("y",)),
    "Unique": (("x",), ("y", "indices", "inverse_indices", "counts")),
}

#: Entries that are suggested where there may be more: detections of an image are some hundred at most.
FEW, SOME = 300, 1000


@dataclass(frozen=True)
class Entries:
    """How many entries a dimension has, which is known at run time only.

    Attributes:
        most: the size of the dimension.
        count: the tensor, int64 of rank 0, that says how many entries there are; more than ``most`` if some
            were left out.
        name: the tensor that the user gave a maximum, for messages.
    """

    most: int
    count: str
    name: str


def is_data_dependent(node: onnx.NodeProto) -> bool:
    """Whether the node's results have as many entries as the data say."""
    return node.domain in ("", "ai.onnx") and node.op_type in DATA_DEPENDENT


def dynamic_results(node: onnx.NodeProto, shape: Sequence[int]) -> dict[str, int]:
    """For each result whose size depends on the data, the axis along which it does.

    Args:
        shape: of the node's first input.
    """
    names = dict(zip(DATA_DEPENDENT[node.op_type][1], node.output, strict=False))
    axis = attributes(node).get("axis")
    along = 0 if axis is None else axis % max(1, len(shape))
    axes = {"y": along, "output": along, "selected_indices": 0, "indices": 0, "counts": 0}
    if node.op_type == "NonZero":
        axes["y"] = 1
    return {name: axes[role] for role, name in names.items() if name and role in axes}


def most_entries(node: onnx.NodeProto, shapes: Sequence[Sequence[int]], limit: int | None) -> int:
    """How many entries there can be at most.

    Args:
        shapes: of the node's inputs.
        limit: of a NonMaxSuppression, the boxes of a class; None if that is known at run time only.
    """
    shape, axis = shapes[0], attributes(node).get("axis")
    if node.op_type == "NonMaxSuppression":
        images, classes, boxes = shapes[1]
        return images * classes * (boxes if limit is None else min(boxes, max(0, limit)))
    entries = prod(shape) if axis is None else shape[axis]
    return min(entries, prod(shapes[1])) if node.op_type == "Compress" else entries


def suggested_maximum(node: onnx.NodeProto, most: int) -> int:
    """A maximum for a model of which no more is known."""
    return max(1, min(most, FEW if node.op_type == "NonMaxSuppression" else SOME))


def declared_results(
    node: onnx.NodeProto, entries: Entries, shapes: Sequence[Sequence[int]], element: int
) -> list[onnx.ValueInfoProto]:
    """The node's results as they are with a maximum, and the count.

    Args:
        shapes: of the node's inputs.
        element: ONNX's number of its first input's type.
    """
    import onnx

    shape, axis = list(shapes[0]), attributes(node).get("axis")
    slices = [entries.most] if axis is None else list(shape)
    if axis is not None:
        slices[axis] = entries.most
    forms: dict[str, list[int]] = {
        "y": [max(1, len(shape)), entries.most] if node.op_type == "NonZero" else slices,
        "output": slices,
        "selected_indices": [entries.most, 3],
        "indices": [entries.most],
        "counts": [entries.most],
        "inverse_indices": [prod(shape) if axis is None else shape[axis]],
    }
    own = {"Unique": "y", "Compress": "output"}.get(node.op_type)
    make, int64 = onnx.helper.make_tensor_value_info, onnx.TensorProto.INT64
    named = zip(DATA_DEPENDENT[node.op_type][1], node.output, strict=False)
    found = [make(name, element if role == own else int64, forms[role]) for role, name in named if name]
    return [*found, make(entries.count, int64, [])]


def selection_node(
    node: onnx.NodeProto, entries: Entries, shapes: Sequence[Sequence[int]], limit: int | None
) -> onnx.NodeProto:
    """The node as the importer takes it, with the count as its last result."""
    import onnx

    inputs, outputs = DATA_DEPENDENT[node.op_type]
    present = [(role, name) for role, name in zip(inputs, node.input, strict=False) if name]
    results = [(role, name) for role, name in zip(outputs, node.output, strict=False) if name]
    axis = attributes(node).get("axis")
    numbers: dict[str, int] = {"most": entries.most}
    if node.op_type == "NonMaxSuppression":
        numbers["center_point_box"] = int(attributes(node).get("center_point_box", 0))
        boxes = shapes[1][2]
        numbers["limit"] = boxes if limit is None else max(1, min(boxes, limit))
    elif node.op_type == "Unique":
        numbers["sorted"] = int(attributes(node).get("sorted", 1))
    if node.op_type in ("Unique", "Compress"):
        numbers["axis"] = 0 if axis is None else int(axis) % len(shapes[0])
        numbers["flat"] = int(axis is None)
    call = onnx.helper.make_node(
        SELECTION,
        [name for _, name in present],
        [*(name for _, name in results), entries.count],
        name=node.name or f"{node.op_type} of {node.output[0]}",
        domain="edgepack",
    )
    said: Mapping[str, Any] = {
        "operator": node.op_type,
        "operands": [role for role, _ in present],
        "results": [*(role for role, _ in results), "count"],
        "numbers": numbers,
    }
    call.attribute.append(onnx.helper.make_attribute("selection", json.dumps(said)))
    return call
