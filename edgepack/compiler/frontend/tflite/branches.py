"""``IF`` and ``WHILE``: what they call stands with them, or in their place.

Short branches are both computed, and what the condition says is taken; they have no effects. Others stay, and
are taken or not when the model runs, as is the body of a ``WHILE``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgepack.compiler.frontend.tflite.model import Model, Operator, Subgraph, Tensor
from edgepack.errors import ModelError

__all__ = ["VARIABLES", "with_called_graphs"]

#: Operators of variables that are kept between runs.
VARIABLES = ("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")

#: Most levels of branches within branches, and most operators: what has more is a damaged file that calls
#: itself.
_MOST_LEVELS, _MOST_OPERATORS = 8, 1 << 16

#: Most operators of the branches of an IF that are both computed.
_MOST_SELECTED = 32

#: Operators that take long, or whose time is not known.
_LONG = {
    *("BATCH_MATMUL", "CONV_2D", "CONV_3D", "CONV_3D_TRANSPOSE", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"),
    *("IF", "SVDF", "TOPK_V2", "TRANSPOSE_CONV", "UNIDIRECTIONAL_SEQUENCE_LSTM"),
    *("UNIDIRECTIONAL_SEQUENCE_RNN", "WHILE"),
}


def with_called_graphs(model: Model) -> Subgraph:
    """The first subgraph, where control flow that stays has the graphs that it calls.

    Raises:
        ModelError: a graph is not there, takes or returns other tensors than its call, calls itself, or
            changes variables, or is of a ``WHILE`` and reads some.
    """
    return _Resolver(model).graph(0, 0)


class _Resolver:
    def __init__(self, model: Model) -> None:
        self._model, self._operators = model, 0

    def graph(self, index: int, level: int) -> Subgraph:
        """A subgraph of the model; ``level`` is how many calls it is away from the first one."""
        given = self._model.subgraphs[index]
        self._operators += len(given.operators)
        if level > _MOST_LEVELS or self._operators > _MOST_OPERATORS:
            raise ModelError("Branches of the model call each other.", hint="Convert the model again.")
        tensors, operators = list(given.tensors), list[Operator]()
        for one in given.operators:
            if one.kind == "IF" and not one.custom:
                operators += self._if(one, tensors, level)
            elif one.kind == "WHILE" and not one.custom:
                operators += self._while(one, tensors, level)
            else:
                operators.append(one)
        return replace(given, tensors=tuple(tensors), operators=tuple(operators))

    def _if(self, call: Operator, tensors: list[Tensor], level: int) -> list[Operator]:
        sizes = len(call.inputs) - 1, len(call.outputs)
        graphs = [self._called(call, f"{name}SubgraphIndex", sizes, level) for name in ("then", "else")]
        if any(map(_changes_variables, graphs)):
            raise _refused_variables("An IF")
        if not all(map(_is_short, graphs)) and not any(map(_reads_variables, graphs)):
            return [replace(call, graphs=tuple(graphs))]
        made, results = list[Operator](), []
        for graph in graphs:
            operators, outputs = _inlined(graph, call.inputs[1:], tensors, call.index)
            made += operators
            results.append(outputs)
        for index, pair in zip(call.outputs, zip(*results, strict=True), strict=True):
            made.append(Operator(call.index, "SELECT_V2", 1, (call.inputs[0], *pair), (index,)))
        return made

    def _while(self, call: Operator, tensors: list[Tensor], level: int) -> list[Operator]:
        """The condition before the first trip, and a ``WHILE`` that begins with it and whose body returns it
        too, before what it carries."""
        count = len(call.inputs)
        condition = self._called(call, "condSubgraphIndex", (count, 1), level)
        body = self._called(call, "bodySubgraphIndex", (count, len(call.outputs)), level)
        if count != len(call.outputs):
            raise ModelError(
                f"WHILE takes {count} tensors and returns {len(call.outputs)}.",
                hint="Convert the model again.",
            )
        if any(map(_reads_variables, (condition, body))):
            raise _refused_variables("A WHILE")
        before, (first,) = _inlined(condition, call.inputs, tensors, call.index)
        own = list(body.tensors)
        behind, (again,) = _inlined(condition, body.outputs, own, call.index)
        whole = replace(
            body,
            tensors=tuple(own),
            operators=(*body.operators, *behind),
            outputs=(again, *body.outputs),
        )
        return [*before, replace(call, inputs=(first, *call.inputs), graphs=(whole,))]

    def _called(self, call: Operator, option: str, sizes: tuple[int, int], level: int) -> Subgraph:
        """A graph that a call names, which takes and returns so many tensors."""
        index = int(call.options.get(option) or 0)
        if not 0 < index < len(self._model.subgraphs):
            raise ModelError(
                f"{call.kind} calls a subgraph {index} that is not there.", hint="Convert it again."
            )
        graph = self._model.subgraphs[index]
        if (len(graph.inputs), len(graph.outputs)) != sizes:
            raise ModelError(
                f"{call.kind} gives subgraph {index} {sizes[0]} tensors and takes {sizes[1]} of it; it takes "
                f"{len(graph.inputs)} and gives {len(graph.outputs)}.",
                hint="Convert the model again.",
            )
        return self.graph(index, level + 1)


def _is_short(graph: Subgraph) -> bool:
    """Whether a branch takes about as long as to choose between its results and others."""
    return len(graph.operators) <= _MOST_SELECTED and all(one.kind not in _LONG for one in graph.operators)


def _changes_variables(graph: Subgraph) -> bool:
    return any(
        one.kind in ("ASSIGN_VARIABLE", "CALL_ONCE")
        or any(index >= 0 and owner.tensors[index].variable for index in one.inputs)
        for owner, one in graph.all_operators()
    )


def _reads_variables(graph: Subgraph) -> bool:
    return _changes_variables(graph) or any(one.kind in VARIABLES for _, one in graph.all_operators())


def _refused_variables(what: str) -> ModelError:
    return ModelError(
        f"{what} of the model uses variables that are kept between runs, which are to be used whatever the "
        "data are.",
        hint="Read and assign them outside of it, or cut the model before it (--outputs).",
    )


def _inlined(
    graph: Subgraph, given: Sequence[int], tensors: list[Tensor], index: int
) -> tuple[list[Operator], list[int]]:
    """Operators that compute a graph of the tensors ``given``, and where its results are then.

    Args:
        tensors: of the caller, to which the graph's own are added.
        index: of the operator that calls it.
    """
    places = _copied(graph, dict(zip(graph.inputs, given, strict=True)), tensors)
    made = []
    for one in graph.operators:
        inputs = tuple(places.get(i, i) for i in one.inputs)
        outputs = tuple(places[i] for i in one.outputs)
        inner = tuple(places[i] for i in one.intermediates)
        made.append(replace(one, index=index, inputs=inputs, outputs=outputs, intermediates=inner))
    return made, [places[i] for i in graph.outputs]


def _copied(graph: Subgraph, given: Mapping[int, int], tensors: list[Tensor]) -> dict[int, int]:
    """Adds a graph's tensors but those that are given; where each is now."""
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
