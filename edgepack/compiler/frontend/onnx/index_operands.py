"""Which inputs of operators index or count something, and which are masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

    from edgepack.compiler.frontend.onnx.small_constants import SmallConstants

__all__ = ["INDEXED", "MASKS", "index_bound", "may_be_negative"]

#: (operator, index of the input that holds indices) and the index of the input that they point into.
INDEXED = {
    ("Gather", 1): 0,
    ("GatherElements", 1): 0,
    ("ScatterElements", 1): 0,
    ("Scatter", 1): 0,
    ("EmbedLayerNormalization", 0): 2,
    ("EmbedLayerNormalization", 1): 4,
    ("EmbedLayerNormalization", 8): 3,
    ("NegativeLogLikelihoodLoss", 1): 0,
    ("QEmbedLayerNormalization", 0): 2,
    ("QEmbedLayerNormalization", 1): 4,
    ("RoiAlign", 2): 0,
    ("RotaryEmbedding", 1): 2,
    ("RotaryEmbedding", 3): 1,
    ("SoftmaxCrossEntropyLoss", 1): 0,
}

#: By operator, the axis that the indices are along, where that is not its attribute ``axis``, by default 0.
INDEXED_AXES = {"NegativeLogLikelihoodLoss": 1, "SoftmaxCrossEntropyLoss": 1}

#: (operator, index of the input that holds lengths of sequences): at least 1.
LENGTHS = {("ReverseSequence", 1), ("GRU", 4), ("LSTM", 4), ("RNN", 4)}

#: Operators whose indices count from the end where they are negative.
_FROM_THE_END = {"Gather", "GatherElements", "GatherND", "OneHot", "Scatter", "ScatterElements", "ScatterND"}

#: (operator, index of the input that is a mask of 0 and 1).
MASKS = {
    ("Attention", 3),
    ("EmbedLayerNormalization", 7),
    ("MultiHeadAttention", 4),
    ("QAttention", 5),
    ("QEmbedLayerNormalization", 7),
}

#: Most trips of a loop whose number is drawn, and elements of a Range; at least there is one.
MOST_TRIPS = 8


def may_be_negative(node: onnx.NodeProto) -> bool:
    """Whether a node's indices may count from the end."""
    return node.op_type in _FROM_THE_END


def index_bound(
    node: onnx.NodeProto, index: int, shapes: Mapping[str, Sequence[int]], constants: SmallConstants
) -> tuple[int, int] | None:
    """Least and greatest number of an input that indexes or counts something; None if it does not, or what it
    indexes has no known size.

    Args:
        index: of the input.
        shapes: of values, as far as they are known.
    """
    op = node.op_type
    given = {item.name: item.i for item in node.attribute}
    first = shapes.get(node.input[0], [])
    if (op, index) in (("Loop", 0), ("Range", 1)):
        return 1, MOST_TRIPS
    if (op, index) in LENGTHS:
        axis = given.get("time_axis", int(given.get("layout", 0) == 1))
        return (1, first[axis]) if len(first) > axis and first[axis] else None
    size = 0
    if (op, index) in INDEXED:
        shape = shapes.get(node.input[INDEXED[op, index]], [])
        axis = INDEXED_AXES.get(op, given.get("axis", 0))
        size = shape[axis] if -len(shape) <= axis < len(shape) else 0
    elif op in ("GatherND", "ScatterND") and index == 1:
        indices, skipped = shapes.get(node.input[1], []), given.get("batch_dims", 0)
        pointed = first[skipped : skipped + indices[-1]] if indices else []
        size = min(pointed, default=0)
    elif op == "OneHot" and index == 0:
        depth = constants.numbers(node.input[1])
        size = int(depth.max()) if depth is not None and depth.size else 0
    elif (op, index) == ("TopK", 1):
        axis = given.get("axis", -1)
        size = first[axis] if -len(first) <= axis < len(first) else 0
        return (1, size) if size else None
    return (0, size - 1) if size else None
