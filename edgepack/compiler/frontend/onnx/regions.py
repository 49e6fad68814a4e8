"""Ifs and loops that stay: which branch is taken, or how many trips there are, is known at run time only, or
the trips are too many to be written out.

Each becomes a node ``EdgepackRegion`` of the normalised model, whose graphs are normalised models of their
own: inputs of static shapes, constants inside. What a graph reads of the one around it is an input of the
node, and of each of its graphs; but for constants, which kernels want to pack: these are copied.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from edgepack.compiler.frontend.onnx.fixed_point import DOMAIN
from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes
from edgepack.compiler.frontend.onnx.shapes import all_nodes, infer_shapes, inner_graphs, static_shape
from edgepack.compiler.frontend.onnx.support import REGION, RefusedNodesError, node_name
from edgepack.errors import ModelError

if TYPE_CHECKING:
    import onnx

__all__ = ["CONVERTERS", "Region", "hoist", "regions", "with_names"]

#: Trips of a loop that nothing bounds.
UNBOUNDED = 2**63 - 1

#: How operators begin that stay in a loop's body: random numbers are others in each trip, and what is passed on
#: costs nothing.
UNMOVED = ("Random", "Bernoulli", "Multinomial", "Identity")

#: Normalises a model of static shapes.
Normalise = Callable[["onnx.ModelProto"], "onnx.ModelProto"]


@dataclass(frozen=True)
class Region:
    """An If or a loop of a model.

    Attributes:
        node: as the model has it.
        inputs: what the node of the normalised model reads.
        about: its attributes, but for the graphs.
        graphs: normalised.
        outputs: types and shapes of its results.
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
        made = onnx.helper.make_node(REGION, list(self.inputs), list(self.node.output), domain=DOMAIN)
        made.name = node_name(self.node, 0)
        for index, name in enumerate(made.output):
            made.output[index] = name or f"{made.name}/unused{index}"
        results = [_described(value) for value in self.outputs]
        about = {**self.about, "results": json.dumps(results)}
        made.attribute.extend(onnx.helper.make_attribute(key, value) for key, value in about.items())
        made.attribute.append(onnx.helper.make_attribute("inside", list(self.graphs)))
        return made


def regions(model: onnx.ModelProto, normalise: Normalise) -> list[Region]:
    """The Ifs and loops of a model, in order; the shapes of their results are declared in the model, in place.

    Args:
        model: without functions, its constants folded.

    Raises:
        RefusedNodesError: a value changes its shape from trip to trip, or with the branch that is taken.
    """
    found = []
    for index, node in enumerate(model.graph.node):
        if node.op_type in ("If", "Loop") and node.domain in ("", "ai.onnx"):
            one = _Maker(model, node, index, normalise).made()
            declared = {value.name: value for value in one.outputs}
            kept = [value for value in model.graph.value_info if value.name not in declared]
            del model.graph.value_info[:]
            model.graph.value_info.extend([*kept, *one.outputs])
            for value in model.graph.output:
                value.CopyFrom(declared.get(value.name, value))
            found.append(one)
    return found


class _Maker:
    """Makes the region of a node."""

    def __init__(
        self, model: onnx.ModelProto, node: onnx.NodeProto, index: int, normalise: Normalise
    ) -> None:
        self.model, self.node, self.normalise = model, node, normalise
        self.title = f"The {node.op_type} node {node_name(node, index)} cannot be compiled"
        graph = infer_shapes(model).graph
        self.values = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}

    def made(self) -> Region:
        return self._if() if self.node.op_type == "If" else self._loop()

    def _if(self) -> Region:
        graphs = [attributes(self.node)[branch] for branch in ("then_branch", "else_branch")]
        outer = self._outer(graphs)
        inside = [self._graph(graph, [], outer) for graph in graphs]
        for name, one, other in zip(self.node.output, *(graph.output for graph in inside), strict=True):
            if _described(one) != _described(other):
                self.refuse(
                    f"its branches give {name!r} as {_text(one)} and as {_text(other)}",
                    "Export the model with the branch fixed (in eval mode, with static shapes), or make its "
                    "condition a constant (--const).",
                )
        outputs = [
            _renamed(value, name) for name, value in zip(self.node.output, inside[0].output, strict=True)
        ]
        inputs = (self.node.input[0], *outer)
        return Region(self.node, inputs, {"operator": "If"}, tuple(inside), tuple(outputs))

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
        for value, start in zip(results, given[1:], strict=False):
            if _described(value) != _described(start):
                self.refuse(
                    f"{start.name!r}, which it carries from trip to trip, is {_text(start)} before a trip and "
                    f"{_text(value)} behind it",
                    "Export the model with room for all trips from the start, or cut it before the node "
                    "(--outputs).",
                )
        known = _known(inside, goes_on.name, self.model)
        trips = self.constants.get(count)
        most = UNBOUNDED if trips is None else _number(trips)
        most = min(most, 1) if known is False else most
        if known is not None:
            del inside.output[0]
        if len(results) > len(starts) and (known is None or (count and trips is None)):
            self.refuse("how much it stacks is known at run time only")
        outputs = [_renamed(self._value(start), name) for name, start in zip(self.node.output, starts, strict=False)]
        for name, part in zip(self.node.output[len(starts) :], results[len(starts) :], strict=True):
            element, shape = part.type.tensor_type.elem_type, static_shape(part)
            assert shape is not None
            outputs.append(onnx.helper.make_tensor_value_info(name, element, [most, *shape]))
        starting = condition if condition and condition not in self.constants else ""
        about = {
            "operator": "Loop",
            "trips": int(bool(count) and trips is None),
            "condition": int(bool(starting)),
            "goes_on": int(known is None),
            "carried": len(starts),
            "most": most,
            "bounded": 0,
        }
        read = [count] if about["trips"] else []
        inputs = (*read, *([starting] if starting else []), *starts, *outer)
        return Region(self.node, inputs, about, (inside,), tuple(outputs))

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
        del inner.input[:], inner.value_info[:]
        inner.input.extend(given)
        inner.input.extend(self._value(name) for name in outer)
        read = set(_read_outside(graph))
        inner.initializer.extend(self.constants[name] for name in self.constants if name in read)
        _separate_outputs(inner)
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


