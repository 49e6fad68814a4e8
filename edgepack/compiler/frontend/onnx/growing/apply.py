"""A model whose loops carry what grows with each trip, as one of static sizes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.growing.branches import if_
from edgepack.compiler.frontend.onnx.growing.extents import Extent
from edgepack.compiler.frontend.onnx.growing.follow import follow
from edgepack.compiler.frontend.onnx.growing.loops import loop
from edgepack.compiler.frontend.onnx.growing.scope import Scope, Shared
from edgepack.compiler.frontend.onnx.growing.values import Value
from edgepack.compiler.frontend.onnx.shapes import infer_shapes, static_shape
from edgepack.compiler.frontend.onnx.support import RefusedNodesError
from edgepack.errors import ConfigError

if TYPE_CHECKING:
    import onnx

__all__ = ["Growth", "bound_growth"]


@dataclass(frozen=True)
class Growth:
    """What became of a model.

    Attributes:
        changed: whether a loop was written anew.
        trips: by name of a result of such a loop, the trips for which it has room.
        totals: the same, of the model as it was, where one loop may have become several.
        used: results of loops whose room the user gave, which grow.
        counts: outputs that say how many elements another one has, by name: the output and the axis.
    """

    changed: bool
    trips: Mapping[str, int]
    totals: Mapping[str, int]
    used: frozenset[str]
    counts: Mapping[str, tuple[str, int]] = field(default_factory=dict)


def bound_growth(
    model: onnx.ModelProto,
    trips: int,
    rooms: Mapping[str, int] = MappingProxyType({}),
    *,
    count: bool = False,
) -> Growth:
    """Gives what the model's loops carry, and what grows with each trip, room for its largest size, in place.

    Args:
        model: without functions, its constants folded, input shapes static.
        trips: that a loop may make, where nothing else is known.
        rooms: by name of a result of a loop, the size that the user gave it.
        count: whether outputs may have a size that is known at run time only: behind their elements they are
            0, and how many these are becomes an output each.

    Raises:
        RefusedNodesError: it is not known how to compute a node with room in place of a size, or how much
            room there must be.
        ConfigError: an output has the name of a count.
    """
    nothing = Growth(False, {}, {}, frozenset())
    if not any(node.op_type == "Loop" and node.domain in ("", "ai.onnx") for node in model.graph.node):
        return nothing
    shared = Shared(
        list(model.opset_import), max(8, model.ir_version), trips, rooms, {"If": if_, "Loop": loop}
    )
    graph = infer_shapes(model).graph
    values = (*graph.value_info, *graph.output, *graph.input)
    declared = {
        value.name: Value(value.name, int(value.type.tensor_type.elem_type), static_shape(value))
        for value in values
    }
    scope = Scope(shared, None, model.graph.initializer, declared)
    for value in model.graph.input:
        scope.know(value.name, declared[value.name])
    follow(scope, model.graph.node)
    if not shared.changed:
        return nothing
    counts = _outputs(model, scope, count)
    copies = [type(node).FromString(node.SerializeToString()) for node in scope.nodes]
    del model.graph.node[:], model.graph.value_info[:]
    model.graph.node.extend(copies)
    model.graph.initializer.extend(scope.initializers)
    return Growth(True, shared.bounds, shared.totals, frozenset(shared.used), counts)


def _outputs(model: onnx.ModelProto, scope: Scope, count: bool) -> dict[str, tuple[str, int]]:
    """Has the model's outputs static sizes; the counts that are outputs then."""
    import onnx

    own = {value.name for value in model.graph.output}
    counts: dict[str, tuple[str, int]] = {}
    for output in list(model.graph.output):
        name = output.name
        value = scope.value(name)
        padded = value.padded
        if padded and not count:
            _refuse(model, name, value, scope)
        value = scope.zeroed(value)
        if value.name != name:
            scope.nodes.append(onnx.helper.make_node("Identity", [value.name], [name], name=f"{name}/whole"))
        if padded:
            output.CopyFrom(onnx.helper.make_tensor_value_info(name, value.element, scope.shape(value)))
        found: dict[object, str] = {}
        for axis in padded:
            dim = (value.dims or ())[axis]
            if dim in found:
                continue
            title = f"{name}_count" + (f"_{axis}" if found else "")
            if title in own:
                raise ConfigError(
                    f"The model has an output {title!r} of its own.",
                    hint="Rename it, or leave it out with --outputs.",
                )
            number = scope.amount([dim], onnx.TensorProto.INT64, [])
            scope.nodes.append(onnx.helper.make_node("Identity", [number.name], [title], name=title))
            model.graph.output.append(onnx.helper.make_tensor_value_info(title, onnx.TensorProto.INT64, []))
            counts[title], found[dim] = (name, axis), title
    return counts


def _refuse(model: onnx.ModelProto, name: str, value: Value, scope: Scope) -> None:
    dim = next(dim for dim in value.dims or () if isinstance(dim, Extent))
    loops = [node for node in scope.nodes if node.op_type == "Loop"]
    made = next((node for node in loops if dim.terms[0][0].name in node.output), loops[-1])
    results = [result for result in made.output if result in scope.shared.bounds]
    result = next((one for one in results if scope.value(one).padded), name)
    room = scope.shape(scope.value(result))[(scope.value(result).padded or [0])[0]]
    option = shlex.quote(f"{result}={room}")
    raise RefusedNodesError(
        f"The Loop node {made.name} cannot be compiled: how many trips it makes, and so the size of "
        f"{name!r}, is known at run time only.",
        hint=f"Give it room for its largest size: --max {option}.",
        tensors=[result],
    )
