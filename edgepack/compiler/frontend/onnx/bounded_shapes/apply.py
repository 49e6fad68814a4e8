"""Gives the results of a model that have as many entries as the data say a static maximum (``--max``)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.bounded_shapes.counted_range import counted_ranges
from edgepack.compiler.frontend.onnx.bounded_shapes.data_dependent import (
    COUNT,
    Entries,
    declared_results,
    dynamic_results,
    is_data_dependent,
    selection_node,
)
from edgepack.compiler.frontend.onnx.bounded_shapes.graph import PaddedGraph
from edgepack.compiler.frontend.onnx.bounded_shapes.node import MixedError, PaddedNode
from edgepack.compiler.frontend.onnx.bounded_shapes.rules import apply_rule
from edgepack.compiler.frontend.onnx.bounded_shapes.stacked import stacked_results
from edgepack.compiler.frontend.onnx.bounded_shapes.suggest import boxes_limit, missing_maxima
from edgepack.compiler.frontend.onnx.cut import node_reads
from edgepack.compiler.frontend.onnx.support import RefusedNodesError, node_name
from edgepack.errors import ConfigError
from edgepack.plan.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    import onnx

__all__ = ["Padding", "apply_maxima"]


@dataclass(frozen=True)
class Padding:
    """What the outputs of a model with maxima are, beside those of the model as it is.

    Attributes:
        shapes: of the padded outputs, by name.
        counts: outputs that say how many entries there are, by name: the tensor of the model whose extent
            along an axis that is, and the axis.
        most: for each of these how many entries there is room for.
        trips: by name of a result of a loop, the trips that it has room for.
        totals: the same, of the model as it was: more trips are nothing that a bundle computes.
        grown: counts of what grew in such a loop: with more entries than there is room for a run fails.
    """

    shapes: Mapping[str, Sequence[int]]
    counts: Mapping[str, tuple[str, int]]
    most: Mapping[str, int]
    trips: Mapping[str, int] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)
    grown: Sequence[str] = ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Padding:
        """Of what ``dataclasses.asdict`` made."""
        counts = {name: (tensor, axis) for name, (tensor, axis) in data["counts"].items()}
        return cls(data["shapes"], counts, data["most"], data["trips"], data["totals"], data["grown"])


def apply_maxima(
    model: onnx.ModelProto, maxima: Mapping[str, int], tensors: set[str], limits: Limits = DEFAULT_LIMITS
) -> Padding:
    """Rewrites the model, in place, to one of static shapes whose counts are outputs.

    Nodes whose results have a maximum are of edgepack's own domain then.

    Args:
        model: constants folded, input shapes static.
        maxima: by name of a result; its size along the axis along which the data decide about it.
        tensors: those of the model before its constants were folded.
        limits: how much may become of the model.

    Raises:
        ConfigError: a name is no such result.
        RefusedNodesError: a result has no maximum, or a node mixes entries of which some are padding.
    """
    import onnx

    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    model.opset_import.append(onnx.helper.make_opsetid("edgepack", 1))
    known = stacked_results(model, maxima, limits) | counted_ranges(model, maxima)
    found = known | _selections(model, {k: v for k, v in maxima.items() if k not in known}, tensors)
    graph = PaddedGraph(model)
    for name, entry in found.items():
        graph.axes[name] = entry
        graph.zero.add(name)
    _follow(graph)
    return _published(model, graph, found)


def _selections(
    model: onnx.ModelProto, maxima: Mapping[str, int], tensors: set[str]
) -> dict[str, tuple[int, Entries]]:
    """Writes the nodes that have a maximum anew; their results, the axes along which they are padded, and by
    how much."""
    nodes = [node for node in model.graph.node if is_data_dependent(node)]
    graph = PaddedGraph(model)
    named, found = set(), {}
    without = []
    for node in nodes:
        given = [name for name in node.output if name in maxima]
        known = graph.shapes(node.input)
        if given and len(known) < len(node.input):  # it reads the entries of another one
            graph = PaddedGraph(model)
            known = graph.shapes(node.input)
        results = dynamic_results(node, known[0]) if len(known) == len(node.input) else {}
        named.update(given)
        if not given or not results:
            without.append(node)
            continue
        entries = _entries(node, given, results, maxima)
        declared = declared_results(node, entries, known, graph.element(node.input[0]))
        limit = boxes_limit(graph, node)
        found.update({name: (axis, entries) for name, axis in results.items()})
        node.CopyFrom(selection_node(node, entries, known, limit))
        _declare(model, declared)
    _check_names(maxima, named, tensors)
    if without:
        raise missing_maxima(model, without)
    return found


def _entries(
    node: onnx.NodeProto, given: Sequence[str], results: Mapping[str, int], maxima: Mapping[str, int]
) -> Entries:
    sizes = {maxima[name] for name in given}
    first = given[0]
    if len(sizes) > 1:
        names = " and ".join(repr(name) for name in given)
        raise ConfigError(
            f"--max: {names} are results of one {node.op_type} and have equally many entries.",
            hint=f"Give one of them: --max {first}={max(sizes)}.",
        )
    if first not in results:
        raise ConfigError(
            f"--max: the size of {first!r} does not depend on the data.",
            hint=f"Give a maximum to {next(iter(results))!r}.",
        )
    return Entries(sizes.pop(), f"{first}{COUNT}", first)


def _check_names(maxima: Mapping[str, int], named: set[str], tensors: set[str]) -> None:
    for name in maxima:
        if name in named:
            continue
        if name in tensors:
            raise ConfigError(
                f"--max: {name!r} is no result of a node whose number of entries depends on the data.",
                hint="Leave it out; a pack without it names those that need a maximum.",
            )
        near = difflib.get_close_matches(name, tensors, n=1)
        raise ConfigError(
            f"--max: the model has no tensor {name!r}.", hint=f"Did you mean {near[0]!r}?" if near else ""
        )


def _declare(model: onnx.ModelProto, values: Sequence[onnx.ValueInfoProto]) -> None:
    """Writes types and shapes of results into the model, in the place of what it says of them."""
    names = {value.name for value in values}
    kept = [value for value in model.graph.value_info if value.name not in names]
    del model.graph.value_info[:]
    model.graph.value_info.extend([*kept, *values])
    by_name = {value.name: value for value in values}
    for output in model.graph.output:
        if output.name in by_name:
            output.CopyFrom(by_name[output.name])


def _follow(graph: PaddedGraph) -> None:
    """Rewrites the nodes that read padded tensors, in order."""
    for index, node in enumerate(graph.nodes):
        reads = list(node_reads(node))
        padded = [name for name in reads if name in graph.axes]
        lengths = [name for name in reads if name in graph.lengths]
        if not padded and not lengths:
            graph.keep(node)
            continue
        try:
            apply_rule(PaddedNode(graph, node))
        except MixedError as error:
            raise _refused(graph, node, index, (padded or lengths)[0], str(error)) from None


def _refused(graph: PaddedGraph, node: onnx.NodeProto, index: int, read: str, why: str) -> RefusedNodesError:
    if read in graph.axes:
        entries = graph.axes[read][1]
    else:
        entries = next(one for one in graph.lengths[read] if one is not None)
    name = node_name(node, index)
    return RefusedNodesError(
        f"{node.op_type} ({name}) cannot be computed behind --max {entries.name}={entries.most}: {why}.",
        hint=f"End the model before it: --outputs {read}.",
        refused=[{"operator": str(node.op_type), "nodes": [name], "reason": why}],
        tensors=[tensor for tensor in node.output if tensor],
    )


def _published(
    model: onnx.ModelProto, graph: PaddedGraph, found: Mapping[str, tuple[int, Entries]]
) -> Padding:
    """Makes outputs of the counts; what the outputs are."""
    for value in model.graph.output:
        if value.name in graph.lengths:
            raise ConfigError(
                f"The output {value.name!r} is a size that depends on the data.",
                hint="Leave it out with --outputs: the number of entries is an output of its own with --max.",
            )
    outputs = [value.name for value in model.graph.output]
    used = graph.finish()
    named = [(name, axis, entries) for name, (axis, entries) in found.items() if name == entries.name]
    counted = {entries.count: (name, axis, entries) for name, axis, entries in named}
    published = dict.fromkeys(counted, "")
    for name, tensor in used.items():
        if tensor not in counted:
            axis, entries = graph.axes[name]
            counted[f"{name}{COUNT}"] = (name, axis, entries)
            published[f"{name}{COUNT}"] = tensor
    taken = sorted({*outputs} & counted.keys())
    if taken:
        raise ConfigError(
            f"The model has an output {taken[0]!r} of its own.",
            hint="Rename it, or leave it out with --outputs.",
        )
    for count, tensor in published.items():
        graph.publish(tensor or count, count)
    return Padding(
        {name: graph.shape(name) or () for name in used},
        {count: (name, axis) for count, (name, axis, _) in counted.items()},
        {count: entries.most for count, (_, _, entries) in counted.items()},
    )