def _separate_outputs(graph: onnx.GraphProto, only: Container[str] | None = None) -> None:
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
    read = (name for node in graph.node for name in _read(node))
    outputs = (value.name for value in graph.output)
    return [name for name in dict.fromkeys([*read, *outputs]) if name and name not in own]


def _read(node: onnx.NodeProto) -> Iterator[str]:
    """What a node reads, also in the graphs inside it."""
    yield from node.input
    for inner in inner_graphs(node):
        yield from _read_outside(inner)


def hoist(model: onnx.ModelProto) -> bool:
    """Moves what each trip of a loop would compute anew from what does not change before the loop, in place;
    whether there was any."""
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if node.op_type == "Loop" and node.domain in ("", "ai.onnx"):
            nodes += _hoisted(model, attributes(node)["body"])
        nodes.append(node)
    changed = len(nodes) > len(model.graph.node)
    if changed:
        copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
        del model.graph.node[:]
        model.graph.node.extend(copies)
    return changed


def _hoisted(model: onnx.ModelProto, body: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Takes the nodes of a body that depend on nothing of a trip out of it; returns them."""
    constants = {tensor.name: tensor for tensor in body.initializer}
    trip = {value.name for value in body.input}
    trip |= {name for node in body.node for name in node.output}
    moved: list[onnx.NodeProto] = []
    kept: list[onnx.NodeProto] = []
    for node in body.node:
        reads = [name for name in _read(node) if name]
        fixed = bool(set(reads) - constants.keys()) and trip.isdisjoint(set(reads) - constants.keys())
        if not fixed or node.op_type.startswith(UNMOVED):
            kept.append(node)
            continue
        moved.append(node)
        trip -= set(node.output)
    if moved:
        outside = {tensor.name for tensor in model.graph.initializer}
        needed = {name for node in moved for name in _read(node)}
        model.graph.initializer.extend(
            tensor for name, tensor in constants.items() if name in needed and name not in outside
        )
        copies = [type(node).FromString(node.SerializeToString()) for node in kept]
        moved = [type(node).FromString(node.SerializeToString()) for node in moved]
        del body.node[:]
        body.node.extend(copies)
        _separate_outputs(body, {name for node in moved for name in node.output})
    return moved


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


def _described(value: onnx.ValueInfoProto) -> tuple[list[int], str]:
    """Shape and dtype of a value."""
    from edgepack.compiler.frontend.onnx.binding import input_dtype

    return list(static_shape(value) or ()), input_dtype(value)


def _text(value: onnx.ValueInfoProto) -> str:
    shape, dtype = _described(value)
    return f"{dtype}[{','.join(map(str, shape))}]"


def _renamed(value: onnx.ValueInfoProto, name: str) -> onnx.ValueInfoProto:
    import onnx

    made = onnx.ValueInfoProto()
    made.CopyFrom(value)
    made.name = name
    return made


# The importer -------------------------------------------------------------------------------------------


def with_names(model: onnx.ModelProto) -> dict[str, onnx.GraphProto]:
    """Names the graphs inside a normalised model's Ifs and loops, in place, also those inside these; the graphs
    by name."""
    import onnx

    found: dict[str, onnx.GraphProto] = {}
    for node in all_nodes(model.graph):
        if node.op_type != REGION:
            continue
        graphs = next(a.graphs for a in node.attribute if a.name == "inside")
        names = [f"g{len(found) + number}" for number in range(len(graphs))]
        found.update(zip(names, graphs, strict=True))
        kept = [a for a in node.attribute if a.name != "names"]
        if len(kept) == len(node.attribute):
            node.attribute.append(onnx.helper.make_attribute("names", " ".join(names)))
    return found


def _convert(builder: Any, inputs: Sequence[Any], values: dict[str, Any], opset: int) -> Any:
    """The operator, for the importer."""
    from tvm import relax

    from edgepack.compiler.graph.opaque import REGION as KIND
    from edgepack.compiler.graph.opaque import emit_opaque

    del opset
    about = {
        key: v.decode() if isinstance(v, bytes) else v
        for key, v in values.items()
        if key not in {"tvm_custom", "inside", "names", "results"}
    }
    names = values["names"].decode() if isinstance(values["names"], bytes) else values["names"]
    results = [(tuple(shape), dtype) for shape, dtype in json.loads(values["results"])]
    if any(0 in shape for shape, _ in results):
        raise ModelError("A loop of no trips has results without elements.")
    made = emit_opaque(builder, names.replace(" ", "_"), {"kind": KIND, **about, "graphs": names}, inputs, results)
    return made[0] if len(made) == 1 else relax.Tuple(made)


#: As those of ``converters.py``.
CONVERTERS = {REGION: _convert}
