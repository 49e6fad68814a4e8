"""Ifs and loops that stay: which branch is taken, or how many trips there are, is known at run time only, or
the trips are too many to be written out.

Each becomes a node ``EdgepackRegion`` of the normalised model, whose graphs are normalised models of their
own: inputs of static shapes, constants inside. What a graph reads of the one around it is an input of the
node, and of each of its graphs; but for constants, which kernels want to pack: these are copied.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn

from edgepack.compiler.frontend.onnx.fixed_point import DOMAIN, is_fixed_point
from edgepack.compiler.frontend.onnx.region_node import (
    Region,
    are_unlike_numbers,
    constants_without_elements,
    described,
    give_nothing,
    is_empty,
    reshape_result,
    with_elements,
)
from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes, known_form
from edgepack.compiler.frontend.onnx.shapes import infer_shapes, inner_graphs, static_shape
from edgepack.compiler.frontend.onnx.support import (
    BRANCHES,
    RefusedNodesError,
    is_impossible,
    node_name,
)

if TYPE_CHECKING:
    import onnx

__all__ = ["Bounds", "names_read", "region_of", "regions", "separate_outputs"]

#: Normalises a model of static shapes.
Normalise = Callable[["onnx.ModelProto"], "onnx.ModelProto"]


@dataclass(frozen=True)
class Bounds:
    """What bounds loops whose trips are known at run time only.

    Attributes:
        trips: that a loop may make.
        rooms: by name of a result that a loop stacks, or that grew with each trip, the trips that it has room
            for.
    """

    trips: int
    rooms: Mapping[str, int] = field(default_factory=dict)


def regions(
    model: onnx.ModelProto, normalise: Normalise, fold: Normalise, bounds: Bounds
) -> tuple[onnx.ModelProto, list[Region]]:
    """The Ifs and loops of a model, in order, and the model, which declares the shapes of their results.

    Args:
        model: without functions, its constants folded. Changed.
        normalise: what is done with the graphs inside.
        fold: folds the model's constants, of which there are more when the shapes of a result are known.
        bounds: of what is known at run time only.

    Raises:
        RefusedNodesError: a value changes its shape from trip to trip, or with the branch that is taken.
    """
    made: dict[str, Region] = {}
    while (new := next((one for one in _control_flow(model) if _key(one[1]) not in made), None)) is not None:
        index, node = new
        one = region_of(model, node, index, normalise, bounds)
        give_nothing(model, node, [value for value in one.outputs if is_empty(value)])
        if _key(node):
            made[_key(node)] = one
        _declare(model, one.outputs)
        model = fold(model)
    nodes = {_key(node): node for _, node in _control_flow(model)}
    return model, [replace(made[key], node=node) for key, node in nodes.items()]


def region_of(
    model: onnx.ModelProto, node: onnx.NodeProto, index: int, normalise: Normalise, bounds: Bounds
) -> Region:
    """That of the model's node with an index; arguments and errors as for :func:`regions`."""
    maker = _Maker(model, node, index, normalise, bounds)
    with known_form(node, index):
        made = maker.made()
    return made


def _control_flow(model: onnx.ModelProto) -> Iterator[tuple[int, onnx.NodeProto]]:
    for index, node in enumerate(model.graph.node):
        if node.op_type in ("If", "Loop") and node.domain in ("", "ai.onnx"):
            yield index, node


def _key(node: onnx.NodeProto) -> str:
    """What tells a node from others, also when the model was folded."""
    return next((name for name in node.output if name), "")


def _declare(model: onnx.ModelProto, values: Sequence[onnx.ValueInfoProto]) -> None:
    declared = {value.name: value for value in values}
    kept = [value for value in model.graph.value_info if value.name not in declared]
    del model.graph.value_info[:]
    model.graph.value_info.extend([*kept, *values])
    for value in model.graph.output:
        value.CopyFrom(declared.get(value.name, value))


