"""Takes lists of tensors and optional values out of a model, as far as constants decide which tensors they
have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.rewrites.editor import known_form, rename_values
from edgepack.compiler.frontend.onnx.sequences.branches import give_tensors
from edgepack.compiler.frontend.onnx.sequences.context import (
    Choice,
    Context,
    Refusal,
    UnknownListError,
)
from edgepack.compiler.frontend.onnx.sequences.loops import follow_loop
from edgepack.compiler.frontend.onnx.sequences.maps import write_out_map
from edgepack.compiler.frontend.onnx.sequences.operators import RULES
from edgepack.compiler.frontend.onnx.sequences.scope import Scope
from edgepack.compiler.frontend.onnx.sequences.values import LIST_TYPES, MAKERS, Value
from edgepack.compiler.frontend.onnx.shapes import all_nodes, infer_shapes, inner_graphs
from edgepack.compiler.frontend.onnx.support import BRANCHES, RefusedNodesError, is_of_lists, node_name
from edgepack.plan.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    import onnx

__all__ = ["check_lists", "expand_lists", "followed", "without_identities"]


def expand_lists(
    model: onnx.ModelProto, limits: Limits = DEFAULT_LIMITS, *, choose: Choice = "nothing"
) -> bool:
    """Has the model compute tensors in the place of lists and optional values, in place, as far as it is
    known which they are; whether there was anything to be done. What is not known stays, and may be known
    when constants were folded.

    Args:
        model: without functions, its constants folded.
        limits: how much may become of it.
        choose: of which lists a run may choose a tensor: of those that are parts of a tensor, from which it
            is gathered, or of all, which are joined for it.
    """
    if not _has_lists(model):
        return False
    scope = followed(model, limits, choose=choose)
    scope.finish()
    return scope.context.changed


def check_lists(model: onnx.ModelProto, limits: Limits = DEFAULT_LIMITS) -> None:
    """Raises RefusedNodesError for lists and optional values that are still there, unless more will be known
    of them: shapes of what an If or a loop gives, before which none carries a list.

    Args:
        model: after :func:`expand_lists` has found nothing to be done. Not changed.
    """
    import onnx

    if not _has_lists(model):
        return
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    scope = followed(copy, limits, choose="all")
    for node in model.graph.node:
        if any(True for _ in inner_graphs(node)):
            if _passes_lists(scope, node):
                break
            if any(name and scope.static(name) is None for name in node.output):
                return
    refused = list(_refused(scope, model))
    if not refused:
        return
    first, own = refused[0], {name for node in model.graph.node for name in node.output}
    raise RefusedNodesError(
        f"The {first.node.op_type} node {node_name(first.node, 0)} cannot be compiled: {first.why}.",
        hint=first.hint
        or "Export the model with lists of a known number of tensors, or cut it before the node (--outputs).",
        detail="\n".join(f"{one.node.op_type} ({one.why}): {node_name(one.node, 0)}" for one in refused[1:]),
        refused=[
            {"operator": one.node.op_type, "nodes": [node_name(one.node, 0)], "reason": one.why}
            for one in refused
        ],
        tensors=[name for one in refused for name in one.node.output if name in own],
    )


def _refused(scope: Scope, model: onnx.ModelProto) -> Iterator[Refusal]:
    """The nodes of a model's graph that make or read lists which are not known. Lists within a graph inside
    are looked at with that graph, when more is known of its inputs."""
    refusals = scope.context.refusals
    for node in model.graph.node:
        inside = [name for graph in inner_graphs(node) for one in all_nodes(graph) for name in one.output]
        own = next((name for name in node.output if name in refusals), None)
        if own is not None:
            yield refusals[own]
        elif inside and _passes_lists(scope, node):
            found = next((refusals[name] for name in inside if name in refusals), None)
            why = found.why if found else "how many tensors a list that it makes has is not known"
            yield Refusal(node, why, found.hint if found else "")


def _passes_lists(scope: Scope, node: onnx.NodeProto) -> bool:
    """Whether a node with graphs inside is given lists, or gives some."""
    for name in (*node.input, *node.output):
        declared = scope.declared(name)
        kind = None if declared is None else declared.type.WhichOneof("value")
        if name and (scope.value(name) is not None or kind in LIST_TYPES):
            return True
    return False


def without_identities(model: onnx.ModelProto) -> None:
    """Has nodes read lists themselves in the place of what Identities pass on, which is none of theirs below
    opset 14, in place."""
    lists, outputs = set[str](), {value.name for value in model.graph.output}
    for node in list(model.graph.node) if _has_lists(model) else ():
        if is_of_lists(node) and node.op_type in MAKERS:
            lists.update(node.output)
        if node.op_type != "Identity" or node.input[0] not in lists:
            continue
        read, given = str(node.input[0]), str(node.output[0])
        if given not in outputs:
            names = {given: read}
        elif read not in outputs:
            names = {read: given}
        else:
            lists.add(given)
            continue
        model.graph.node.remove(node)
        lists.update(names.values())
        for other in model.graph.node:
            rename_values(other, names)


def followed(model: onnx.ModelProto, limits: Limits, *, choose: Choice) -> Scope:
    """What is known of the lists of a model's graph, which is not finished; arguments as for
    :func:`expand_lists`."""
    from edgepack.compiler.frontend.onnx.model_file import default_opset

    context = Context(default_opset(model), model.opset_import, limits.nodes, choose, _names(model))
    scope = Scope(model.graph, infer_shapes(model).graph, context)
    _follow(scope)
    return scope


def _has_lists(model: onnx.ModelProto) -> bool:
    return any(is_of_lists(node) for node in all_nodes(model.graph))


def _names(model: onnx.ModelProto) -> set[str]:
    taken = {value.name for value in model.graph.input} | {one.name for one in model.graph.initializer}
    for node in all_nodes(model.graph):
        taken.update((node.name, *node.input, *node.output))
        for inner in inner_graphs(node):
            taken.update(value.name for value in (*inner.input, *inner.initializer))
    return taken


def _follow(scope: Scope) -> None:
    """Follows a graph node by node."""
    inferred = {node.output[0]: node for node in scope.inferred.node if node.output}
    for index, node in enumerate(scope.graph.node):
        with known_form(node, index):
            try:
                _visit(scope, node, inferred.get(node.output[0], node))
            except UnknownListError as error:
                scope.context.refuse(node, error.why, error.hint)
                scope.keep(node)


def _visit(scope: Scope, node: onnx.NodeProto, inferred: onnx.NodeProto) -> None:
    """Follows a node; raises UnknownListError where it is to be left as it is."""
    standard = node.domain in ("", "ai.onnx")
    graphs = {a.name: (a.g, b) for a, b in _graphs(node, inferred)}
    if not graphs and standard and node.op_type in RULES:
        value = RULES[node.op_type](scope, node)
        if value is not None:
            scope.values[node.output[0]] = value
            scope.keep_where_read(node)
    elif standard and node.op_type == "Loop":
        follow_loop(scope, node, *graphs["body"], _follow)
    elif standard and node.op_type == "SequenceMap":
        write_out_map(scope, node, graphs["body"][0])
    else:
        _visit_graphs(scope, node, inferred, standard=standard)


def _visit_graphs(scope: Scope, node: onnx.NodeProto, inferred: onnx.NodeProto, *, standard: bool) -> None:
    """Follows the graphs inside a node, of an If both branches."""
    inside = {}
    for attribute, known in _graphs(node, inferred):
        inside[attribute.name] = Scope(attribute.g, known, scope.context, scope)
        _follow(inside[attribute.name])
    results, refusal = list[tuple[str, Value]](), None
    if standard and node.op_type == "If" and inside.keys() == set(BRANCHES):
        try:
            results = give_tensors(scope, node, [inside[branch] for branch in BRANCHES])
        except UnknownListError as error:
            refusal = error
    for own in inside.values():
        own.finish()
    if refusal is not None:
        raise refusal
    if node.output:
        scope.keep(node)
    for name, value in results:
        scope.define(name, value)


def _graphs(
    node: onnx.NodeProto, inferred: onnx.NodeProto
) -> Iterator[tuple[onnx.AttributeProto, onnx.GraphProto]]:
    """The attributes of a node that are graphs, and the graphs with types."""
    known = {attribute.name: attribute.g for attribute in inferred.attribute if attribute.HasField("g")}
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute, known.get(attribute.name, attribute.g)
