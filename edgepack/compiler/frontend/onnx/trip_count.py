"""How many trips a loop makes whose condition is computed from numbers that are known when the model is
packed: counters that start at constants, and limits that are constants, as exporters of TensorFlow write it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.origins import origin
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes, known_form
from edgepack.compiler.frontend.onnx.shapes import inner_graphs
from edgepack.compiler.frontend.onnx.support import node_name

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["count_trips"]

#: Trips that are followed: each takes some tenths of a millisecond.
MOST_TRIPS = 20_000

#: Elements of the largest tensor that is followed.
MOST_ELEMENTS = 64


def count_trips(model: onnx.ModelProto) -> bool:
    """Gives each Loop of which that is known its number of trips in place of a condition, in place; whether
    there was any. Loops inside others are left as they are.

    Args:
        model: without functions, its constants folded.
    """
    from onnx import numpy_helper

    constants = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in model.graph.initializer
        if len(tensor.dims) <= 1 and max(tensor.dims, default=1) <= MOST_ELEMENTS
    }
    changed = False
    for index, node in enumerate(model.graph.node):
        if node.op_type != "Loop" or node.domain not in ("", "ai.onnx"):
            continue
        with known_form(node, index):
            trips = _Follower(model, node, constants).trips()
            if trips is not None:
                _settle(model, node, trips, f"{node_name(node, index)}/trips")
                changed = True
    return changed


class _Follower:
    """Follows what decides on a loop's trips."""

    def __init__(
        self, model: onnx.ModelProto, node: onnx.NodeProto, constants: Mapping[str, NDArray[Any]]
    ) -> None:
        self.model, self.node, self.constants = model, node, constants
        self.body: onnx.GraphProto = attributes(node)["body"]

    def trips(self) -> int | None:
        """How many there are; None where that is not known, or the number is given already."""
        given = [*self.node.input, "", ""]
        most = self._start(given[0], MOST_TRIPS)
        goes_on = self._start(given[1], True)
        passed_on = self._passed_on()
        if most is None or goes_on is None or (passed_on and self.node.input[0]):
            return None
        found = self._nodes()
        if found is None:
            return None
        nodes, carried = found
        values = {name: self.constants[self._start_of(name)] for name in carried}
        return self._counted(nodes, values, int(most), bool(goes_on))

    def _start(self, name: str, default: int | bool) -> int | bool | None:
        """The number that an input of the loop is; None where it is not known."""
        if not name:
            return default
        return self.constants[name].reshape(-1)[0].item() if name in self.constants else None

    def _passed_on(self) -> bool:
        """Whether the body's condition is the one that it was given, so that the number alone decides."""
        return bool(origin(self.body, self.body.output[0].name) == self.body.input[1].name)

    def _start_of(self, name: str) -> str:
        """The input of the loop that a value carried by the body begins with."""
        place = next(i for i, value in enumerate(self.body.input) if value.name == name)
        return str(self.node.input[place])

    def _nodes(self) -> tuple[list[onnx.NodeProto], list[str]] | None:
        """The nodes of the body that the condition depends on, in order, and the values carried that they
        read, whose results they compute too; None where one depends on what is not known."""
        results = dict(
            zip((v.name for v in self.body.input[1:]), (v.name for v in self.body.output), strict=False)
        )
        producers = {name: node for node in self.body.node for name in node.output if name}
        inside = {tensor.name for tensor in self.body.initializer}
        wanted, seen, carried = [self.body.output[0].name], set[str](), list[str]()
        while wanted:
            name = wanted.pop()
            if name in seen or not name:
                continue
            seen.add(name)
            if name in producers:
                if any(True for _ in inner_graphs(producers[name])):
                    return None
                wanted += producers[name].input
            elif name in results and name != self.body.input[1].name:
                if self._start_of(name) not in self.constants:
                    return None
                carried.append(name)
                wanted.append(results[name])
            elif name not in inside and name not in self.constants and name not in self._own():
                return None
        nodes = [node for node in self.body.node if not seen.isdisjoint(node.output)]
        return nodes, carried

    def _own(self) -> set[str]:
        """The number of the trip, and the condition."""
        return {value.name for value in self.body.input[:2]}

    def _counted(
        self, nodes: list[onnx.NodeProto], values: dict[str, NDArray[Any]], most: int, goes_on: bool
    ) -> int | None:
        """The trips, one after the other."""
        import numpy as np
        from onnx import helper
        from onnx.reference import ReferenceEvaluator

        step, going = (value.name for value in self.body.input[:2])
        places = {value.name: number for number, value in enumerate(self.body.input)}
        results = {name: self.body.output[places[name] - 1].name for name in values}
        wanted = list(dict.fromkeys([self.body.output[0].name, *results.values()]))
        read = {name for node in nodes for name in node.input} | set(wanted)
        fixed = [t for t in self.body.initializer if t.name in read]
        outside = [t for t in self.model.graph.initializer if t.name in read and t.name in self.constants]
        inputs = [helper.make_empty_tensor_value_info(name) for name in (step, going, *values)]
        outputs = [helper.make_empty_tensor_value_info(name) for name in wanted]
        graph = helper.make_graph(nodes, "condition", inputs, outputs, [*fixed, *outside])
        opsets = list(self.model.opset_import)
        run = ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets))
        trips = 0
        while goes_on and trips < most:
            if trips == MOST_TRIPS:
                return None
            given = {step: np.asarray(trips, np.int64), going: np.asarray(True), **values}
            found = dict(zip(wanted, run.run(None, given), strict=True))
            goes_on = bool(np.asarray(found[self.body.output[0].name]).reshape(-1)[0])
            values = {name: np.asarray(found[result]) for name, result in results.items()}
            trips += 1
        return trips if trips < MOST_TRIPS or not goes_on else None


def _settle(model: onnx.ModelProto, node: onnx.NodeProto, trips: int, name: str) -> None:
    """Makes a number of trips all that decides."""
    import numpy as np
    from onnx import helper, numpy_helper

    model.graph.initializer.append(numpy_helper.from_array(np.asarray(trips, np.int64), name))
    node.input[0], node.input[1] = name, ""
    body: onnx.GraphProto = attributes(node)["body"]
    going = f"{name}/on"
    body.node.append(helper.make_node("Identity", [body.input[1].name], [going], name=going))
    body.output[0].name = going
