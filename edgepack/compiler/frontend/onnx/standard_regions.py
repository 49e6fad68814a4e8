"""The Ifs and loops of a normalised model as ONNX has them, so that ONNX Runtime runs it; loops that end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.rewrites.editor import attributes, rename_values
from edgepack.compiler.frontend.onnx.shapes import inner_graphs
from edgepack.compiler.frontend.onnx.support import BRANCHES, REGION

if TYPE_CHECKING:
    import onnx

__all__ = ["end_loops", "with_standard_regions"]


def with_standard_regions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with Ifs and Loops in the place of its nodes ``EdgepackRegion``, in place."""
    _standardise(model.graph)
    return model


def _standardise(graph: onnx.GraphProto) -> None:
    import numpy as np
    from onnx import numpy_helper

    for node in graph.node:
        if node.op_type != REGION:
            continue
        about = attributes(node)
        inside = list(about["inside"])
        made = _if(node, inside) if about["operator"] == "If" else _loop(node, inside[0])
        if made.op_type == "Loop" and not about["trips"]:
            count = f"{node.name}/trips"
            graph.initializer.append(numpy_helper.from_array(np.asarray(about["most"], np.int64), count))
            made.input[0] = count
        node.CopyFrom(made)


def _if(node: onnx.NodeProto, inside: list[onnx.GraphProto]) -> onnx.NodeProto:
    from onnx import helper

    # Of one with a graph that no run can take, the other one is both.
    both = enumerate((inside[0], inside[-1]))
    graphs = [_apart(graph, f"{node.name}/{i}", 0, node.input[1:]) for i, graph in both]
    branches = dict(zip(BRANCHES, graphs, strict=True))
    return helper.make_node("If", node.input[:1], list(node.output), node.name, **branches)


def _loop(node: onnx.NodeProto, inside: onnx.GraphProto) -> onnx.NodeProto:
    """A Loop, whose number of trips is to be set where it is known."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    about = attributes(node)
    carried = int(about["carried"])
    given = list(node.input)
    trips = given.pop(0) if about["trips"] else ""
    condition = given.pop(0) if about["condition"] else ""
    body = _apart(inside, f"{node.name}/body", 1 + carried, given[carried:])
    going = helper.make_tensor_value_info(f"{node.name}/going", TensorProto.BOOL, [])
    body.input.insert(1, going)
    if not about["goes_on"]:
        again = helper.make_tensor_value_info(f"{node.name}/again", TensorProto.BOOL, [])
        if about["most"] > 1:
            body.node.append(helper.make_node("Identity", [going.name], [again.name]))
        else:  # It stops after a trip, also where their number is an input.
            body.initializer.append(numpy_helper.from_array(np.asarray(False), again.name))
        body.output.insert(0, again)
    return helper.make_node(
        "Loop", [trips, condition, *given[:carried]], list(node.output), node.name, body=body
    )


def _apart(graph: onnx.GraphProto, prefix: str, own: int, outer: Sequence[str]) -> onnx.GraphProto:
    """A graph that reads what is outside of it by name, and whose other names are nobody else's.

    Args:
        own: inputs that stay inputs.
        outer: what the others are called outside.
    """
    import onnx

    made = onnx.GraphProto()
    made.CopyFrom(graph)
    del made.input[own:], made.value_info[:]
    names = [value.name for value in made.input] + [tensor.name for tensor in made.initializer]
    names += [name for node in made.node for name in node.output if name]
    renamed = {name: f"{prefix}/{name}" for name in names}
    renamed |= {value.name: name for value, name in zip(graph.input[own:], outer, strict=True)}
    for node in made.node:
        rename_values(node, renamed)
        node.name = f"{prefix}/{node.name}" if node.name else ""  # no two may have the same
    for value in (*made.input, *made.initializer, *made.output):
        value.name = renamed.get(value.name, value.name)
    _standardise(made)
    return made


def end_loops(model: onnx.ModelProto, most: int, totals: Mapping[str, int] = MappingProxyType({})) -> None:
    """Has no loop of a model make more than so many trips, in place: what a run would make more is nothing
    that a bundle computes, and may never end.

    Args:
        totals: by name of a result of a loop that has room for less, its trips; it may make one more, which
            shows that it would.
    """
    version = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 0)
    if version >= 9:  # before, Where does not exist
        _end_loops(model.graph, most, totals, f"{model.graph.name}/most_trips")


def _end_loops(graph: onnx.GraphProto, limit: int, totals: Mapping[str, int], prefix: str) -> None:
    import numpy as np
    from onnx import helper, numpy_helper

    counts = {tensor.name: tensor for tensor in graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for inner in inner_graphs(node):
            _end_loops(inner, limit, totals, f"{prefix}/{len(nodes)}")
        most = min([limit, *(totals[result] + 1 for result in node.output if result in totals)])
        name = prefix if most == limit else f"{prefix}/{most}"
        if node.op_type == "Loop" and node.domain in ("", "ai.onnx") and node.input:
            count = counts.get(node.input[0])
            known = count is not None and numpy_helper.to_array(count).reshape(-1)[0] <= most
            if not known and not any(tensor.name == name for tensor in graph.initializer):
                graph.initializer.append(numpy_helper.from_array(np.asarray(most, np.int64), name))
            if not known and node.input[0]:
                fewer, chosen = f"{name}/{len(nodes)}/fewer", f"{name}/{len(nodes)}/chosen"
                nodes.append(helper.make_node("Less", [node.input[0], name], [fewer]))
                nodes.append(helper.make_node("Where", [fewer, node.input[0], name], [chosen]))
                node.input[0] = chosen
            elif not known:
                node.input[0] = name
        nodes.append(node)
    if len(nodes) > len(graph.node):
        copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)
