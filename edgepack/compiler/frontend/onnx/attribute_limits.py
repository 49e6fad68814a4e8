"""Numbers of nodes that no operator can have, refused before any library computes with them.

Shape inference of ONNX and of ONNX Runtime index with some of them unseen (a ``batch_dims`` of -7 ends the
process), and sums of others overflow. What of the rest fits a tensor is known when its shape is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn

from edgepack.errors import ModelError

if TYPE_CHECKING:
    import onnx

__all__ = ["check_attributes"]

#: Domains whose attributes of these names mean the same.
DOMAINS = frozenset({"", "ai.onnx", "com.microsoft"})

#: The largest extent of a tensor, and dimensions that one has at most.
MOST, RANK = 2**31 - 1, 16

_AXIS = (-RANK - 1, RANK)
_SIZE, _COUNT, _NUMBER = (0, MOST), (1, MOST), (-MOST, MOST)

#: The least and the greatest value of attributes of numbers, of each in a list.
LIMITS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("axes", "batch_axis", "time_axis", "concat_axis"), _AXIS),
    **dict.fromkeys(("batch_dims", "perm"), (0, RANK)),
    **dict.fromkeys(("blocksize", "dilations", "group", "hidden_size", "kernel_shape", "num_groups"), _COUNT),
    **dict.fromkeys(("num_heads", "num_outputs", "offset_group", "pooled_shape", "strides"), _COUNT),
    **dict.fromkeys(("kv_num_heads", "output_height", "output_width", "q_num_heads", "repeats"), _COUNT),
    **dict.fromkeys(("output_padding", "output_shape", "sampling_ratio", "split", "spatial_shape"), _SIZE),
    **dict.fromkeys(("ends", "starts"), (-(2**63), 2**63 - 1)),
    **dict.fromkeys(("border", "k", "pads", "paddings"), _NUMBER),
}

#: Where an operator's is another one.
OF_OPERATOR: Mapping[tuple[str, str], tuple[float, float]] = {
    ("LRN", "size"): _COUNT,
    ("LpPool", "p"): _COUNT,
    ("MaxRoiPool", "spatial_scale"): (5e-324, MOST),
    ("Upsample", "scales"): (5e-324, MOST),
}

#: Operators whose windows must not lie in the padding alone.
POOLINGS = frozenset({"AveragePool", "LpPool", "MaxPool"})


def check_attributes(model: onnx.ModelProto) -> None:
    """Raises ModelError for a node, in any graph or function, with a number that its operator cannot have."""
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        for node in _all(nodes):
            if node.domain in DOMAINS:
                _check(node)


def _all(nodes: object) -> Iterator[onnx.NodeProto]:
    for node in nodes:  # type: ignore[attr-defined]
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _all(graph.node)


def _check(node: onnx.NodeProto) -> None:
    found = {attribute.name: _numbers(attribute) for attribute in node.attribute}
    what = f"The {node.op_type} node {node.name or next((n for n in node.output if n), 'without name')}"
    for name, numbers in found.items():
        limits = OF_OPERATOR.get((node.op_type, name)) or LIMITS.get(name)
        if limits is None:
            continue
        wrong = [n for n in numbers if not limits[0] <= n <= limits[1]]
        if wrong:
            low, high = 0 if 0 < limits[0] < 1 else limits[0], limits[1]
            _refuse(f"{what} has {name} {wrong[0]}, which must be from {low} to {high}.")
        if name == "perm" and sorted(numbers) != list(range(len(numbers))):
            _refuse(f"{what} has perm {numbers}, which does not have each dimension once.")
    pads, kernel = found.get("pads", []), found.get("kernel_shape", [])
    if node.op_type in POOLINGS and kernel and any(n >= kernel[i % len(kernel)] for i, n in enumerate(pads)):
        _refuse(f"{what} has pads {pads} for windows of {kernel}, of which some would have padding alone.")


def _numbers(attribute: onnx.AttributeProto) -> list[int | float]:
    one = [attribute.i] if attribute.HasField("i") else [attribute.f] if attribute.HasField("f") else []
    return [*attribute.ints, *attribute.floats, *one]


def _refuse(message: str) -> NoReturn:
    raise ModelError(message, hint="Export or download the model again.")
