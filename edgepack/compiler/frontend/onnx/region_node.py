"""The node that an If or a loop becomes in a normalised model, and the results of the graphs in it: those
without elements are none, and single elements have one rank."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.fixed_point import DOMAIN
from edgepack.compiler.frontend.onnx.shapes import static_shape
from edgepack.compiler.frontend.onnx.support import REGION, node_name

if TYPE_CHECKING:
    import onnx

__all__ = [
    "Region",
    "are_unlike_numbers",
    "constants_without_elements",
    "described",
    "give_nothing",
    "is_empty",
    "reshape_result",
    "with_elements",
]


@dataclass(frozen=True)
class Region:
    """An If or a loop of a model.

    Attributes:
        node: as the model has it.
        inputs: what the node of the normalised model reads.
        about: its attributes, but for the graphs.
        graphs: normalised.
        outputs: types and shapes of its results. Those without elements are none of the graphs'.
    """

    node: onnx.NodeProto
    inputs: tuple[str, ...]
    about: Mapping[str, int | str]
    graphs: tuple[onnx.GraphProto, ...]
    outputs: tuple[onnx.ValueInfoProto, ...] = field(default=())

    def call(self, declared: Mapping[str, onnx.ValueInfoProto]) -> onnx.NodeProto:
        """The node of the normalised model."""
        import onnx

        del declared
        made_of = [(n, v) for n, v in zip(self.node.output, self.outputs, strict=True) if not is_empty(v)]
        names = [name for name, _ in made_of]
        made = onnx.helper.make_node(REGION, list(self.inputs), names, domain=DOMAIN)
        made.name = node_name(self.node, 0)
        for index, name in enumerate(made.output):
            made.output[index] = name or f"{made.name}/unused{index}"
        results = [described(value) for _, value in made_of]
        about = {**self.about, "results": json.dumps(results)}
        made.attribute.extend(onnx.helper.make_attribute(key, value) for key, value in about.items())
        made.attribute.append(onnx.helper.make_attribute("inside", list(self.graphs)))
        return made


def with_elements(region: Region) -> Region:
    """The region, whose graphs neither give nor carry from trip to trip what has no elements."""
    empty = [place for place, value in enumerate(region.outputs) if is_empty(value)]
    if not empty:
        return region
    about, inputs = dict(region.about), list(region.inputs)
    carried = [place for place in empty if place < int(about.get("carried", 0))]
    first = int(about.get("trips", 0)) + int(about.get("condition", 0))
    for graph in region.graphs:
        for place in reversed(empty):
            del graph.output[int(about.get("goes_on", 0)) + place]
        for place in reversed(carried):
            del graph.input[1 + place]  # behind the number of the trip
    for place in reversed(carried):
        del inputs[first + place]
    if carried:
        about["carried"] = int(about["carried"]) - len(carried)
    return replace(region, inputs=tuple(inputs), about=about)


def give_nothing(model: onnx.ModelProto, node: onnx.NodeProto, values: Sequence[onnx.ValueInfoProto]) -> None:
    """Has constants in the place of a node's results without elements, in place; no node where it has no
    others."""
    import onnx

    for value in values:
        name, shape = f"{value.name}/nothing", static_shape(value)
        model.graph.initializer.append(
            onnx.helper.make_tensor(name, value.type.tensor_type.elem_type, shape, [])
        )
        place = next(i for i, one in enumerate(model.graph.node) if value.name in one.output)
        model.graph.node.insert(place, onnx.helper.make_node("Identity", [name], [value.name], name=name))
    names = {value.name for value in values}
    node.output[:] = ["" if name in names else name for name in node.output]
    if not any(node.output):
        model.graph.node.remove(node)


def constants_without_elements(values: Mapping[str, onnx.ValueInfoProto]) -> dict[str, onnx.TensorProto]:
    """Constants for those of the values that have no elements."""
    import onnx

    return {
        name: onnx.helper.make_tensor(name, value.type.tensor_type.elem_type, shape, [])
        for name, value in values.items()
        if 0 in (shape := static_shape(value) or ())
    }


def are_unlike_numbers(one: onnx.ValueInfoProto, other: onnx.ValueInfoProto) -> bool:
    """Whether two values are single elements of one type, of unlike ranks."""
    (shape, dtype), (another, kind) = described(one), described(other)
    return shape != another and prod(shape) == prod(another) == 1 and dtype == kind


def reshape_result(graph: onnx.GraphProto, place: int, shape: Sequence[int]) -> None:
    """Gives an output of a graph, by its number, a shape of as many elements, in place."""
    import onnx

    value = graph.output[place]
    if static_shape(value) == tuple(shape):
        return
    inner, name, element = value.name, f"{value.name}/as {len(shape)}", value.type.tensor_type.elem_type
    sizes = onnx.helper.make_tensor(f"{name}/shape", onnx.TensorProto.INT64, [len(shape)], list(shape))
    graph.initializer.append(sizes)
    graph.node.append(onnx.helper.make_node("Reshape", [inner, sizes.name], [name], name=name))
    value.CopyFrom(onnx.helper.make_tensor_value_info(name, element, shape))


def described(value: onnx.ValueInfoProto) -> tuple[list[int], str]:
    """Shape and dtype of a value."""
    from edgepack.compiler.frontend.onnx.binding import input_dtype

    return list(static_shape(value) or ()), input_dtype(value)


def is_empty(value: onnx.ValueInfoProto) -> bool:
    return 0 in (static_shape(value) or ())
