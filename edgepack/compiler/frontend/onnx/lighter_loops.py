"""Loops with less to do in each trip: what each would compute anew is computed once before, what none changes
is not carried from one to the next, and what nobody reads is not carried at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.origins import origin
from edgepack.compiler.frontend.onnx.regions import names_read, separate_outputs
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes, known_form, rename_values

if TYPE_CHECKING:
    import onnx

__all__ = ["lighten_loops"]

#: How operators begin that stay in a loop's body: random numbers are others in each trip, and what is passed
#: on costs nothing.
UNMOVED = ("Random", "Bernoulli", "Multinomial", "Identity")


def lighten_loops(model: onnx.ModelProto) -> bool:
    """Takes out of the model's loops what need not be in them, in place; whether there was any.

    Args:
        model: without functions, its constants folded.
    """
    changed = False
    nodes: list[onnx.NodeProto] = []
    for index, node in enumerate(model.graph.node):
        if node.op_type != "Loop" or node.domain not in ("", "ai.onnx"):
            nodes.append(node)
            continue
        with known_form(node, index):
            loop = _Loop(model, node)
            changed |= loop.drop_unread() | loop.capture_unchanged()
            if any(node.output):
                changed |= loop.hoist() | loop.hoist_products()
            nodes += [*loop.before, *([node] if any(node.output) else [])]
    if changed:
        copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
        del model.graph.node[:]
        model.graph.node.extend(copies)
    return changed


class _Loop:
    """A loop that is changed.

    Attributes:
        before: nodes that the model gets before the loop.
    """

    def __init__(self, model: onnx.ModelProto, node: onnx.NodeProto) -> None:
        self.model, self.node = model, node
        self.body: onnx.GraphProto = attributes(node)["body"]
        self.before: list[onnx.NodeProto] = []

    def _take_out(self, places: Sequence[int]) -> None:
        """Ends the carrying of values, by their number."""
        for place in sorted(places, reverse=True):
            del self.node.input[2 + place], self.node.output[place]
            del self.body.input[2 + place], self.body.output[1 + place]

    @property
    def _carried(self) -> int:
        return len(self.body.input) - 2

    # What nobody reads ---------------------------------------------------------------------------------

    def drop_unread(self) -> bool:
        """Values that only their own results are made of, which nobody reads behind the loop, and what is
        stacked for nobody."""
        read = {name for node in self.model.graph.node for name in names_read(node)}
        read |= {value.name for value in self.model.graph.output}
        places = range(self._carried, len(self.node.output))
        stacked = [place for place in places if self.node.output[place] not in read]
        for place in reversed(stacked):
            del self.node.output[place], self.body.output[1 + place]
        inputs = [value.name for value in self.body.input[2:]]
        results = [value.name for value in self.body.output]
        needs = {name: self._needed([name]) for name in results}
        wanted = set(results[:1]) | set(results[1 + self._carried :])
        kept = {place for place in range(self._carried) if self.node.output[place] in read}
        while True:
            reached = set().union(*(needs[name] for name in wanted | {results[1 + place] for place in kept}))
            more = {place for place, name in enumerate(inputs) if name in reached} - kept
            if not more:
                break
            kept |= more
        unread = [place for place in range(self._carried) if place not in kept]
        self._take_out(unread)
        if unread or stacked:
            self._drop_dead()
        return bool(unread or stacked)

    def _needed(self, names: Sequence[str]) -> set[str]:
        """All that some values of the body are made of."""
        producers = {name: node for node in self.body.node for name in node.output if name}
        found: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            found.add(name)
            if name in producers:
                waiting += [one for one in names_read(producers[name]) if one]
        return found

    def _drop_dead(self) -> None:
        """Removes the body's nodes that nobody reads."""
        needed = self._needed([value.name for value in self.body.output])
        kept = [node for node in self.body.node if not needed.isdisjoint(node.output)]
        self._set_nodes(kept)

    def _set_nodes(self, nodes: Sequence[onnx.NodeProto]) -> None:
        copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
        del self.body.node[:]
        self.body.node.extend(copies)

    # What no trip changes ------------------------------------------------------------------------------

    def capture_unchanged(self) -> bool:
        """Values that each trip passes on as it got them."""
        from onnx import helper

        found = [
            place
            for place in range(self._carried)
            if origin(self.body, self.body.output[1 + place].name) == self.body.input[2 + place].name
        ]
        names: dict[str, str] = {}
        for place in found:
            start, result = self.node.input[2 + place], self.node.output[place]
            names[self.body.input[2 + place].name] = start
            if result:
                name = f"{result}/unchanged"
                self.before.append(helper.make_node("Identity", [start], [result], name=name))
        self._take_out(found)
        if found:
            for node in self.body.node:
                rename_values(node, names)
            for value in self.body.output:
                value.name = names.get(value.name, value.name)
            separate_outputs(self.body, set(names.values()))
            self._drop_dead()
        return bool(found)

    # What each trip would compute anew -----------------------------------------------------------------

    def hoist(self) -> bool:
        """Nodes that depend on nothing of a trip."""
        constants = {tensor.name for tensor in self.body.initializer}
        trip = self._of_trip()
        moved: list[onnx.NodeProto] = []
        kept: list[onnx.NodeProto] = []
        for node in self.body.node:
            reads = {name for name in names_read(node) if name} - constants
            if not reads or not trip.isdisjoint(reads) or node.op_type.startswith(UNMOVED):
                kept.append(node)
                continue
            moved.append(type(node).FromString(node.SerializeToString()))
            trip -= set(node.output)
        if moved:
            outside = {name: self._outside(name) for node in moved for name in node.output if name}
            inside = self._give_out({name for node in moved for name in names_read(node)})
            for node in moved:
                rename_values(node, outside | inside)
                node.name = self._outside(node.name or node.output[0])
            self.before += moved
            self._set_nodes(kept)
            for node in self.body.node:
                rename_values(node, outside)
            for value in self.body.output:
                value.name = outside.get(value.name, value.name)
            separate_outputs(self.body, set(outside.values()))
        return bool(moved)

    def _outside(self, name: str) -> str:
        """What a value of the body is called outside, where other loops may have one of its name."""
        return f"{next(one for one in self.node.output if one)}/{name}"

    def _of_trip(self) -> set[str]:
        """What is another one in each trip."""
        names = {value.name for value in self.body.input}
        return names | {name for node in self.body.node for name in node.output}

    def _give_out(self, names: set[str]) -> dict[str, str]:
        """Makes constants of the body the model's too; what they are called there."""
        known = {tensor.name for tensor in self.model.graph.initializer}
        renamed: dict[str, str] = {}
        for tensor in self.body.initializer:
            if tensor.name in names:
                name = renamed[tensor.name] = self._outside(tensor.name)
                if name not in known:
                    self.model.graph.initializer.add().CopyFrom(tensor)
                    self.model.graph.initializer[-1].name = name
        return renamed

    def hoist_products(self) -> bool:
        """Products of one row of a sequence in each trip by constant weights, which are one product of all
        rows before the loop: the weights are read once. Only where the sequence has no more rows than there
        are trips.

        ``MatMul(Gather(x, i), w)`` is ``Gather(MatMul(x, w), i)``.
        """
        from onnx import helper

        moved = False
        for product, gather in list(self._products()):
            result, weights = self._outside(f"{product.output[0]}/rows"), product.input[1]
            rows = [gather.input[0], self._give_out({weights}).get(weights, weights)]
            self.before.append(helper.make_node("MatMul", rows, [result], name=result))
            position = [result, gather.input[1]]
            product.CopyFrom(
                helper.make_node("Gather", position, list(product.output), name=product.name, axis=0)
            )
            moved = True
        if moved:
            self._drop_dead()
        return moved

    def _products(self) -> Iterator[tuple[onnx.NodeProto, onnx.NodeProto]]:
        trips = self._trips()
        initializers = (*self.model.graph.initializer, *self.body.initializer)
        constants = {tensor.name: tensor for tensor in initializers}
        gathers = {node.output[0]: node for node in self.body.node if node.op_type == "Gather"}
        shapes = _shapes(self.model)
        trip = self._of_trip()
        for node in self.body.node:
            if node.op_type != "MatMul" or node.input[1] not in constants or node.input[0] not in gathers:
                continue
            gather = gathers[node.input[0]]
            rows = shapes.get(gather.input[0])
            if gather.input[0] in trip or rows is None or attributes(gather).get("axis", 0) != 0:
                continue
            flat = len(rows) >= 2 and len(constants[node.input[1]].dims) == 2
            if flat and trips is not None and rows[0] <= trips:
                yield node, gather

    def _trips(self) -> int | None:
        """How many there are, if they are known, and all are made."""
        from onnx import numpy_helper

        count = next((t for t in self.model.graph.initializer if t.name == self.node.input[0]), None)
        goes_on = origin(self.body, self.body.output[0].name) == self.body.input[1].name
        return None if count is None or not goes_on else int(numpy_helper.to_array(count).reshape(-1)[0])


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Static shapes of the model's values."""
    from edgepack.compiler.frontend.onnx.shapes import infer_shapes, static_shape

    graph = infer_shapes(model).graph
    found = {v.name: static_shape(v) for v in (*graph.value_info, *graph.input, *graph.output)}
    known = {name: shape for name, shape in found.items() if shape is not None}
    return known | {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