class _Maker:
    """Makes the region of a node."""

    def __init__(
        self,
        model: onnx.ModelProto,
        node: onnx.NodeProto,
        index: int,
        normalise: Normalise,
        bounds: Bounds,
    ) -> None:
        self.model, self.node, self.normalise, self.bounds = model, node, normalise, bounds
        self.title = f"The {node.op_type} node {node_name(node, index)} cannot be compiled"
        graph = infer_shapes(model).graph
        self.values = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self.constants |= constants_without_elements(self.values)
        self.is_fixed_point = is_fixed_point(model)

    def made(self) -> Region:
        return with_elements(self._if() if self.node.op_type == "If" else self._loop())

    def _if(self) -> Region:
        graphs = [attributes(self.node)[branch] for branch in BRANCHES]
        possible = [graph for graph in graphs if not is_impossible(graph)]
        outer = self._outer(possible)
        inside = [self._graph(graph, [], outer) for graph in possible]
        results = (inside[0].output, inside[-1].output)
        for place, (name, one, other) in enumerate(zip(self.node.output, *results, strict=True)):
            if are_unlike_numbers(one, other):
                self._same_rank(place, inside)
            elif described(one) != described(other):
                self.refuse(
                    f"its branches give {name!r} as {_text(one)} and as {_text(other)}",
                    "Export the model with the branch fixed (in eval mode, with static shapes), or make its "
                    "condition a constant (--const).",
                )
        outputs = [
            _renamed(value, name) for name, value in zip(self.node.output, inside[0].output, strict=True)
        ]
        inputs = (self.node.input[0], *outer)
        impossible = next((i for i, graph in enumerate(graphs) if is_impossible(graph)), -1)
        about: dict[str, int | str] = {"operator": "If", "impossible": impossible}
        return Region(self.node, inputs, about, tuple(inside), tuple(outputs))

    def _loop(self) -> Region:
        import onnx

        body: onnx.GraphProto = attributes(self.node)["body"]
        count, condition, *starts = [*self.node.input, "", ""][: max(2, len(self.node.input))]
        outer = self._outer([body])
        step, going, *carried = body.input
        rank = len(step.type.tensor_type.shape.dim)
        given = [onnx.helper.make_tensor_value_info(step.name, onnx.TensorProto.INT64, [1] * rank)]
        for value, start in zip(carried, starts, strict=True):
            given.append(_renamed(self._value(start), value.name))
        whole = onnx.GraphProto()
        whole.CopyFrom(body)
        truth = onnx.helper.make_tensor(
            going.name, onnx.TensorProto.BOOL, [1] * len(going.type.tensor_type.shape.dim), [True]
        )
        whole.initializer.append(truth)
        inside = self._graph(whole, given, outer)
        goes_on, *results = inside.output
        for place, (value, start) in enumerate(zip(results, given[1:], strict=False)):
            if are_unlike_numbers(value, start):
                reshape_result(inside, 1 + place, static_shape(start) or ())
            elif described(value) != described(start):
                self.refuse(
                    f"{start.name!r}, which it carries from trip to trip, is {_text(start)} before a trip "
                    f"and {_text(value)} behind it",
                    "Export the model with room for all trips from the start, or cut it before the node "
                    "(--outputs).",
                )
        known = _known(inside, goes_on.name, self.model)
        trips = self.constants.get(count)
        most, bounded = self._most(trips, known)
        if known is not None:
            del inside.output[0]
        stacked = list(self.node.output[len(starts) :])
        is_open = bool(stacked) and (known is None or bool(count and trips is None))
        room = self._room(stacked) if is_open else 0
        carried_on = zip(self.node.output, starts, strict=False)
        outputs = [_renamed(self._value(start), name) for name, start in carried_on]
        for name, part in zip(self.node.output[len(starts) :], results[len(starts) :], strict=True):
            element, shape = part.type.tensor_type.elem_type, static_shape(part)
            assert shape is not None
            outputs.append(onnx.helper.make_tensor_value_info(name, element, [room or most, *shape]))
        is_true = condition in self.constants and _number(self.constants[condition])
        starting = "" if is_true else condition
        about: dict[str, int | str] = {
            "operator": "Loop",
            "trips": int(bool(count) and trips is None),
            "condition": int(bool(starting)),
            "goes_on": int(known is None),
            "carried": len(starts),
            "most": most,
            "bounded": int(bounded),
            "room": room,
        }
        read = [count] if about["trips"] else []
        inputs = (*read, *([starting] if starting else []), *starts, *outer)
        return Region(self.node, inputs, about, (inside,), tuple(outputs))

    def _same_rank(self, place: int, inside: Sequence[onnx.GraphProto]) -> None:
        """Gives a result that is one element in both branches one rank, in place: the higher one where the
        model can be right with that, for what reads it may join it with others along its axis."""

        shapes = sorted({static_shape(graph.output[place]) or () for graph in inside}, key=len, reverse=True)
        name, element = self.node.output[place], inside[0].output[place].type.tensor_type.elem_type
        wanted = next((one for one in shapes if self._fits(name, element, one)), shapes[0])
        for graph in inside:
            reshape_result(graph, place, wanted)

    def _fits(self, name: str, element: int, shape: Sequence[int]) -> bool:
        """Whether shapes can be inferred of what reads a result of the node, with this shape."""
        import onnx

        trial = onnx.ModelProto()
        trial.CopyFrom(self.model)
        for node in trial.graph.node:
            if name in node.output:
                node.output[list(node.output).index(name)] = ""
        trial.graph.input.append(onnx.helper.make_tensor_value_info(name, element, shape))
        try:
            onnx.shape_inference.infer_shapes(trial, strict_mode=True, data_prop=True)
        except onnx.shape_inference.InferenceError:
            return False
        return True

    def _room(self, stacked: Sequence[str]) -> int:
        """The trips for which there is room in what the loop stacks."""
        sizes = [self.bounds.rooms[name] for name in stacked if name in self.bounds.rooms]
        if not sizes:
            name = next((name for name in stacked if name), "")
            self.refuse(
                f"how many trips it makes, and so the size of {name!r}, is known at run time only",
                f"Give it room for as many trips as there will be: --max {shlex.quote(f'{name}=100')}.",
            )
        return sizes[0]

    def _most(self, trips: onnx.TensorProto | None, goes_on: bool | None) -> tuple[int, bool]:
        """The most trips that the loop can make, and whether it is the user who says so.

        Args:
            trips: how many the model says, if that is known.
            goes_on: what it computes as the condition of another trip, if that is known.
        """
        if goes_on is False:
            return 1 if trips is None else min(1, _number(trips)), False
        carried = self.node.output[: len(self.node.input) - 2]
        room = min((self.bounds.rooms[name] for name in carried if name in self.bounds.rooms), default=None)
        if room is not None and room <= self.bounds.trips and (trips is None or _number(trips) > room):
            return room, True
        if trips is None or (goes_on is None and _number(trips) > self.bounds.trips):
            return self.bounds.trips, True
        if _number(trips) > self.bounds.trips:
            self.refuse(
                f"it makes {_number(trips)} trips; {self.bounds.trips} are allowed",
                "If that is meant, give --max-trips.",
            )
        return _number(trips), False

    # Values --------------------------------------------------------------------------------------------

    def _value(self, name: str) -> onnx.ValueInfoProto:
        """Type and static shape of a value of the model."""
        import onnx

        if name in self.constants:
            tensor = self.constants[name]
            return onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims)
        value = self.values.get(name)
        if static_shape(value) is None:
            self.refuse(f"the shape of {name!r}, which it reads, is not known")
        assert value is not None
        return value

    def _outer(self, graphs: Sequence[onnx.GraphProto]) -> list[str]:
        """What the graphs read of the one around them, but for constants."""
        read = (name for graph in graphs for name in _read_outside(graph))
        return [name for name in dict.fromkeys(read) if name not in self.constants]

    def _graph(
        self, graph: onnx.GraphProto, given: Sequence[onnx.ValueInfoProto], outer: Sequence[str]
    ) -> onnx.GraphProto:
        """A graph of the node, normalised; its outputs have static shapes.

        Args:
            given: its own inputs.
            outer: what it reads of the model, which become inputs too.
        """
        import onnx

        inner = onnx.GraphProto()
        inner.CopyFrom(graph)
        del inner.input[:]
        if not self.is_fixed_point:  # of whose operators nothing infers shapes
            del inner.value_info[:]
        inner.input.extend(given)
        inner.input.extend(self._value(name) for name in outer)
        read = set(_read_outside(graph))
        inner.initializer.extend(self.constants[name] for name in self.constants if name in read)
        separate_outputs(inner)
        for value in inner.output:
            value.ClearField("type")
        model = onnx.helper.make_model(
            inner, opset_imports=list(self.model.opset_import), ir_version=max(8, self.model.ir_version)
        )
        try:
            normal = self.normalise(model).graph
        except RefusedNodesError as error:
            error.tensors = tuple(name for name in self.node.output if name)
            raise
        for value in normal.output:
            if static_shape(value) is None:
                self.refuse(f"the shape of {value.name!r} in it is not known")
        return normal

    def refuse(self, why: str, hint: str = "") -> NoReturn:
        raise RefusedNodesError(
            f"{self.title}: {why}.",
            hint=hint or "Export it with static shapes, or cut it before the node (--outputs).",
            tensors=[name for name in self.node.output if name][:1],
        )


