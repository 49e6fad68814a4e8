"""``IF``: both branches are computed, and what the condition says is taken; they have no effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgepack.compiler.frontend.tflite.model import Model, Operator, Subgraph, Tensor
from edgepack.errors import ModelError

__all__ = ["without_branches"]

#: Most levels of branches within branches, and most operators: what has more is a damaged file that calls
#: itself.
_MOST_LEVELS, _MOST_OPERATORS = 8, 1 << 16


def without_branches(model: Model) -> Model:
    """The model with the branches' operators in its first subgraph.

    Raises:
        ModelError: a branch is not there, takes or returns other tensors than its call, or calls itself.
    """
    for _ in range(_MOST_LEVELS):
        main = model.main
        if all(one.kind != "IF" for one in main.operators):
            return model
        tensors: list[Tensor] = list(main.tensors)
        operators: list[Operator] = []
        for one in main.operators:
            operators.extend(_branches(model, one, tensors) if one.kind == "IF" else [one])
            if len(operators) > _MOST_OPERATORS:
                raise ModelError("Branches of the model call each other.", hint="Convert the model again.")
        made = replace(main, tensors=tuple(tensors), operators=tuple(operators))
        model = replace(model, subgraphs=(made, *model.subgraphs[1:]))
    raise ModelError("Branches of the model call each other.", hint="Convert the model again.")


def _branches(model: Model, call: Operator, tensors: list[Tensor]) -> list[Operator]:
    """The operators of both branches, and those that choose between their results."""
    made: list[Operator] = []
    results = []
    for name in ("thenSubgraphIndex", "elseSubgraphIndex"):
        index = int(call.options.get(name) or 0)
        if not 0 < index < len(model.subgraphs):
            raise ModelError(f"IF calls a subgraph {index} that is not there.", hint="Convert it again.")
        graph = model.subgraphs[index]
        if len(graph.inputs) != len(call.inputs) - 1 or len(graph.outputs) != len(call.outputs):
            raise ModelError(
                f"IF gives subgraph {index} {len(call.inputs) - 1} tensors; it takes {len(graph.inputs)}.",
                hint="Convert the model again.",
            )
        places = _copied(graph, dict(zip(graph.inputs, call.inputs[1:], strict=True)), call, tensors)
        for one in graph.operators:
            inputs = tuple(places.get(i, i) for i in one.inputs)
            outputs = tuple(places[i] for i in one.outputs)
            inner = tuple(places[i] for i in one.intermediates)
            made.append(replace(one, index=call.index, inputs=inputs, outputs=outputs, intermediates=inner))
        results.append([places[i] for i in graph.outputs])
    for index, pair in zip(call.outputs, zip(*results, strict=True), strict=True):
        made.append(Operator(call.index, "SELECT_V2", 1, (call.inputs[0], *pair), (index,)))
    return made


def _copied(
    graph: Subgraph, given: Mapping[int, int], call: Operator, tensors: list[Tensor]
) -> dict[int, int]:
    """Adds a branch's tensors but those that are given; where each is now."""
    places, taken = dict(given), {tensor.name for tensor in tensors}
    for tensor in graph.tensors:
        if tensor.index in places:
            continue
        places[tensor.index] = len(tensors)
        name = tensor.name
        while name in taken:
            name += "_"
        taken.add(name)
        tensors.append(replace(tensor, index=len(tensors), name=name))
    return places