def separate_outputs(graph: onnx.GraphProto, only: Container[str] | None = None) -> None:
    """Gives each output, or those of some names, a name and a node of its own, in place: a graph may pass on
    what it is given, or give one value twice."""
    import onnx

    for index, value in enumerate(graph.output):
        if only is None or value.name in only:
            name = f"{value.name}/result{index}"
            graph.node.append(onnx.helper.make_node("Identity", [value.name], [name], name=name))
            value.name = name


def _read_outside(graph: onnx.GraphProto) -> list[str]:
    """What a graph, with those inside it, reads that it does not compute, once each, in order."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {name for node in graph.node for name in node.output}
    read = (name for node in graph.node for name in names_read(node))
    outputs = (value.name for value in graph.output)
    return [name for name in dict.fromkeys([*read, *outputs]) if name and name not in own]


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """What a node reads, also in the graphs inside it."""
    yield from node.input
    for inner in inner_graphs(node):
        yield from _read_outside(inner)


def _known(graph: onnx.GraphProto, name: str, model: onnx.ModelProto) -> bool | None:
    """The value of a condition that constants decide; None of another one."""
    import onnx

    opsets = [*model.opset_import, onnx.helper.make_opsetid(DOMAIN, 1)]
    whole = onnx.helper.make_model(graph, opset_imports=opsets)
    found = Editor(whole).known(name)
    return None if found is None else bool(found.reshape(-1)[0])


def _number(tensor: onnx.TensorProto) -> int:
    from onnx import numpy_helper

    return int(numpy_helper.to_array(tensor).reshape(-1)[0])


def _text(value: onnx.ValueInfoProto) -> str:
    shape, dtype = described(value)
    return f"{dtype}[{','.join(map(str, shape))}]"


def _renamed(value: onnx.ValueInfoProto, name: str) -> onnx.ValueInfoProto:
    import onnx

    made = onnx.ValueInfoProto()
    made.CopyFrom(value)
    made.name = name
    return made
